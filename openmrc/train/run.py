"""One collective under way at one rank: lanes that send, lanes that receive, and the folds between them."""

from __future__ import annotations

import collections
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from openmrc.collectives.choice import Algorithm, Collective
from openmrc.collectives.plan import NOTHING, Space
from openmrc.train.buffers import Blocks, Bytes, Copies
from openmrc.train.errors import MismatchError
from openmrc.train.frames import Frame, Kind, call_text
from openmrc.train.link import CHUNK, Link
from openmrc.train.program import Program, Receive, Send
from openmrc.train.reduction import NUMPY, DType, Fold, Op, divide, fold_of
from openmrc.train.registrations import Registrations
from openmrc.train.work import Work
from openmrc.verbs import SendWr

_TARGET = struct.Struct("<QI")
_PIECES = 4  # chunks of a block, if it is not too large or too small for that
_LEAST_CHUNK = 256 * 1024


def chunk_bytes(length: int) -> int:
    """Return how large the chunks of a block of `length` bytes are; both ends compute the same."""
    return min(max(-(-length // (_PIECES * 4096)) * 4096, _LEAST_CHUNK), CHUNK)


@dataclass(frozen=True)
class Call:
    """What the ranks must agree on."""

    collective: Collective
    algorithm: Algorithm
    op: Op
    dtype: DType
    count: int  # elements, as all ranks must give them
    root: int
    is_inline: bool  # data travels in frames

    def frame(self, sequence: int, count: int, length: int) -> Frame:
        """Return the header for a rank."""
        return Frame(
            Kind.COLLECTIVE,
            self.collective,
            self.op,
            self.dtype,
            self.algorithm,
            int(self.is_inline),
            0,
            length,
            self.root,
            sequence,
            count,
        )

    def fits(self, frame: Frame) -> bool:
        """Whether another rank's header says the same."""
        return (
            frame.collective == self.collective
            and frame.dtype == self.dtype
            and frame.op == self.op
            and frame.root == self.root
            and frame.algorithm == self.algorithm
            and frame.is_inline == self.is_inline
            and (frame.elements == self.count or self.collective == Collective.ALL_TO_ALL)
        )

    def describe(self) -> str:
        """Return it for people."""
        return call_text(self.collective, self.op, self.dtype, self.count, self.root)


@dataclass
class SendLane:
    """What goes to one rank, in order."""

    link: Link
    sends: tuple[Send, ...]
    lengths: list[int]  # bytes of each
    index: int = 0
    chunk: int = 0
    targets: collections.deque[tuple[int, int]] | None = None  # where stored blocks go, once the rank has said so
    target: tuple[int, int] = (0, 0)  # of the block that is being sent
    last: int = field(init=False)  # index of the last send that is not empty
    is_acknowledged: bool = field(init=False)

    def __post_init__(self) -> None:
        self.last = max((index for index, length in enumerate(self.lengths) if length), default=NOTHING)
        self.is_acknowledged = self.last == NOTHING

    @property
    def is_done(self) -> bool:
        """Whether everything was posted."""
        return self.index == len(self.sends)


@dataclass
class ReceiveLane:
    """What comes from one rank, in order."""

    link: Link
    receives: tuple[Receive, ...]
    lengths: list[int]
    index: int = 0
    chunk: int = 0
    waiting: collections.deque[tuple[Receive, int, Bytes]] = field(default_factory=collections.deque)

    @property
    def is_done(self) -> bool:
        """Whether everything has come."""
        return self.index == len(self.receives)

    def skip_empty(self) -> None:
        """Step over blocks of no bytes: nobody sends them."""
        while self.index < len(self.receives) and not self.lengths[self.index]:
            self.index += 1


class Run:
    """A collective under way."""

    def __init__(
        self,
        call: Call,
        sequence: int,
        program: Program,
        spaces: Mapping[int, Blocks],
        rank: int,
        ranks: int,
        memory: Registrations,
        work: Work,
        at_end: Callable[[], None] | None = None,
        copies: Copies = (),
    ) -> None:
        """`spaces` are the blocks in INPUT, OUTPUT and SCRATCH; `at_end` is called when all is there.

        `copies` (to, from) are made here while data travels.
        """
        self.call = call
        self.sequence = sequence
        self.program = program
        self.spaces = spaces
        self.rank = rank
        self.ranks = ranks
        self.memory = memory
        self.work = work
        self.begun_at = 0.0
        self.queued_at = time.monotonic()
        self.first_heard: dict[int, float] = {}  # by rank, monotonic seconds
        self.last_heard: dict[int, float] = {}
        self.total_bytes = sum(
            spaces[receive.space].length(receive.block) for each in program.receives.values() for receive in each
        )
        self._at_end = at_end
        self._copies = collections.deque(copies)
        self._fold: Fold = fold_of(call.op, call.dtype)
        self._element = NUMPY[call.dtype]
        self._arrived = [0] * program.arrivals  # chunks of each arrival that are in place
        self._sending: dict[int, SendLane] = {}
        self._receiving: dict[int, ReceiveLane] = {}

    def begin(self, links: Mapping[int, Link]) -> None:
        """Announce the collective and send what can be sent."""
        self.begun_at = time.monotonic()
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
        """Send what has become ready."""
        for lane in self._sending.values():
            if not lane.is_done:
                if self.call.is_inline:
                    self._send_frames(lane)
                else:
                    self._send_chunks(lane)
        self._copy_piece()

    def on_frame(self, link: Link, frame: Frame, data: memoryview) -> None:
        """Take another rank's header, or the data of an inline collective."""
        self.check_fits(link, frame)
        self.first_heard.setdefault(link.rank, time.monotonic())
        if not self.call.is_inline:
            self._take_targets(link, frame, data)
            return
        lane = self._receiving[link.rank]
        receive = lane.receives[lane.index]
        self._check_length(link, len(data), lane.lengths[lane.index])
        lane.index += 1
        arrived = np.frombuffer(data, np.uint8)
        if receive.reduces and not self._is_turn(receive, 0):
            lane.waiting.append((receive, 0, arrived.copy()))
            return
        self._place(receive, 0, arrived)
        self._fold_waiting()

    def check_fits(self, link: Link, frame: Frame) -> None:
        """Raise a MismatchError if another rank's header says something else than our call."""
        if not self.call.fits(frame):
            raise MismatchError(
                f"collective {self.sequence}: rank {link.rank} called {frame.describe()}, "
                f"rank {self.rank} called {self.call.describe()}"
            )

    def on_chunk(self, link: Link) -> bool:
        """Take a chunk; False: it belongs to a later collective."""
        lane = self._receiving.get(link.rank)
        if lane is None or lane.is_done:
            return False
        self.last_heard[link.rank] = time.monotonic()
        receive, chunk = lane.receives[lane.index], lane.chunk
        length = lane.lengths[lane.index]
        lane.chunk += 1
        if lane.chunk * chunk_bytes(length) >= length:
            lane.index, lane.chunk = lane.index + 1, 0
            lane.skip_empty()
        if receive.reduces:
            lane.waiting.append((receive, chunk, link.next_staged()))
            self._fold_waiting()
        else:
            self._arrived[receive.arrival] += 1
            link.release_chunk()
        return True

    def on_acknowledged(self, link: Link) -> None:
        """Note that all our data has reached a rank."""
        self._sending[link.rank].is_acknowledged = True

    @property
    def is_done(self) -> bool:
        """Whether everything has come, everything is folded and nothing of ours is read any more."""
        return all(lane.is_done and not lane.waiting for lane in self._receiving.values()) and all(
            lane.is_done and (self.call.is_inline or lane.is_acknowledged) for lane in self._sending.values()
        )

    def finish(self) -> None:
        """Put the result where it belongs and give back the memory."""
        while self._copies:
            self._copy_piece()
        if self._at_end is not None:
            self._at_end()
        self.release()

    def release(self) -> None:
        """Give back the memory."""
        for blocks in self.spaces.values():
            blocks.release()

    def waiting_for(self) -> list[int]:
        """Return the ranks without which this cannot go on."""
        late = {rank for rank, lane in self._receiving.items() if not lane.is_done}
        late |= {rank for rank, lane in self._sending.items() if lane.is_done and not lane.is_acknowledged}
        late |= {rank for rank, lane in self._sending.items() if not lane.is_done and self._is_blocked(lane)}
        return sorted(late)

    def progress_text(self) -> str:
        """Return how far it is, for errors."""
        arrived = sum(
            sum(lane.lengths[: lane.index])
            + (lane.chunk * chunk_bytes(lane.lengths[lane.index]) if not lane.is_done else 0)
            for lane in self._receiving.values()
        )
        return f"{arrived:,} of {self.total_bytes:,} bytes arrived"

    def _copy_piece(self) -> None:
        if self._copies:
            place, data = self._copies.popleft()
            place[:] = data

    # Sending

    def _announce(self, link: Link) -> None:
        receives = self.program.receives.get(link.rank, ())
        stored = [receive for receive in receives if not receive.reduces]
        table = b"".join(
            _TARGET.pack(*self.spaces[receive.space].target(self.memory, receive.block)) for receive in stored
        )
        count = self.call.count
        if self.call.collective == Collective.ALL_TO_ALL:  # each pair has a number of its own: what we expect
            count = sum(self._receiving[link.rank].lengths) // self._element.itemsize
        link.send(self.call.frame(self.sequence, count, len(table)), table)

    def _take_targets(self, link: Link, frame: Frame, data: memoryview) -> None:
        lane = self._sending.get(link.rank)
        expected = sum(send.is_stored for send in lane.sends) if lane is not None else 0
        self._check_length(link, len(data), expected * _TARGET.size)
        if self.call.collective == Collective.ALL_TO_ALL and lane is not None:
            self._check_share(link, frame.elements, sum(lane.lengths) // self._element.itemsize)
        if lane is not None:
            lane.targets = collections.deque(_TARGET.iter_unpack(data))

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
        while not lane.is_done and self._is_ready(lane):
            if lane.chunk == 0 and lane.sends[lane.index].is_stored and lane.targets is not None:
                lane.target = lane.targets.popleft()
            if lane.lengths[lane.index]:
                requests.append(self._next_chunk(lane))
            else:
                lane.index += 1
        if requests:
            lane.link.qp.post_send(requests)

    def _next_chunk(self, lane: SendLane) -> SendWr:
        send, length = lane.sends[lane.index], lane.lengths[lane.index]
        size = chunk_bytes(length)
        begin, end = lane.chunk * size, min((lane.chunk + 1) * size, length)
        is_last = lane.index == lane.last and end == length
        part = self.spaces[send.space].part(self.memory, send.block, begin, end)
        lane.chunk += 1
        if end == length:
            lane.index, lane.chunk = lane.index + 1, 0
        if not send.is_stored:
            return lane.link.staged_chunk(part, last=is_last)
        address, key = lane.target
        return lane.link.chunk(part, address + begin, key, last=is_last)

    def _is_ready(self, lane: SendLane) -> bool:
        send = lane.sends[lane.index]
        if not lane.lengths[lane.index]:
            return not send.is_stored or lane.targets is not None
        if send.after != NOTHING and self._arrived[send.after] <= lane.chunk:
            return False
        return lane.link.can_send_chunk() and (not send.is_stored or lane.targets is not None)

    def _is_blocked(self, lane: SendLane) -> bool:
        send = lane.sends[lane.index]
        return (send.is_stored and lane.targets is None and not self.call.is_inline) or not lane.link.can_send_chunk()

    # Receiving

    def _is_turn(self, receive: Receive, chunk: int) -> bool:
        return receive.before == NOTHING or self._arrived[receive.before] > chunk

    def _fold_waiting(self) -> None:
        """Fold all chunks whose turn it is; folding one may make it another's turn."""
        moved = True
        while moved:
            moved = False
            for lane in self._receiving.values():
                while lane.waiting and self._is_turn(*lane.waiting[0][:2]):
                    receive, chunk, arrived = lane.waiting.popleft()
                    self._place(receive, chunk, arrived)
                    if not self.call.is_inline:
                        lane.link.release_chunk()
                    moved = True

    def _place(self, receive: Receive, chunk: int, arrived: Bytes) -> None:
        """Store or fold bytes that lie elsewhere."""
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
            out[:] = arrived
        self._arrived[receive.arrival] += 1

    def _check_share(self, link: Link, expected: int, given: int) -> None:
        if expected != given:
            raise MismatchError(
                f"collective {self.sequence}, all_to_all: rank {self.rank} sends {given:,} elements "
                f"to rank {link.rank}, which expects {expected:,}"
            )

    def _check_length(self, link: Link, length: int, expected: int) -> None:
        if length != expected:
            raise MismatchError(
                f"collective {self.sequence}, {self.call.describe()}: rank {link.rank} sends {length} bytes, "
                f"rank {self.rank} expects {expected}"
            )
