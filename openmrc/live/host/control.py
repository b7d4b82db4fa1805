"""Control operations that signals cannot interrupt halfway: another thread does them for the main thread.

Python runs signal handlers and finalizers between any two bytecodes. An exception of a handler would leave the loop
mutex locked, or the engine's tables half changed: the wait for the other thread can be interrupted, the work completes.
A finalizer may interrupt a thread that holds the lock, so what it closes the other thread closes afterwards.
"""

import contextlib
import functools
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from openmrc.errors import BusyError

P = ParamSpec("P")
R = TypeVar("R")
STOP_SECONDS = 5.0
OPERATION_SECONDS = 60.0  # s; the longest operation, closing a context, takes some 15 s at worst
UNDO_SECONDS = 1.0  # s an interrupted caller waits for its operation, to be able to undo it


class Operation:
    """A call, made in another thread."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._over = threading.Lock()  # a lock is the only wait without an interpreted step after its wake-up
        self._over.acquire()
        self._is_over = False
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Make the call and wake the waiting caller."""
        try:
            self._result = self._call()
        except BaseException as error:
            self._error = error
        finally:
            self._is_over = True
            self._over.release()

    def wait(self) -> Any:
        """Return the result of the call, or raise its exception.

        BusyError: the call has not ended within a minute, as when its caller holds a lock that it needs.
        """
        if not self._over.acquire(timeout=OPERATION_SECONDS):
            raise BusyError(f"context: {self._call} has not ended within {OPERATION_SECONDS:g} s")
        if self._error is not None:
            raise self._error
        return self._result

    def finish(self) -> None:
        """Wait for the end of a call whose caller was interrupted."""
        if not self._is_over:
            self._over.acquire(timeout=UNDO_SECONDS)


class ControlThread:
    """Runs operations of the main thread, in order."""

    def __init__(self) -> None:
        self._operations: queue.SimpleQueue[Operation | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="openmrc control", daemon=True)
        self._is_running = False  # not `is_alive`: in Python 3.11 an exception in it corrupts the thread's state
        self.holds: list[Callable[[], bool]] = []  # each says whether this thread holds a lock that operations take

    def start(self) -> None:
        self._thread.start()
        self._is_running = True

    def stop(self) -> None:
        """Stop the thread; return when it has ended, or after a few seconds."""
        self._is_running = False
        self._operations.put(None)
        if self._thread.ident is not None and self._thread is not threading.current_thread() and not self._is_inside():
            self._thread.join(STOP_SECONDS)
        self.holds.clear()  # they keep the endpoint's memory

    def abandon(self) -> None:
        """Run operations in their callers' threads: a forked child does not have this thread."""
        self._is_running = False

    def call(self, call: Callable[[], R]) -> R:
        """Return the result of `call`, run where no signal interrupts it.

        Daemon threads do not run any more while the interpreter finalizes: it runs here then.
        """
        is_main = threading.current_thread() is threading.main_thread()
        if not is_main or not self._is_running or sys.is_finalizing():
            return call()
        if self._is_inside():
            raise BusyError("context: called by a finalizer, in the middle of another call of its thread")
        operation = Operation(call)
        try:
            self._operations.put(operation)
            result: R = operation.wait()
        except BusyError:
            raise
        except BaseException:  # an interruption takes effect after the call, one between the two lines above as well
            operation.finish()
            raise
        return result

    def end(self, call: Callable[[], None]) -> None:
        """Make a call that ends something; by a finalizer in the middle of another call of its thread: after that.

        Nobody hears of an error then.
        """
        if self._is_running and self._is_inside() and not sys.is_finalizing():
            self._operations.put(Operation(call))
        else:
            self.call(call)

    def _is_inside(self) -> bool:
        return any(holds() for holds in self.holds)

    def _run(self) -> None:
        while (operation := self._operations.get()) is not None:
            operation.run()
        with contextlib.suppress(queue.Empty):  # submitted while the thread was stopping
            while (operation := self._operations.get_nowait()) is not None:
                operation.run()


class HasControl(Protocol):
    """An object whose methods may be `uninterrupted`."""

    @property
    def control(self) -> ControlThread: ...


Owner = TypeVar("Owner", bound=HasControl)


def uninterrupted(method: Callable[Concatenate[Owner, P], R]) -> Callable[Concatenate[Owner, P], R]:
    """Make a method that changes the endpoint run to completion, whatever signals arrive."""

    @functools.wraps(method)
    def call(self: Owner, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.control.call(functools.partial(method, self, *args, **kwargs))

    return cast("Callable[Concatenate[Owner, P], R]", call)


def ending(method: Callable[Concatenate[Owner, P], None]) -> Callable[Concatenate[Owner, P], None]:
    """Make a closing method `uninterrupted`, and let finalizers call it anywhere."""

    @functools.wraps(method)
    def call(self: Owner, *args: P.args, **kwargs: P.kwargs) -> None:
        self.control.end(functools.partial(method, self, *args, **kwargs))

    return cast("Callable[Concatenate[Owner, P], None]", call)
