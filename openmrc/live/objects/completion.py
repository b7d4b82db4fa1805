"""Completion queues and the channels that wake those who wait for them."""

from __future__ import annotations

import asyncio
import collections
import os
import select
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from openmrc.live.api.attributes import WorkCompletion
from openmrc.live.api.errors import BusyError, ClosedError, DeadlineError

if TYPE_CHECKING:
    from openmrc.live.objects.context import Context


class Notifier:
    """A file descriptor that becomes readable when rung, for select, asyncio and waiting threads."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """Return the descriptor; it belongs to the notifier."""
        return self._fd

    def ring(self) -> None:
        """Make the descriptor readable."""
        os.eventfd_write(self._fd, 1)

    def silence(self) -> bool:
        """Make it unreadable; return whether it had been rung."""
        try:
            return os.eventfd_read(self._fd) > 0
        except BlockingIOError:
            return False

    def wait(self, seconds: float) -> bool:
        """Sleep until it is rung, at most so long; return whether it was, and silence it."""
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        return bool(poller.poll(max(seconds, 0) * 1000)) and self.silence()

    def __del__(self) -> None:
        # Not earlier: a thread may still sleep on it, and the number would be given to another file.
        os.close(self._fd)


async def until_readable(fd: int, seconds: float) -> bool:
    """Wait in the running event loop until `fd` is readable; return False if the time is over first."""
    loop = asyncio.get_running_loop()
    rung: asyncio.Future[None] = loop.create_future()

    def on_readable() -> None:
        if not rung.done():
            rung.set_result(None)

    loop.add_reader(fd, on_readable)
    try:
        await asyncio.wait_for(rung, max(seconds, 0))
        return True
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(fd)


class CompletionChannel:
    """Where armed completion queues announce themselves (ibv_comp_channel)."""

    def __init__(self, context: Context) -> None:
        """`Context.create_comp_channel` is the way to get one."""
        self.context = context
        self._bell = Notifier()
        self._announced: collections.deque[CompletionQueue] = collections.deque()
        self.users = 0

    def fileno(self) -> int:
        """Return a descriptor that is readable while there are events; for select and asyncio."""
        return self._bell.fileno()

    def get_event(self, timeout: float) -> CompletionQueue:
        """Wait for an armed queue to announce itself; every event is to be acknowledged by `ack_cq_events`."""
        deadline = time.monotonic() + timeout
        while not self._announced:
            if not self._bell.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                raise DeadlineError(f"no completion event within {timeout:g} s; {self.context.progress()}")
        return self._taken()

    async def get_event_async(self, timeout: float) -> CompletionQueue:
        """Wait as `get_event` does, letting the event loop run."""
        deadline = time.monotonic() + timeout
        while not self._announced:
            if not await until_readable(self.fileno(), deadline - time.monotonic()):
                raise DeadlineError(f"no completion event within {timeout:g} s; {self.context.progress()}")
            self._bell.silence()
        return self._taken()

    def destroy(self) -> None:
        """Give the channel back; EBUSY while completion queues use it."""
        if self.users and not self.context.is_closed:
            raise BusyError(f"completion channel: {self.users} completion queues use it")

    def _announce(self, cq: CompletionQueue) -> None:
        self._announced.append(cq)
        self._bell.ring()

    def _taken(self) -> CompletionQueue:
        self._bell.silence()
        cq = self._announced.popleft()
        if self._announced:
            self._bell.ring()
        return cq


class CompletionQueue:
    """Where completions arrive, in order for each queue pair (ibv_cq)."""

    def __init__(self, context: Context, cqe: int, cq_context: Any, channel: CompletionChannel | None) -> None:
        """`Context.create_cq` is the way to get one."""
        self.context = context
        self.cqe = cqe  # completions asked for; it never overruns: send and receive queues bound what can be in it
        self.cq_context = cq_context
        self.channel = channel
        self.users = 0  # queue pairs
        self._ready: collections.deque[WorkCompletion] = collections.deque()
        self._bell = Notifier()
        self.bell_index = context.nic.add_cq(self)
        self._unacknowledged = 0
        self._lock = threading.Lock()
        self._is_open = True
        if channel is not None:
            channel.users += 1

    def fileno(self) -> int:
        """Return a descriptor that becomes readable on the next completion after `notify`; `poll` afterwards."""
        return self._bell.fileno()

    def poll(self, n: int = 16) -> list[WorkCompletion]:
        """Take at most `n` completions; returns at once, with an empty list if there is none."""
        self.context.nic.collect()
        taken: list[WorkCompletion] = []
        ready = self._ready
        while len(taken) < n:
            try:
                taken.append(ready.popleft())
            except IndexError:
                break
        return taken

    def wait(self, timeout: float, n: int = 16) -> list[WorkCompletion]:
        """Sleep until there is a completion, then take at most `n`; DeadlineError after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            taken = self.poll(n)
            if taken:
                return taken
            self._sleep(deadline, timeout)

    async def wait_async(self, timeout: float, n: int = 16) -> list[WorkCompletion]:
        """Wait as `wait` does, letting the event loop run."""
        deadline = time.monotonic() + timeout
        while True:
            self.notify()
            taken = self.poll(n)
            if taken:
                return taken
            self._check_open()
            if not await until_readable(self.fileno(), deadline - time.monotonic()):
                raise DeadlineError(self._overdue(timeout))
            self._bell.silence()

    def notify(self, solicited_only: bool = False) -> None:
        """Arm: the next completion makes `fileno` readable and announces the queue on its channel, once."""
        self._bell.silence()
        self.context.nic.arm(self.bell_index, 2 if solicited_only else 1)

    def ack_cq_events(self, count: int) -> None:
        """Acknowledge events that `CompletionChannel.get_event` gave; `destroy` waits for all of them."""
        with self._lock:
            self._unacknowledged -= count

    def destroy(self, timeout: float = 5.0) -> None:
        """Give the queue back; EBUSY while queue pairs use it, or events stay unacknowledged for `timeout` seconds."""
        if self.users and not self.context.is_closed:
            raise BusyError(f"completion queue: {self.users} queue pairs use it")
        deadline = time.monotonic() + timeout
        while self._unacknowledged > 0 and not self.context.is_closed:
            if time.monotonic() >= deadline:
                raise BusyError(f"completion queue: {self._unacknowledged} events are not acknowledged")
            time.sleep(0.001)
        self._close()

    def __enter__(self) -> CompletionQueue:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.destroy()

    def put(self, completion: WorkCompletion) -> None:
        """Append a completion; the data path has rung the notifier already, if it was armed."""
        self._ready.append(completion)

    def wake(self) -> None:
        """Let whoever waits look again: the context is closing."""
        self._bell.ring()

    def _sleep(self, deadline: float, timeout: float) -> None:
        if self.context.nic.wait(deadline - time.monotonic()):
            return
        self.notify()
        if self._ready:
            return
        self._check_open()
        left = deadline - time.monotonic()
        if left <= 0:
            raise DeadlineError(self._overdue(timeout))
        self._bell.wait(left)

    def _check_open(self) -> None:
        if not self._is_open or self.context.is_closed:
            raise ClosedError("completion queue: closed while waiting")

    def _overdue(self, timeout: float) -> str:
        return f"no completion within {timeout:g} s; {self.context.progress()}"

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self.context.nic.drop_cq(self.bell_index)
            if self.channel is not None:
                self.channel.users -= 1
            self._bell.ring()
