"""The execution of one collective at one rank: a send lane and a receive lane per peer, and the reductions."""

import collections
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from openmrc.collectives.choice import Collective
from openmrc.collectives.plan import NOTHING, Space
from openmrc.train.buffers import LEAST, Blocks, Bytes, Copies, Memory, supply
from openmrc.train.errors import CollectiveMismatchError
from openmrc.train.execution.program import RankProgram, Receive, Send
from openmrc.train.execution.queued import Call, QueuedRun, split_text
from openmrc.train.execution.work import Work
from openmrc.train.links.frames import INLINE, TARGET, ControlFrame
from openmrc.train.links.mailbox import CHUNK, RankLink
from openmrc.train.reduction import NUMPY, Fold, Op, divide, fold_of
from openmrc.verbs import SendWr

_PIECES = 4  # chunks of a block, within the limits of the chunk size
_MIN_CHUNK = 256 * 1024  # bytes
EAGER = _MIN_CHUNK  # bytes of a stored block up to which it goes through the stage: it need not wait for its address
_MAX_PIECE = 1 << 30  # bytes of one write; a message may have up to 2 GiB - 1


def chunk_bytes(length: int) -> int:
    """Return the chunk size (bytes) of a block of `length` bytes; both ends compute the same value."""
    return min(max(-(-length // (_PIECES * 4096)) * 4096, _MIN_CHUNK), CHUNK)


def is_direct(is_stored: bool, length: int) -> bool:
    """Whether a block is written to its final address, which the receiver announces; both ends compute the same."""
    return is_stored and length > EAGER


@dataclass
class SendLane:
    """The blocks sent to one rank, in order."""

    link: RankLink
    sends: tuple[Send, ...]
    lengths: list[int]  # bytes of each
    index: int = 0
    chunk: int = 0
    targets: collections.deque[tuple[int, int]] | None = None  # (address, r_key) of stored blocks; None: not announced
    target: tuple[int, int] = (0, 0)  # of the current block
    last: int = field(init=False)  # index of the last send that is not empty
    is_acknowledged: bool = field(init=False)

    def __post_init__(self) -> None:
        self.last = max((index for index, length in enumerate(self.lengths) if length), default=NOTHING)
        self.is_acknowledged = self.last == NOTHING

    def is_direct(self, index: int) -> bool:
        """Whether a block is written to its final address."""
        return is_direct(self.sends[index].is_stored, self.lengths[index])

    @property
    def is_done(self) -> bool:
        return self.index == len(self.sends)


@dataclass
class ReceiveLane:
    """The blocks received from one rank, in order."""

    link: RankLink
    receives: tuple[Receive, ...]
    lengths: list[int]
    index: int = 0
    chunk: int = 0
    waiting: collections.deque[tuple[Receive, int, Bytes]] = field(default_factory=collections.deque)

    @property
    def is_done(self) -> bool:
        return self.index == len(self.receives)

    def skip_empty(self) -> None:
        """Skip empty blocks, which are not sent."""
        while self.index < len(self.receives) and not self.lengths[self.index]:
            self.index += 1


@dataclass(frozen=True)
class CollectiveData:
    """What a collective does with the arrays of one rank."""

    program: RankProgram
    spaces: Mapping[int, Blocks]  # the blocks in INPUT, OUTPUT and SCRATCH
    at_end: Callable[[], None] | None = None  # called when all data has arrived
    copies: Copies = ()  # local copies, made while data is in flight
    first: Iterable[tuple[Bytes, Bytes]] = ()  # local copies, worked out and made before anything is sent

    def bytes_to_receive(self) -> int:
        """Return the length of all blocks that other ranks send."""
        received = (receive for each in self.program.receives.values() for receive in each)
        return sum(self.spaces[receive.space].length(receive.block) for receive in received)


class CollectiveRun(QueuedRun):
    def __init__(self, call: Call, data: CollectiveData, rank: int, ranks: int, memory: Memory, work: Work) -> None:
        """Prepare a collective; `begin` starts it."""
        super().__init__(call, rank, work, data.bytes_to_receive())
        self.program, self.spaces = data.program, data.spaces
        self.ranks = ranks
        self.memory = memory
        self._at_end = data.at_end
        self._copies = collections.deque(data.copies)
        self._first = data.first
        self._fold: Fold = fold_of(call.op, call.dtype)
        self._element = NUMPY[call.dtype]
        self._arrived = [0] * data.program.arrivals  # chunks of each arrival that were stored or reduced
        self._sending: dict[int, SendLane] = {}
        self._receiving: dict[int, ReceiveLane] = {}

    def begin(self, links: Mapping[int, RankLink]) -> None:
        self.begun_at = time.monotonic()
        for place, data in self._first:
            place[:] = data
        for target, sends in self.program.sends.items():
            lengths = [self.spaces[send.space].length(send.block) for send in sends]
            self._sending[target] = SendLane(links[target], sends, lengths)
        for source, receives in self.program.receives.items():
            lengths = [self.spaces[receive.space].length(receive.block) for receive in receives]
            lane = self._receiving[source] = ReceiveLane(links[source], receives, lengths)
            if not self.call.is_inline:
                lane.skip_empty()
        if not self.call.is_inline:
            for peer in self.program.peers:
                self._announce(links[peer])
        self.send()

    def send(self) -> None:
        for lane in self._sending.values():
            if not lane.is_done:
                if self.call.is_inline:
                    self._send_frames(lane)
                else:
                    self._send_chunks(lane)
        self._copy_piece()
        while self._copies and all(lane.is_done for lane in self._sending.values()):
            self._copy_piece()

    def on_frame(self, link: RankLink, frame: ControlFrame, data: memoryview) -> None:
        """Process another rank's header, or the data of an inline collective."""
        self.check_fits(link, frame)
        self.first_heard.setdefault(link.rank, time.monotonic())
        if not self.call.is_inline:
            self._set_targets(link, frame, data)
            return
        lane = self._receiving.get(link.rank)
        if lane is None or lane.is_done:
            raise CollectiveMismatchError(
                f"collective {self.sequence}: rank {link.rank} sent its data twice or in vain"
            )
        receive = lane.receives[lane.index]
        self._check_length(link, len(data), lane.lengths[lane.index])
        lane.index += 1
        arrived = np.frombuffer(data, np.uint8)
        if receive.reduces and not self._can_fold(receive, 0):
            lane.waiting.append((receive, 0, arrived.copy()))
            return
        self._store_or_fold(receive, 0, arrived)
        self._fold_waiting()

    def on_chunk(self, link: RankLink) -> bool:
        """Process the arrival of a chunk; return False if none is expected."""
        lane = self._receiving.get(link.rank)
        if lane is None or lane.is_done or self.call.is_inline:
            return False
        self.last_heard[link.rank] = time.monotonic()
        receive, chunk = lane.receives[lane.index], lane.chunk
        length = lane.lengths[lane.index]
        lane.chunk += 1
        if receive.is_final or lane.chunk * chunk_bytes(length) >= length:
            lane.index, lane.chunk = lane.index + 1, 0
            lane.skip_empty()
        if not is_direct(not receive.reduces, length):
            lane.waiting.append((receive, chunk, link.next_staged()))
            self._fold_waiting()
        else:
            self._arrived[receive.arrival] += 1
            link.release_chunk(is_last=lane.is_done)
        return True

    def parts_sent(self) -> Mapping[int, int]:
        """Return how many elements an all-to-all sends to each rank."""
        if self.call.collective != Collective.ALL_TO_ALL:
            return {}
        return {rank: sum(lane.lengths) // self._element.itemsize for rank, lane in self._sending.items()}

    def on_acknowledged(self, link: RankLink) -> None:
        self._sending[link.rank].is_acknowledged = True

    @property
    def is_done(self) -> bool:
        """Whether all data has arrived and is reduced, and all data sent is acknowledged, or copied if inline."""
        return all(lane.is_done and not lane.waiting for lane in self._receiving.values()) and all(
            lane.is_done and self._is_accepted(lane) for lane in self._sending.values()
        )

    def _is_accepted(self, lane: SendLane) -> bool:
        """Whether the memory of posted data is free again: copied into frames, or acknowledged."""
        return not lane.link.is_congested if self.call.is_inline else lane.is_acknowledged

    def finish(self) -> None:
        """Make the remaining copies, deliver the result and release the memory."""
        while self._copies:
            self._copy_piece()
        if self._at_end is not None:
            self._at_end()
        self.release()

    def release(self) -> None:
        for blocks in self.spaces.values():
            blocks.release()

    def waiting_for(self) -> list[int]:
        late = {rank for rank, lane in self._receiving.items() if not lane.is_done}
        late |= {rank for rank, lane in self._sending.items() if lane.is_done and not self._is_accepted(lane)}
        late |= {rank for rank, lane in self._sending.items() if not lane.is_done and self._is_blocked(lane)}
        return sorted(late)

    def progress_text(self) -> str:
        arrived = sum(
            sum(lane.lengths[: lane.index])
            + (lane.chunk * chunk_bytes(lane.lengths[lane.index]) if not lane.is_done else 0)
            for lane in self._receiving.values()
        )
        return f"{arrived:,} of {self.total_bytes:,} bytes arrived"

    def _copy_piece(self) -> None:
        if self._copies:
            place, data = self._copies.popleft()
            if len(place) >= LEAST:  # finding its address takes longer than a small copy
                supply(place.ctypes.data, len(place))
            place[:] = data

    # Sending

    def _announce(self, link: RankLink) -> None:
        receives = self.program.receives.get(link.rank, ())
        places = [(self.spaces[receive.space], receive) for receive in receives if not receive.reduces]
        table: bytes | memoryview = b"".join(
            TARGET.pack(*blocks.target(self.memory, receive.block))
            for blocks, receive in places
            if is_direct(True, blocks.length(receive.block))
        )
        count = self.call.count
        if self.call.collective == Collective.ALL_TO_ALL:  # the count differs per pair: announce the expected one
            count = sum(self._receiving[link.rank].lengths) // self._element.itemsize
            embedded = self._embedded(self._sending[link.rank])
            table = bytes(table) + bytes(embedded) if table else embedded
        link.send(self.call.frame(self.sequence, count, len(table)), table)

    def _embedded(self, lane: SendLane) -> bytes | memoryview:
        """Return the only block of a lane, which is then sent, if it fits into the frame that announces the call."""
        (send,), (length,) = lane.sends, lane.lengths
        if not 0 < length <= INLINE:
            return b""
        lane.index, lane.is_acknowledged = 1, True
        return self.spaces[send.space].whole(send.block).data

    def _set_targets(self, link: RankLink, frame: ControlFrame, data: memoryview) -> None:
        lane = self._sending.get(link.rank)
        if self.call.collective == Collective.ALL_TO_ALL and lane is not None:
            given = sum(lane.lengths) // self._element.itemsize
            if frame.elements != given:
                raise CollectiveMismatchError(split_text(self.sequence, self.rank, given, link.rank, frame.elements))
        direct = () if lane is None else filter(lane.is_direct, range(len(lane.sends)))
        size = sum(1 for _ in direct) * TARGET.size
        if self.call.collective == Collective.ALL_TO_ALL:
            self._take_embedded(link, data[size:])
            data = data[:size]
        self._check_length(link, len(data), size)
        if lane is not None:
            lane.targets = collections.deque(TARGET.iter_unpack(data))

    def _take_embedded(self, link: RankLink, data: memoryview) -> None:
        """Store a block that came in the frame of the call."""
        if not data:  # a block of a wrong size that comes otherwise is found by its sender, which is told what fits
            return
        lane = self._receiving[link.rank]
        (receive,), (length,) = lane.receives, lane.lengths
        if len(data) != length:
            size = self._element.itemsize
            raise CollectiveMismatchError(
                split_text(self.sequence, link.rank, len(data) // size, self.rank, length // size)
            )
        lane.index = 1
        self.last_heard[link.rank] = time.monotonic()
        self._store_or_fold(receive, 0, np.frombuffer(data, np.uint8))

    def _send_frames(self, lane: SendLane) -> None:
        while not lane.is_done:
            send, length = lane.sends[lane.index], lane.lengths[lane.index]
            if send.after != NOTHING and not self._arrived[send.after]:
                return
            data = self.spaces[send.space].view(send.block, 0, length).data
            lane.link.send(self.call.frame(self.sequence, self.call.count, length), data)
            lane.index += 1

    def _send_chunks(self, lane: SendLane) -> None:
        requests: list[SendWr] = []
        while not lane.is_done and self._is_ready(lane, len(requests)):
            if lane.chunk == 0 and lane.is_direct(lane.index) and lane.targets is not None:
                lane.target = lane.targets.popleft()
            if lane.lengths[lane.index]:
                requests.append(self._next_chunk(lane, len(requests)))
            else:
                lane.index += 1
        if requests:
            lane.link.qp.post_send(requests)

    def _next_chunk(self, lane: SendLane, prepared: int) -> SendWr:
        send, length = lane.sends[lane.index], lane.lengths[lane.index]
        begin, end = self._extent(lane)
        is_last = lane.index == lane.last and end == length
        part = self.spaces[send.space].part(self.memory, send.block, begin, end)
        lane.chunk += 1
        if end == length:
            lane.index, lane.chunk = lane.index + 1, 0
        if not is_direct(send.is_stored, length):
            return lane.link.staged_chunk(part, last=is_last)
        address, key = lane.target
        if send.is_final and end < length:
            return lane.link.piece(part, address + begin, key, prepared)
        return lane.link.chunk(part, address + begin, key, last=is_last)

    def _extent(self, lane: SendLane) -> tuple[int, int]:
        """Return (first byte, byte after the last) of the next chunk; a block that nothing waits for is one chunk."""
        send, length = lane.sends[lane.index], lane.lengths[lane.index]
        size = _MAX_PIECE if send.is_final and send.after == NOTHING else chunk_bytes(length)
        return lane.chunk * size, min((lane.chunk + 1) * size, length)

    def _is_ready(self, lane: SendLane, prepared: int) -> bool:
        send = lane.sends[lane.index]
        if not lane.lengths[lane.index]:
            return True
        if send.after != NOTHING and self._arrived[send.after] <= lane.chunk:
            return False
        if lane.is_direct(lane.index) and lane.targets is None:
            return False
        return self._has_room(lane, prepared)

    def _has_room(self, lane: SendLane, prepared: int = 0) -> bool:
        """Whether the send queue and, for a chunk with a signal, the peer have room for one after `prepared` writes."""
        if lane.sends[lane.index].is_final and self._extent(lane)[1] < lane.lengths[lane.index]:
            return lane.link.can_write(prepared)
        return lane.link.can_send_chunk()

    def _is_blocked(self, lane: SendLane) -> bool:
        waits_for_target = lane.is_direct(lane.index) and lane.targets is None and not self.call.is_inline
        return waits_for_target or not self._has_room(lane)

    # Receiving

    def _can_fold(self, receive: Receive, chunk: int) -> bool:
        return receive.before == NOTHING or self._arrived[receive.before] > chunk

    def _fold_waiting(self) -> None:
        """Reduce all waiting chunks whose predecessors are reduced, which may make further ones ready."""
        has_progressed = True
        while has_progressed:
            has_progressed = False
            for lane in self._receiving.values():
                while lane.waiting and self._can_fold(*lane.waiting[0][:2]):
                    receive, chunk, arrived = lane.waiting.popleft()
                    self._store_or_fold(receive, chunk, arrived)
                    if not self.call.is_inline:
                        lane.link.release_chunk(is_last=lane.is_done and not lane.waiting)
                    has_progressed = True

    def _store_or_fold(self, receive: Receive, chunk: int, arrived: Bytes) -> None:
        """Store or reduce a chunk that arrived in a frame or in the stage."""
        blocks = self.spaces[receive.space]
        length = blocks.length(receive.block)
        size = length if self.call.is_inline else chunk_bytes(length)
        begin, end = chunk * size, min((chunk + 1) * size, length)
        out = blocks.view(receive.block, begin, end)
        if receive.reduces:
            own = self.spaces[Space.INPUT] if receive.before == NOTHING else blocks
            kind = self._element
            mine, result = own.view(receive.block, begin, end).view(kind), out.view(kind)
            self._fold(mine, arrived[: end - begin].view(kind), result)
            if receive.completes and self.call.op == Op.AVG:
                divide(result, self.call.dtype, self.ranks)
        else:
            out[:] = arrived[: end - begin]
        self._arrived[receive.arrival] += 1

    def _check_length(self, link: RankLink, length: int, expected: int) -> None:
        if length != expected:
            raise CollectiveMismatchError(
                f"collective {self.sequence}, {self.call.describe()}: rank {link.rank} sends {length} bytes, "
                f"rank {self.rank} expects {expected}"
            )
