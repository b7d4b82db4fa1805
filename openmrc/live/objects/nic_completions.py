"""The completion queues and channels of a NIC: their rows, who waits at them, and what an overrun does."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from openmrc.engine import lifecycle
from openmrc.engine.state.machines import QpState
from openmrc.engine.state.tables import NONE, Cause
from openmrc.errors import InvalidArgumentError
from openmrc.live.attributes import AsyncEvent, AsyncEventKind
from openmrc.live.errors import NoRoomError
from openmrc.live.host.control import ControlThread, ending, uninterrupted
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.live.objects.records import Records

if TYPE_CHECKING:
    from openmrc.live.objects.completion import CompletionChannel, CompletionQueue
    from openmrc.live.objects.queue_pair import QueuePair

LARGEST_CQ = 1 << 20  # completions
_WAIT_SECONDS = 0.05  # s in compiled code at a time: signals are handled in between


class NicCompletions:
    """Where completions of one NIC go."""

    def __init__(self, runtime: EndpointRuntime, error_of: Callable[[int, int], str]) -> None:
        """Manage the queues of a runtime; `error_of(row, qpn)` describes a queue pair whose request failed."""
        self._runtime = runtime
        self._error_of = error_of
        self._cqs: dict[int, weakref.ref[CompletionQueue]] = {}
        self._free = list(reversed(range(len(runtime.datapath.cqs))))
        # Of the free rows; the event loop reads none of them. A finalizer may take it again within its holder's call.
        self._lock = threading.RLock()
        self._channels: weakref.WeakSet[CompletionChannel] = weakref.WeakSet()

    @property
    def control(self) -> ControlThread:
        """The thread of the methods that are `uninterrupted`."""
        return self._runtime.control

    def abandon(self) -> None:
        """Renew the locks in a forked child: threads of the parent may have held them."""
        self._lock = threading.RLock()
        for queue in (*(known() for known in self._cqs.values()), *self._channels):
            if queue is not None:
                queue.abandon()

    @uninterrupted
    def add(self, cq: CompletionQueue) -> int:
        """Return the row of a new completion queue."""
        self._runtime.check_open()
        if not 1 <= cq.cqe <= LARGEST_CQ:
            raise InvalidArgumentError(f"cqe: {cq.cqe} is not in 1..{LARGEST_CQ}")
        with self._lock:
            if not self._free:
                self._reclaim()
            if not self._free:
                raise NoRoomError(f"max_cq: all {len(self._cqs)} completion queues are in use")
            row = self._free.pop()
            self._cqs[row] = weakref.ref(cq)
            self._runtime.datapath.cqs[row].channel = cq.channel.fileno() if cq.channel is not None else NONE
        return row

    def records(self, row: int, cqe: int) -> Records:
        """Return the ring of a completion queue."""
        return Records(self._runtime, row, cqe, self._error_of)

    @ending
    def drop(self, row: int) -> None:
        """Remove a completion queue."""
        if not self._runtime.is_closed:
            with self._lock:
                self._cqs.pop(row, None)
                self._free.append(row)

    def add_channel(self, channel: CompletionChannel) -> None:
        """Register a completion channel, to wake its waiting calls on close."""
        self._runtime.check_open()
        self._channels.add(channel)

    def wait(self, cq: int, seconds: float, descriptor: int) -> int:
        """Wait at the sockets in this thread if no other attends them; return what `attendance.wait` does."""
        self._runtime.check_here()
        return self._runtime.wait(cq, max(min(seconds, _WAIT_SECONDS), 0), descriptor)

    def wake_all(self) -> None:
        """Wake every waiting call."""
        for known in list(self._cqs.values()):
            cq = known()
            if cq is not None:
                cq.wake()
        for channel in self._channels:
            channel.wake()

    def fail_overrun(self, qps: Iterable[QueuePair | None]) -> list[AsyncEvent]:
        """Move the queue pairs of queues that overran to ERROR; return an event for each such queue, woken after it."""
        with self._runtime.locked() as now:
            self._runtime.nic.overruns = 0
            failed = [
                cq
                for row, known in list(self._cqs.items())
                if self._runtime.datapath.cqs[row].overrun and (cq := known()) is not None and not cq.is_overrun
            ]
            for cq in failed:
                cq.is_overrun = True
            for qp in qps:
                if qp is not None and {qp.send_cq, qp.recv_cq} & set(failed) and qp.state != QpState.RESET:
                    lifecycle.fail(self._runtime.engine, now, qp.row, Cause.LOCAL)
        return [
            AsyncEvent(
                AsyncEventKind.CQ_ERR,
                cq=cq,
                text=f"completion queue: more than {cq.cqe} completions were pending; the queue overran",
            )
            for cq in failed
        ]

    def _reclaim(self) -> None:
        """Free the rows of completion queues that were dropped without `destroy`."""
        dropped = [row for row, known in list(self._cqs.items()) if known() is None]
        for row in dropped:
            self._cqs.pop(row, None)
        self._free += dropped
