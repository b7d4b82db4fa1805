"""Posting: validate requests, write them to the command ring and submit them together.

All counters change in one compiled call, `submit`: an exception between any two steps here leaves nothing behind except
rows that were not submitted.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from openmrc.core.rows import column, dtype_of
from openmrc.engine.messages import MAX_MESSAGE
from openmrc.engine.state.machines import QpState
from openmrc.live.attributes import RecvWr, SendWr
from openmrc.live.datapath.rows import COMMANDS, PostCommand
from openmrc.live.errors import InvalidArgumentError, NoRoomError
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.live.objects.memory import MemoryRegion, RegionSlice
from openmrc.live.objects.write_batch import WriteBatch

if TYPE_CHECKING:
    from openmrc.live.objects.queue_pair import QueuePair

_SENDS = frozenset({int(QpState.RTS), int(QpState.ERROR)})
_RESET = int(QpState.RESET)
_SEND, _RECEIVE = 0, 1
_POLL_SECONDS = 0.002  # s between checks of a send queue that is being drained
_RING = COMMANDS - 1
_WORD = (1 << 64) - 1
_SIGN = 1 << 63
# The fields of `PostCommand`, in the order in which `add_write` packs them, which takes two thirds of assigning a row.
_FIELDS = (
    *("wr_id", "local", "length", "va", "r_key", "immediate", "has_immediate", "solicited", "signaled", "continues"),
    *("l_key", "is_receive", "qp"),
)
assert dtype_of(PostCommand).names == _FIELDS
_COMMAND = struct.Struct("=" + "".join("Q" if name in {"wr_id", "va"} else "q" for name in _FIELDS))
_COMMAND_BYTES = _COMMAND.size
assert dtype_of(PostCommand).itemsize == _COMMAND_BYTES
_pack = _COMMAND.pack_into


class Posting:
    """Passes requests to the event loop."""

    def __init__(self, runtime: EndpointRuntime, is_registered: Callable[[MemoryRegion], bool]) -> None:
        self.lock = threading.RLock()  # only its holder posts
        # As `threading.Condition` asks its lock.
        runtime.control.holds.append(lambda: bool(self.lock._is_owned()))  # type: ignore[attr-defined]
        self._runtime = runtime
        self._is_registered = is_registered
        # As words: NumPy copies rows of fields one by one.
        commands = np.asarray(runtime.datapath.commands)
        self._commands = commands.view(np.int64).reshape(COMMANDS, -1)
        self._memory = self._commands.data
        self._qp_of_command = commands["qp"]
        # Arrays of fields: `item` takes a tenth of the time of a row's attribute.
        qps, nic = runtime.engine.qps, runtime.datapath.nic
        self._state = column(qps, "state").item
        self._message_head = column(qps, "message_head").item
        self._receive_head = column(qps, "receive_head").item
        self._queued = column(runtime.datapath.queues, "posted").item
        self._posted = column(nic, "posted").item
        self._taken = column(nic, "taken").item

    def send(self, qp: QueuePair, requests: Iterable[SendWr]) -> None:
        """Post writes; stop at the first refused one."""
        self._runtime.check_open()
        with self.lock:
            if self._state(qp.row) not in _SENDS:
                raise _wrong_state(qp, "send")
            batch = _Batch(self, qp, _SEND, self._message_head)
            known = None  # the region checked last: it stays registered while the lock is held
            try:
                for request in requests:
                    region, offset, length = _source(request.local)
                    if region is not known:
                        self._check_region(qp, region)
                        known = region
                    _check(request)
                    batch.add_write(request, region, offset, length)
            finally:
                batch.submit()

    def send_batch(self, qp: QueuePair, writes: WriteBatch) -> None:
        """Post all writes of a batch, or none."""
        self._runtime.check_open()
        region = writes.region
        with self.lock:
            if self._state(qp.row) not in _SENDS:
                raise _wrong_state(qp, "send")
            self._check_region(qp, region)
            batch = _Batch(self, qp, _SEND, self._message_head)
            number = batch.make_room(len(writes))
            _fill(qp.sent_from, number % len(qp.sent_from), len(writes), region)
            batch.add_rows(writes.words)
            batch.submit()

    def receive(self, qp: QueuePair, requests: Iterable[RecvWr]) -> None:
        """Post receives; stop at the first refused one."""
        self._runtime.check_open()
        with self.lock:
            if self._state(qp.row) == _RESET:
                raise _wrong_state(qp, "receive")
            batch = _Batch(self, qp, _RECEIVE, self._receive_head)
            try:
                for request in requests:
                    _check_wr_id(request.wr_id)
                    batch.add_receive(request.wr_id)
            finally:
                batch.submit()

    def outstanding(self, qp: QueuePair) -> int:
        """Return how many posted writes have not completed."""
        return int(self._queued(2 * qp.row) - self._message_head(qp.row))

    def reads_from(self, qp: QueuePair, region: MemoryRegion) -> bool:
        """Whether posted writes still read from a region."""
        open_writes = range(self._message_head(qp.row), self._queued(2 * qp.row))
        return any(qp.sent_from[number % len(qp.sent_from)] is region for number in open_writes)

    def pause(self) -> None:
        """Sleep until some writes may have completed; ClosedError if the endpoint is unusable."""
        self._runtime.check_open()
        time.sleep(_POLL_SECONDS)

    def settle(self) -> None:
        """Wait until every submitted request is processed, and every completion published."""
        self._runtime.check_here()
        self._runtime.iterate()

    def _check_region(self, qp: QueuePair, region: MemoryRegion) -> None:
        if region.pd is not qp.pd or not self._is_registered(region):
            raise InvalidArgumentError(f"local: region {region.key:#x} is not registered in this protection domain")


class _Batch:
    """Requests of one call, in the command ring but not yet submitted. The caller holds the posting lock.

    A request is counted by its place in the command ring; its number in its queue is that plus a constant.
    """

    def __init__(self, posting: Posting, qp: QueuePair, kind: int, head: Callable[[int], int]) -> None:
        self._posting = posting
        self._memory = posting._memory
        self._qp = qp
        self._row = qp.row
        self._sent_from = qp.sent_from
        self._kind = kind
        self._head = head
        self._depth = qp.init.max_recv_wr if kind == _RECEIVE else qp.init.max_send_wr
        self._place = posting._posted(0)  # of the next request
        self._number = posting._queued(2 * qp.row + kind) - self._place
        self._submitted = self._place
        self._end = self._place  # first place that is not known to be free

    def make_room(self, count: int = 1) -> int:
        """Ensure that `count` requests fit both rings; return the number of the first. ENOMEM if they do not fit."""
        if self._place + count > self._end:
            self._find_room()
            if self._place + count > self._end:
                self._settle()
                self._find_room()
            if self._place + count > self._end:
                raise self._no_room(count)
        return int(self._place + self._number)

    def add_write(self, request: SendWr, region: MemoryRegion, offset: int, length: int) -> None:
        """Write a checked request to the command ring. ENOMEM if there is no room."""
        if self._place >= self._end:
            self.make_room()
        immediate = request.immediate
        self._sent_from[(self._place + self._number) % self._depth] = region
        _pack(
            self._memory,
            (self._place & _RING) * _COMMAND_BYTES,
            request.wr_id & _WORD,
            region.addr + offset,
            length,
            request.remote_addr,
            request.r_key,
            immediate or 0,
            immediate is not None,
            request.solicited,
            request.signaled,
            0,
            region.key,
            0,
            self._row,
        )
        self._place += 1

    def add_receive(self, wr_id: int) -> None:
        """Write a receive to the command ring. ENOMEM if there is no room."""
        if self._place >= self._end:
            self.make_room()
        at = (self._place & _RING) * _COMMAND_BYTES
        _pack(self._memory, at, wr_id & _WORD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, self._row)
        self._place += 1

    def add_rows(self, rows: np.ndarray) -> None:
        """Write requests to the command ring; it has room for them."""
        begin, count = self._place & _RING, len(rows)
        before_end = min(count, COMMANDS - begin)
        for first, part in ((begin, rows[:before_end]), (0, rows[before_end:])):
            end = first + len(part)
            self._posting._commands[first:end] = part
            self._posting._qp_of_command[first:end] = self._qp.row
        self._place += count

    def submit(self) -> None:
        """Make the requests visible to the event loop."""
        count, self._submitted = self._place - self._submitted, self._place
        if count:
            self._posting._runtime.post(count)

    def _find_room(self) -> None:
        """Learn what is free in the queue of the queue pair and in the command ring."""
        queue_end = self._head(self._qp.row) + self._depth - self._number
        self._end = min(queue_end, self._posting._taken(0) + COMMANDS)

    def _settle(self) -> None:
        self.submit()
        self._posting.settle()

    def _no_room(self, count: int) -> NoRoomError:
        kind = "receive" if self._kind == _RECEIVE else "send"
        wanted = f" ({self._end - self._place} free, {count} wanted)" if count > 1 else ""
        return NoRoomError(f"queue pair {self._qp.qpn:#x}: its {kind} queue of {self._depth} is full{wanted}")


def _source(local: MemoryRegion | RegionSlice) -> tuple[MemoryRegion, int, int]:
    """Return region, offset and length of what a write reads; EINVAL if that is no memory of a region."""
    if isinstance(local, MemoryRegion):
        region, offset, length = local, 0, local.length
    elif isinstance(local, RegionSlice):
        region, offset, length = local.region, local.offset, local.length
        if offset < 0 or length < 0 or offset + length > region.length:
            raise InvalidArgumentError(f"local: bytes {offset} to {offset + length} of a region of {region.length}")
    else:
        raise InvalidArgumentError(f"local: {local!r} is not a memory region or a slice of one")
    if length > MAX_MESSAGE:
        raise InvalidArgumentError(f"local: {length} bytes; a message may have at most 2 GiB - 1")
    return region, offset, length


def _check(request: SendWr) -> None:
    """Raise EINVAL if a number is out of range."""
    _check_wr_id(request.wr_id)
    if request.immediate is not None and not 0 <= request.immediate < 1 << 32:
        raise InvalidArgumentError(f"immediate: {request.immediate} is not in 0..{(1 << 32) - 1}")
    if not 0 <= request.remote_addr < 1 << 64 or not 0 <= request.r_key < 1 << 32:
        raise InvalidArgumentError(
            f"remote_addr, r_key: {request.remote_addr:#x}, {request.r_key:#x} are not 64 and 32 bits"
        )


def _check_wr_id(wr_id: int) -> None:
    if not -_SIGN <= wr_id <= _WORD:
        raise InvalidArgumentError(f"{wr_id:#x} has more than 64 bits")


def _fill(ring: list[MemoryRegion | None], begin: int, count: int, region: MemoryRegion) -> None:
    """Set `count` places of a ring; it has as many."""
    before_end = min(count, len(ring) - begin)
    ring[begin : begin + before_end] = [region] * before_end
    ring[: count - before_end] = [region] * (count - before_end)


def _wrong_state(qp: QueuePair, kind: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"queue pair {qp.qpn:#x}: posting to the {kind} queue in {qp.state.name}")
