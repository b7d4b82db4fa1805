"""Handle of an asynchronous collective: its state, result and error."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openmrc.train.execution.holds import Hold

log = logging.getLogger(__name__)


class Work:
    """One collective, send or receive in progress."""

    def __init__(self, drive: Callable[[Work, float | None], None], result: Any = None) -> None:
        """Created by `Group`; `drive(work, seconds)` makes progress until it is done, `result` is the output array."""
        self.hold: Hold | None = None  # the collective starts when this is over
        self.source: int | None = None  # the sending rank of a receive, once known
        self._drive = drive
        self._result = result
        self._exception: BaseException | None = None
        self._is_done = False
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[Work], None]] = []

    def done(self) -> bool:
        """Whether it has finished or failed."""
        return self._is_done

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it is done; raise its error if it failed.

        `timeout` in seconds; CollectiveTimeoutError when it expires, and the work continues. None: only the timeout of
        the group applies, which aborts the group.
        """
        if not self._is_done:
            self._drive(self, timeout)
        if self._exception is not None:
            raise self._exception

    def result(self, timeout: float | None = None) -> Any:
        """Wait as `wait` does and return the output array, or None if there is none."""
        self.wait(timeout)
        return self._result

    def exception(self) -> BaseException | None:
        """Return its error; None while it is in progress or if it succeeded."""
        return self._exception

    def add_done_callback(self, callback: Callable[[Work], None]) -> None:
        """Call `callback(work)` on completion, in any thread; immediately if it is already done."""
        with self._lock:
            if not self._is_done:
                self._callbacks.append(callback)
                return
        callback(self)

    def finish(self, exception: BaseException | None = None) -> None:
        """Mark it as done, with its error if it failed; called by the group."""
        with self._lock:
            if self._is_done:
                return
            self._exception = exception
            self._is_done = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback(self)
            except Exception:
                log.exception("mrc: a completion callback failed")
