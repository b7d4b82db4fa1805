"""The `Work` that a collective returns to torch, with a future that completes when the data has arrived.

Futures complete in separate threads: their callbacks may wait for another collective, which the thread that completed
this one may have to execute.
"""

import functools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch._C._distributed_c10d import Work as TorchWork

from openmrc.train.execution.work import Work
from openmrc.train.pytorch.compiling import untraced

_PREFIX = "openmrc futures"
_THREADS = 8  # each nested wait blocks one
NO_TIMEOUT = timedelta(0)
Method = TypeVar("Method", bound=Callable[..., Any])


class FutureThreads(ThreadPoolExecutor):
    """The threads in which the futures of a group complete; started as they are needed."""

    def __init__(self) -> None:
        super().__init__(_THREADS, _PREFIX)

    def close(self) -> None:
        """End the threads after all submitted tasks; wait for it unless called in one of them."""
        is_one = threading.current_thread().name.startswith(_PREFIX)  # a callback of a future closes the group
        self.shutdown(wait=not is_one)


@untraced
class MrcWork(TorchWork):
    """One or more calls of a group as one work."""

    def __init__(self, works: Sequence[Work], tensors: Any, threads: FutureThreads, timeout: float | None) -> None:
        """`tensors` are the result; `timeout` (s) is the call's, None: the group's."""
        super().__init__()
        self.works = works
        self._tensors = tensors
        self._threads = threads
        self._timeout = timeout
        self._future: Any = None

    def when_done(self, task: Callable[[], object]) -> None:
        """Call `task` when all calls have finished, in the thread that finishes the last one."""
        left = [None] * len(self.works)

        def count(_: Work) -> None:
            left.pop()  # atomic, unlike a subtraction
            if not left:
                with suppress(RuntimeError):  # the threads were closed, so no caller waits
                    task()

        for work in self.works:
            work.add_done_callback(count)

    def is_completed(self) -> bool:
        """Whether all calls have finished, successfully or not."""
        return all(work.done() for work in self.works)

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """Return the first error; None if there is none."""
        return next((error for work in self.works if (error := work.exception()) is not None), None)

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Wait until all calls are done; raise the first error, or CollectiveTimeoutError after `timeout`."""
        seconds = timeout.total_seconds() or self._timeout
        deadline = None if seconds is None else time.monotonic() + seconds
        for work in self.works:
            work.wait(None if deadline is None else max(deadline - time.monotonic(), 0.0))
        return True

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> Any:
        return self._tensors

    def source_rank(self) -> int:
        """Return the rank that sent the data of a receive."""
        return self.works[0].source or 0

    def _source_rank(self) -> int:
        return self.source_rank()

    def get_future(self) -> Any:
        """Return the future of the result; repeated calls return the same one."""
        if self._future is None:
            self._future = self._begin_future()
        return self._future

    def _begin_future(self) -> Any:
        done: torch.futures.Future[None] = torch.futures.Future()
        # An error raised in `then` reaches waiters in C++; one set with `set_exception` does not.
        future = done.then(lambda _: self._outcome())
        if self.is_completed():
            done.set_result(None)
        else:
            self.when_done(lambda: self._threads.submit(lambda: done.set_result(None)))
        return future

    def _outcome(self) -> Any:
        error = self.exception()
        if error is not None:
            raise error
        return self._tensors


def recorded(name: str) -> Callable[[Method], Method]:
    """Decorate a call: torch's profiler shows it as `mrc:name`, with bytes and group, until its data has arrived."""

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **options: Any) -> Any:
            if not torch.autograd._profiler_enabled():
                return method(self, *args, **options)
            group = self.group
            text = f"{_bytes_in(args)} bytes, group {group.name}, rank {group.rank} of {group.size}"
            with torch.autograd.profiler.record_function(f"mrc:{name}", text) as record:
                work = method(self, *args, **options)
                if isinstance(work, MrcWork) and not work.is_completed():
                    record._call_end_callbacks_on_future(work.get_future())
                return work

        return cast("Method", call)

    return decorate


def _bytes_in(tensors: Any) -> int:
    """Return the bytes of all tensors in nested lists, of other arguments none."""
    if isinstance(tensors, list | tuple):
        return sum(map(_bytes_in, tensors))
    return tensors.nbytes if isinstance(tensors, torch.Tensor) else 0
