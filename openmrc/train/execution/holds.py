"""Holds: collectives of a group that must not start before something outside it has happened, such as a copy.

A hold stands in the group's queue like a wait for an event in a queue of a device: the calls behind it are accepted at
once, keep their order, and start when it is over. Its thread waits for all holds of a group, one after the other.
"""

import queue
import threading
from collections.abc import Callable


class Hold(threading.Event):
    """What the calls behind it wait for; it is set when they may start."""

    def __init__(self, awaited: Callable[[], None]) -> None:
        super().__init__()
        self._awaited = awaited
        self.error: BaseException | None = None  # that `awaited` raised

    def run(self) -> None:
        """Wait for what it stands for."""
        try:
            self._awaited()
        except BaseException as error:
            self.error = error


class HoldThread:
    """The thread that waits for the holds of a group; started with the first one."""

    def __init__(self, on_over: Callable[[Hold], None]) -> None:
        """`on_over` is called in the thread with each hold that has been waited for; it sets the hold."""
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
