"""Completion queues and completion channels."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
import time
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from openmrc.live.attributes import WorkCompletion
from openmrc.live.datapath.loop.attendance import BUSY, COMPLETED, READABLE
from openmrc.live.datapath.loop.submission import ANY, SOLICITED
from openmrc.live.datapath.loop.waiting import NO_DESCRIPTOR
from openmrc.live.errors import BusyError, ClosedError, DeadlineError, OverrunError, descriptors_for
from openmrc.live.objects.claims import Claims
from openmrc.live.waiting import deadline_after, is_over, seconds_until

if TYPE_CHECKING:
    from openmrc.live.objects.context import Context

# s: calls that wait for one queue share its eventfd, and one may clear what was to wake another. All look again after
# that long, a call that waits alone less often.
_SHARED_SLEEP = 0.05
_LONGEST_SLEEP = 1.0


class Notifier:
    """A file descriptor that becomes readable when signalled, for select, asyncio and waiting threads."""

    def __init__(self, of: str) -> None:
        """Open the descriptor; NoRoomError, which names `of`, if there is none left."""
        self._fd = NO_DESCRIPTOR
        with descriptors_for(of):
            self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """Return the descriptor; the notifier owns it."""
        return self._fd

    def signal(self) -> None:
        """Make the descriptor readable."""
        os.eventfd_write(self._fd, 1)

    def clear(self) -> bool:
        """Make it unreadable; return whether it was readable."""
        try:
            return os.eventfd_read(self._fd) > 0
        except BlockingIOError:
            return False

    def wait(self, seconds: float) -> None:
        """Sleep until it is readable, at most this long, and clear it."""
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        poller.poll(seconds * 1000)
        self.clear()

    async def wait_async(self, seconds: float) -> None:
        """Wait as `wait` does, letting the event loop run."""
        await until_readable(self._fd, seconds)
        self.clear()

    def __del__(self) -> None:
        # Close late: a thread may still sleep on the descriptor, and its number would be reused.
        if self._fd != NO_DESCRIPTOR:
            os.close(self._fd)


_readers: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, list[asyncio.Future[None]]]] = (
    weakref.WeakKeyDictionary()
)


async def until_readable(fd: int, seconds: float) -> bool:
    """Wait in the running event loop until `fd` is readable; return False on timeout.

    Any number of tasks may wait for one descriptor, although a loop accepts one reader for each.
    """
    loop = asyncio.get_running_loop()
    waiting = _readers.setdefault(loop, {}).setdefault(fd, [])
    readable: asyncio.Future[None] = loop.create_future()
    waiting.append(readable)
    if len(waiting) == 1:
        loop.add_reader(fd, _wake_all, waiting)
    try:
        await asyncio.wait_for(readable, max(seconds, 0))
        return True
    except TimeoutError:
        return False
    finally:
        waiting.remove(readable)
        if not waiting:
            loop.remove_reader(fd)
            del _readers[loop][fd]


def _wake_all(waiting: list[asyncio.Future[None]]) -> None:
    for each in waiting:
        if not each.done():
            each.set_result(None)


class CompletionChannel:
    """Channel on which armed completion queues report events (ibv_comp_channel)."""

    def __init__(self, context: Context) -> None:
        """Use `Context.create_comp_channel` instead."""
        self.context = context
        self.users = 0
        self._notifier = Notifier("completion channel")
        self._queues: list[CompletionQueue] = []
        self._lock = threading.Lock()
        context.nic.completions.add_channel(self)

    def __repr__(self) -> str:
        return f"<CompletionChannel of {self.users} completion queues>"

    def fileno(self) -> int:
        """Return a descriptor that is readable while there are events; for select and asyncio."""
        return self._notifier.fileno()

    def get_event(self, timeout: float) -> CompletionQueue:
        """Wait for an event of an armed queue; acknowledge every event by `ack_cq_events`.

        Raises DeadlineError after `timeout` seconds, ClosedError if the context is closed.
        """
        deadline = deadline_after(timeout)
        while (announced := self._next()) is None:
            self._check_wait(deadline, timeout)
            self._notifier.wait(seconds_until(deadline))
        return announced

    async def get_event_async(self, timeout: float) -> CompletionQueue:
        """Wait as `get_event` does, letting the event loop run."""
        deadline = deadline_after(timeout)
        while (announced := self._next()) is None:
            self._check_wait(deadline, timeout)
            await self._notifier.wait_async(seconds_until(deadline))
        return announced

    def destroy(self) -> None:
        """Destroy the channel; EBUSY while completion queues use it."""
        if self.users and not self.context.is_closed:
            raise BusyError(f"completion channel: {self.users} completion queues use it")

    def abandon(self) -> None:
        """Renew the lock in a forked child: a thread of the parent may have held it."""
        self._lock = threading.Lock()

    def add(self, cq: CompletionQueue) -> None:
        """Attach a completion queue."""
        with self._lock:
            self._queues.append(cq)
            self.users += 1

    def remove(self, cq: CompletionQueue) -> None:
        """Detach a completion queue and drop its events."""
        with self._lock:
            self._queues.remove(cq)
            self.users -= 1

    def wake(self) -> None:
        """Wake waiting calls: the context is closing."""
        self._notifier.signal()

    def _next(self) -> CompletionQueue | None:
        """Return a queue with an event, the one served longest ago first."""
        self._notifier.clear()
        with self._lock:
            found = next((cq for cq in self._queues if cq.has_event()), None)
            if found is None:
                return None
            found.take_event()
            self._queues.remove(found)
            self._queues.append(found)
            if any(cq.has_event() for cq in self._queues):
                self._notifier.signal()
        return found

    def _check_wait(self, deadline: float, timeout: float) -> None:
        if self.context.is_closed:
            raise ClosedError("completion channel: closed while waiting")
        if is_over(deadline):
            raise DeadlineError(f"no completion event within {timeout:g} s; {self.context.progress()}")


class CompletionQueue:
    """A queue of completions, in order for each queue pair (ibv_cq).

    It holds `cqe` completions. One more is an overrun, as in verbs: the queue becomes unusable, its queue pairs go to
    ERROR, and the context reports the event CQ_ERR.
    """

    def __init__(self, context: Context, cqe: int, cq_context: Any, channel: CompletionChannel | None) -> None:
        """Use `Context.create_cq` instead."""
        self.context = context
        self.cqe = cqe
        self.cq_context = cq_context
        self.channel = channel
        self.users = 0  # queue pairs
        self.is_overrun = False  # and reported
        self._sleepers = 0
        self._events_taken = 0
        self._unacknowledged = 0
        self._lock = threading.Lock()
        self._claims = Claims()
        self._is_open = True
        self._wakeup = Notifier("completion queue")  # for `wait` and `wait_async`, which must not fail after a post
        self.row = context.nic.completions.add(self)
        self._records = context.nic.completions.records(self.row, cqe)
        self._records.signal_sleeping(self._wakeup.fileno())
        self._notifier: Notifier | None = None  # for `notify`
        if channel is not None:
            channel.add(self)

    def __repr__(self) -> str:
        return f"<CompletionQueue of {self.cqe}, {self._ready()} ready, {self.users} queue pairs>"

    @property
    def notifier(self) -> Notifier:
        """Notifier of the next completion after `notify`; opened on first use, to save descriptors."""
        with self._lock:
            if self._notifier is None:
                self._notifier = Notifier("completion queue")
                self._records.signal_armed(self._notifier.fileno())
            return self._notifier

    def fileno(self) -> int:
        """Return a descriptor that becomes readable on the next completion after `notify`; `poll` afterwards."""
        return self.notifier.fileno()

    def poll(self, n: int = 16) -> list[WorkCompletion]:
        """Take at most `n` completions; return immediately, with an empty list if there are none."""
        if not self._ready() and not self._records.is_overrun():
            return []
        with self._lock:
            self._check_overrun()
            kept = self._claims.kept
            taken = [kept.popleft() for _ in range(min(n, len(kept)))]
            while len(taken) < n and self._records.ready():
                taken += self._read(n - len(taken))
        return taken

    def claim(self) -> Claim:
        """Return a claim to one request, to be posted with its `wr_id`: no other call takes its completion."""
        return Claim(self, self._claims, self._lock)

    def collect(self, number: int) -> WorkCompletion | None:
        """Return the completion of a claimed request, if it has come; keep those of others for `poll`."""
        with self._lock:
            self._check_overrun()
            while self._records.ready() and self._claims.completion(number) is None:
                self._claims.kept += self._read(self.cqe)
            if len(self._claims.kept) > self.cqe:
                raise self._overrun()
            return self._claims.completion(number)

    def wait(self, timeout: float, n: int = 16) -> list[WorkCompletion]:
        """Sleep until there is a completion, then take at most `n`; DeadlineError after `timeout` seconds."""
        taken = self.poll(n)
        if taken:
            return taken
        deadline = deadline_after(timeout)
        while not (taken := self.poll(n)):
            self.rest(deadline, timeout)
        return taken

    def wait_beside(self, descriptor: int, seconds: float, n: int = 16) -> list[WorkCompletion]:
        """Wait as `wait` does; an empty list when `descriptor` is readable or the time is over."""
        deadline = deadline_after(seconds)
        while not (taken := self.poll(n)):
            left = deadline - time.monotonic()
            outcome = self.context.nic.completions.wait(self.row, left, descriptor)
            if outcome == READABLE or (outcome != COMPLETED and left <= 0):
                return []
            if outcome == BUSY:
                if self._sleep_beside(descriptor, self._nap(deadline)):
                    return []
            elif outcome != COMPLETED and self.context.is_closed:
                raise ClosedError("completion queue: closed while waiting")
        return taken

    async def wait_async(self, timeout: float, n: int = 16) -> list[WorkCompletion]:
        """Wait as `wait` does, letting the event loop run."""
        deadline = deadline_after(timeout)
        while not (taken := self.poll(n)):
            await self.rest_async(deadline, timeout)
        return taken

    def rest(self, deadline: float, timeout: float) -> None:
        """Sleep for a while, at most until a completion comes; DeadlineError after `deadline`."""
        outcome = self.context.nic.completions.wait(self.row, deadline - time.monotonic(), NO_DESCRIPTOR)
        if outcome == BUSY:
            self._sleep(deadline, timeout)
        elif outcome != COMPLETED:
            self._check_wait(deadline, timeout)

    async def rest_async(self, deadline: float, timeout: float) -> None:
        """Sleep as `rest` does, letting the event loop run."""
        with self._sleeping():
            if not self._ready():
                self._check_wait(deadline, timeout)
                await self._wakeup.wait_async(self._nap(deadline))

    def notify(self, solicited_only: bool = False) -> None:
        """Arm: the next completion makes `fileno` readable and reports the queue on its channel, once.

        Completions that already exist do not: `poll` after arming.
        """
        self.notifier.clear()
        self._records.arm(SOLICITED if solicited_only else ANY)

    def ack_cq_events(self, count: int) -> None:
        """Acknowledge events from `CompletionChannel.get_event`; `destroy` waits for all acknowledgements."""
        with self._lock:
            if not 0 <= count <= self._unacknowledged:
                raise ValueError(f"count: {count} events, but {self._unacknowledged} are not acknowledged")
            self._unacknowledged -= count

    def destroy(self, timeout: float = 5.0) -> None:
        """Destroy the queue; EBUSY while queue pairs use it, or events stay unacknowledged for `timeout` seconds."""
        if self.users and not self.context.is_closed:
            raise BusyError(f"completion queue: {self.users} queue pairs use it")
        deadline = deadline_after(timeout)
        while self._unacknowledged > 0 and not self.context.is_closed:
            if is_over(deadline):
                raise BusyError(f"completion queue: {self._unacknowledged} events are not acknowledged")
            time.sleep(0.001)
        self._close()

    def abandon(self) -> None:
        """Renew the lock in a forked child: a thread of the parent may have held it."""
        self._lock = threading.Lock()

    def __enter__(self) -> CompletionQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def wake(self) -> None:
        """Wake waiting calls: the context is closing, or the queue overran."""
        for each in (self._wakeup, self._notifier):
            if each is not None:
                each.signal()

    def has_event(self) -> bool:
        """Whether an event is pending."""
        return self._records.events() != self._events_taken

    def take_event(self) -> None:
        """Count one event as delivered to the application."""
        with self._lock:
            self._events_taken += 1
            self._unacknowledged += 1

    @contextlib.contextmanager
    def _sleeping(self) -> Iterator[None]:
        """Count a waiting call, which checks for completions and then sleeps: later ones signal `_wakeup`.

        The last completions of one that leaves must wake the next.
        """
        with self._lock:
            self._sleepers += 1
        try:
            self._wakeup.clear()
            self._records.wake_at_next()
            yield
        finally:
            with self._lock:
                self._sleepers -= 1
            if self._sleepers:
                self._records.wake_at_next()
                if self._ready():
                    self._wakeup.signal()

    def _sleep(self, deadline: float, timeout: float) -> None:
        """Sleep until a completion is published, elsewhere than at the sockets."""
        with self._sleeping():
            if not self._ready():
                self._check_wait(deadline, timeout)
                self._wakeup.wait(self._nap(deadline))

    def _sleep_beside(self, descriptor: int, seconds: float) -> bool:
        """Sleep as `_sleep` does, or until `descriptor` is readable; return whether it is."""
        with self._sleeping():
            if self._ready():
                return False
            poller = select.poll()
            poller.register(self._wakeup.fileno(), select.POLLIN)
            if descriptor != NO_DESCRIPTOR:
                poller.register(descriptor, select.POLLIN)
            return any(readable == descriptor for readable, _ in poller.poll(seconds * 1000))

    def _nap(self, deadline: float) -> float:
        """Return how long (s) to sleep at the eventfd before looking again."""
        is_shared = self._sleepers > 1 or len(self._claims) > 0
        return min(seconds_until(deadline), _SHARED_SLEEP if is_shared else _LONGEST_SLEEP)

    def _ready(self) -> int:
        """Return how many completions have come, some of which may be claimed."""
        return self._records.ready() + len(self._claims.kept)

    def _read(self, n: int) -> list[WorkCompletion]:
        """Take at most `n` completions from the ring, give those that are claimed to their callers, return the others.

        The caller holds the lock.
        """
        taken = self._records.read(n)
        others = self._claims.unclaimed(taken)
        self._records.remove(len(taken))
        if self._claims and self._sleepers:
            self._wakeup.signal()
        return others

    def _check_overrun(self) -> None:
        if self._records.is_overrun():
            raise self._overrun()

    def _overrun(self) -> OverrunError:
        return OverrunError(f"completion queue: more than {self.cqe} completions were pending; the queue overran")

    def _check_wait(self, deadline: float, timeout: float) -> None:
        if not self._is_open or self.context.is_closed:
            raise ClosedError("completion queue: closed while waiting")
        if is_over(deadline):
            raise DeadlineError(f"no completion within {timeout:g} s; {self.context.progress()}")

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self.context.nic.completions.drop(self.row)
            if self.channel is not None:
                self.channel.remove(self)
            self.wake()


class Claim:
    """A request whose completion its caller waits for, whatever else the queue carries."""

    def __init__(self, cq: CompletionQueue, claims: Claims, lock: threading.Lock) -> None:
        """Use `CompletionQueue.claim` instead."""
        self._cq = cq
        self._claims = claims
        self._lock = lock

    def __enter__(self) -> Claim:
        with self._lock:
            self.wr_id = self._claims.draw()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._claims.end(self.wr_id)

    def wait(self, timeout: float) -> WorkCompletion:
        """Wait for the completion; DeadlineError after `timeout` seconds."""
        deadline = deadline_after(timeout)
        while (completion := self._cq.collect(self.wr_id)) is None:
            self._cq.rest(deadline, timeout)
        return completion

    async def wait_async(self, timeout: float) -> WorkCompletion:
        """Wait as `wait` does, letting the event loop run."""
        deadline = deadline_after(timeout)
        while (completion := self._cq.collect(self.wr_id)) is None:
            await self._cq.rest_async(deadline, timeout)
        return completion
