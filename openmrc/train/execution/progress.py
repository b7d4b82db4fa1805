"""The driver of a group: a thread that waits for an operation, or a background thread if none waits.

One thread drives, guarded by a lock: it takes completions in order and passes them to the group. A call that waits
drives itself, so that small collectives need no thread switch; other waiting threads sleep until their work is done.
"""

import threading
import time
from collections.abc import Callable
from typing import Protocol

from openmrc.errors import MrcError
from openmrc.train.errors import AbortedError, CollectiveTimeoutError, UnsupportedError
from openmrc.train.execution.work import Work
from openmrc.verbs import DeadlineError, WorkCompletion

TICK = 0.2  # s between checks of timeouts
_GRACE = 0.001  # s without a driver after which the background thread takes over
_BATCH = 64


class Completions(Protocol):
    """Interface of a completion queue to the driver."""

    def wait(self, timeout: float, n: int = 16) -> list[WorkCompletion]:
        """Return completions; DeadlineError after `timeout` seconds without one."""


class Driven(Protocol):
    """Interface of a group to its driver. All methods are called with `Progress.lock` held."""

    def on_completions(self, completions: list[WorkCompletion]) -> None: ...

    def check(self) -> None:
        """Check timeouts; called every TICK."""

    def is_idle(self) -> bool:
        """Whether there is nothing to progress: no operation, and nothing accepted that waits to be sent."""

    def on_error(self, error: BaseException) -> None:
        """End all operations in progress."""


class ProgressDriver:
    def __init__(self, cq: Completions, driven: Driven) -> None:
        self.lock = threading.RLock()  # guards the group's state
        self._cq = cq
        self._driven = driven
        self._driver = threading.Lock()
        self._driver_thread = 0
        self._driver_changed = threading.Condition()
        self._waiting = 0
        self._is_closed = False
        self._has_work = threading.Event()
        self._thread: threading.Thread | None = None
        self._checked_at = time.monotonic()

    def wait(self, work: Work, timeout: float | None = None) -> None:
        """Drive, or wait for the driver, until `work` is done; CollectiveTimeoutError after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if work.hold is not None:  # driving would not notice a collective that completes when it starts
            work.hold.wait(timeout)
        if not self.until(work.done, deadline):
            if deadline is None:
                raise AbortedError("the group was closed while a call was waiting")
            raise CollectiveTimeoutError(f"not done within {timeout:g} s; the call continues")

    def until(self, is_done: Callable[[], bool], deadline: float | None) -> bool:
        """Drive, or wait for the driver, until `is_done()`; return False after `deadline` (monotonic s)."""
        if not is_done() and self._driver_thread == threading.get_ident():
            raise UnsupportedError("a callback must not wait for a collective: it runs in the thread that completes it")
        while not is_done():
            if self._is_closed or (deadline is not None and time.monotonic() >= deadline):
                return False
            if self._driver.acquire(blocking=False):
                self._driver_thread = threading.get_ident()
                try:
                    self._drive(is_done, deadline)
                finally:
                    self._driver_thread = 0
                    self._driver.release()
                    self._notify()
                    self._leave_rest()
            else:
                self._wait_for_driver(is_done, deadline)
        return True

    def work_in_background(self) -> None:
        """Ensure that operations progress while no thread waits for them."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="openmrc collectives", daemon=True)
            self._thread.start()
        if not self._has_work.is_set():
            self._has_work.set()

    def _leave_rest(self) -> None:
        """Leave what other operations still need to the background thread: this one may make no further call."""
        if not self._is_closed and threading.current_thread() is not self._thread and not self._driven.is_idle():
            self.work_in_background()

    def close(self) -> None:
        self._is_closed = True
        self._has_work.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def _drive(self, is_done: Callable[[], bool], deadline: float | None) -> None:
        while not is_done() and not self._is_closed:
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return
            left = TICK if deadline is None else min(TICK, deadline - now)
            if now - self._checked_at >= TICK:
                self._checked_at = now
                self._guarded(self._driven.check)
                left = 0.0  # what is there is taken before the next check, which may find that a rank has left
            try:
                completions = self._cq.wait(left, _BATCH)
            except DeadlineError:
                continue
            except MrcError as error:  # the endpoint was closed, or a rank of this host breaks the rules
                with self.lock:
                    self._driven.on_error(error)
                return
            self._guarded(lambda taken=completions: self._driven.on_completions(taken))  # type: ignore[misc]
            if self._waiting:
                self._notify()

    def _guarded(self, step: Callable[[], None]) -> None:
        with self.lock:
            try:
                step()
            except Exception as error:  # any failure must reach the waiting threads
                self._driven.on_error(error)

    def _wait_for_driver(self, is_done: Callable[[], bool], deadline: float | None) -> None:
        left = TICK if deadline is None else min(TICK, max(deadline - time.monotonic(), 0))
        with self._driver_changed:
            self._waiting += 1
            if not is_done() and self._driver.locked():
                self._driver_changed.wait(left)
            self._waiting -= 1

    def _notify(self) -> None:
        if self._waiting:
            with self._driver_changed:
                self._driver_changed.notify_all()

    def _serve(self) -> None:
        while not self._is_closed:
            self._has_work.wait()
            time.sleep(_GRACE)
            if self._driven.is_idle():
                self._has_work.clear()
                if not self._driven.is_idle():  # an operation started meanwhile
                    self._has_work.set()
            elif not self._driver.locked():
                self.until(self._driven.is_idle, None)
