"""Holds: collectives of a group that must not start before something outside it has happened, such as a copy.

A hold stands in the group's queue like a wait for an event in a queue of a device: the calls behind it are accepted at
once, keep their order, and start when it is over. Its thread waits for all holds of a group, one after the other.
"""

import queue
import threading
from collections.abc import Callable


class Hold:
    """What the calls behind it wait for."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self._wait = wait
        self._is_over = threading.Event()
        self.error: BaseException | None = None  # that `wait` raised

    @property
    def is_over(self) -> bool:
        """Whether the calls behind it may start."""
        return self._is_over.is_set()

    def run(self) -> None:
        """Wait for what it stands for."""
        try:
            self._wait()
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self._is_over.set()

    def join(self, timeout: float | None) -> bool:
        """Wait until it is over, for `timeout` seconds at most; return whether it is."""
        return self._is_over.wait(timeout)


class HoldThread:
    """The thread that waits for the holds of a group; started with the first one."""

    def __init__(self, on_over: Callable[[Hold], None]) -> None:
        """`on_over` is called in the thread with each hold that has been waited for; it calls `Hold.end`."""
        self._on_over = on_over
        self._holds: queue.SimpleQueue[Hold | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def add(self, wait: Callable[[], None]) -> Hold:
        """Return a hold until `wait` has returned, after all earlier ones."""
        hold = Hold(wait)
        self._holds.put(hold)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="openmrc holds", daemon=True)
            self._thread.start()
        return hold

    def close(self) -> None:
        """End the thread; a hold that it still waits for delays this by up to 5 s."""
        if self._thread is not None:
            self._holds.put(None)
            if self._thread is not threading.current_thread():
                self._thread.join(5.0)

    def _serve(self) -> None:
        while (hold := self._holds.get()) is not None:
            hold.run()
            self._on_over(hold)
