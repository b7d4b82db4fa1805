"""A link: the queue pair to one other rank, with its mailbox and credit-based flow control.

All messages are writes; a write with an immediate is also a signal. The two upper bits of an immediate give the kind
of signal, the other bits return credits. Completions have the order of posting, so frame n is in slot n (modulo
FRAMES) of the mailbox and staged chunk n in slot n (modulo CHUNKS) of the stage; signals carry no address. The chunks
of a collective follow the frame that announces it.

MRC has no receiver-not-ready: a write with an immediate that finds no posted receive breaks the connection. A rank
therefore has at most FRAMES frames and CHUNKS chunks in flight that the peer has not consumed. The peer copies every
frame out of its slot, so that sends and receives never stand behind collectives; what it keeps for collectives that it
has not begun is limited by credits of their own.
"""

import collections
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from openmrc.train.links.frames import DATA, HEADER, SLOT, ControlFrame, FrameKind
from openmrc.verbs import EvStatus, ProtectionDomain, QpState, QueuePair, RegionSlice, SendWr

FRAMES = 32  # slots of a mailbox
CHUNKS = 2  # slots of a stage
CALLS = 256  # frames of collectives that the peer has not begun, which it keeps; further ones wait here
CHUNK = 2 << 20  # maximum bytes of a chunk; large, since each costs interpreter time at both ends
RECEIVES = 256  # posted receives: for FRAMES + CHUNKS, and for signals that only return credits
_REPOST = 64  # receives reposted in one call
_FRAME_CREDITS, _CALL_CREDITS = FRAMES // 4, CALLS // 4  # before a signal only for them
# Credits in an immediate, the lowest bits of counters: calls from bit 0, chunks from bit 16, frames from bit 22.
_CHUNK_SHIFT, _FRAME_SHIFT = 16, 22
_CALL_MASK, _CHUNK_MASK, _FRAME_MASK = (1 << 16) - 1, (1 << 6) - 1, (1 << 8) - 1
_DEPARTED_SECONDS = 1.0  # after its BYE; a rank that still waits for it then gives up
_MAX_BACKLOG = 1024  # frames that wait for credits before further calls wait too; bounds the memory of a slow peer
_MAX_BACKLOG_BYTES = 8 << 20  # of their data
PIECE_WR = 1 << 32  # `wr_id` of pieces; that of other writes is a rank
SENDS = 256  # entries of the send queue
_MAX_UNSIGNALED = SENDS - FRAMES - CHUNKS - 16  # writes without immediate in flight


class ImmediateKind(IntEnum):
    FRAME = 0
    CHUNK = 1
    CREDIT = 2
    ABORT = 3  # the group failed; the abort slot gives the reason. Needs no credit, sent once


_TRANSFERS = frozenset({FrameKind.WANTED, FrameKind.OFFERED, FrameKind.DELIVERED, FrameKind.TAKEN})
Backlog = collections.deque[tuple[ControlFrame, bytes]]
_SIGNALS = tuple(ImmediateKind)  # cached: creating a member from its value dominates the time of a signal


class Stage:
    """Memory of a link: mailbox, staging buffer and abort slot, which the peer writes, then the outbox."""

    ABORT_OFFSET = FRAMES * SLOT + CHUNKS * CHUNK  # start of the slot for an abort
    SIZE = ABORT_OFFSET + SLOT

    def __init__(self, pd: ProtectionDomain) -> None:
        # np.empty leaves pages untouched: those that are never used take no memory.
        self.bytes: NDArray[np.uint8] = np.empty(self.SIZE + (FRAMES + 1) * SLOT, np.uint8)
        self.region = pd.reg_mr(self.bytes)
        view = self.bytes.data
        self.mailbox = self.mailbox_of(view)
        self.chunks = self.chunks_of(self.bytes)
        self.outbox = [view[self.SIZE + n * SLOT : self.SIZE + (n + 1) * SLOT] for n in range(FRAMES + 1)]
        self.abort_slot = self.abort_slot_of(view)

    @staticmethod
    def mailbox_of(memory: memoryview) -> list[memoryview]:
        return [memory[n * SLOT : (n + 1) * SLOT] for n in range(FRAMES)]

    @classmethod
    def chunks_of(cls, memory: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        chunks = memory[FRAMES * SLOT : cls.ABORT_OFFSET]
        return [chunks[n * CHUNK : (n + 1) * CHUNK] for n in range(CHUNKS)]

    @classmethod
    def abort_slot_of(cls, memory: memoryview) -> memoryview:
        return memory[cls.ABORT_OFFSET : cls.SIZE]


class LinkQueuePair(Protocol):
    """What moves the writes of a link: a `QueuePair`, or one through shared memory with the same methods."""

    @property
    def qpn(self) -> int: ...

    @property
    def state(self) -> QpState: ...

    def post_send(self, requests: SendWr | Sequence[SendWr]) -> None: ...

    def post_write(self, local: Any, remote_addr: int, r_key: int, *, signaled: bool) -> None: ...

    def post_recv(self, requests: int) -> None: ...

    def outstanding(self) -> int: ...

    def describe(self) -> str: ...

    def ev_states(self) -> list[EvStatus]: ...

    def destroy(self) -> None: ...


class RankLink:
    def __init__(self, rank: int, qp: QueuePair, stage: Stage) -> None:
        """Create the link to `rank`; `connect` makes it usable."""
        self.rank = rank
        self.network: QueuePair | None = qp  # None: through shared memory
        self.qp: LinkQueuePair = qp
        self.stage: Any = stage  # a Stage, or a LocalStage
        self.bye_at = 0.0  # monotonic s when the peer announced that it leaves; 0: not yet
        self.reported_state = ""  # the peer's last reported progress
        self._address = self._key = 0
        self.announced = 0  # sequence of the collective that the peer announced last, to which its chunks belong
        self._calls: Backlog = collections.deque()  # frames of collectives, and of the end of the group, in order
        self._calls_bytes = 0
        self._transfers: Backlog = collections.deque()  # frames of sends and receives, in order
        self._frames_sent = self._frames_free = 0  # counters that only grow; equal: the peer has no free slot
        self._chunks_sent = self._chunks_free = 0
        self._calls_sent = self._calls_free = 0
        self._staged_sent = 0
        self.frames_received = self.staged_received = 0
        self._frames_consumed = self._chunks_consumed = self._calls_begun = 0
        self._frames_returned = self._chunks_returned = self._calls_returned = 0
        self._chunk_credits = 1  # before a signal only for them
        self._receives_used = 0

    def connect(self, address: int, key: int) -> None:
        """Record the address of the peer's stage."""
        self._address, self._key = address, key
        self._frames_free, self._chunks_free, self._calls_free = FRAMES, CHUNKS, CALLS

    def use_shared_memory(self, qp: LinkQueuePair, stage: Any, address: int) -> None:
        """Replace the queue pair of the network, before the first message; `address` is that of the peer's stage."""
        self.free()
        self.qp, self.network, self.stage, self._address, self._key = qp, None, stage, address, 0

    @property
    def is_local(self) -> bool:
        """Whether the peer is on this host, and reached through shared memory."""
        return self.network is None

    def free(self) -> None:
        """Destroy the queue pair, the registration of its memory, and the memory: references to the link may stay."""
        self.qp.destroy()
        self.stage.region.dereg()
        self.stage = None

    # Sending frames

    def send(self, frame: ControlFrame, data: bytes | memoryview = b"") -> None:
        """Send a frame, or queue it until the peer has room; `data` may be reused immediately."""
        if len(data) > DATA:
            raise ValueError(f"{len(data)} bytes in a frame, the limit is {DATA}")
        if frame.kind in _TRANSFERS:
            if self.can_transfer:
                self._post_frame(frame, data)
            else:
                self._transfers.append((frame, bytes(data)))
        elif self.can_send and self._is_open(frame):
            self._post_frame(frame, data)
        else:
            self._calls.append((frame, bytes(data)))
            self._calls_bytes += len(data)

    def send_backlog(self) -> None:
        """Send queued frames while the peer has room."""
        while self._transfers and self._has_slot():
            self._post_frame(*self._transfers.popleft())
        while self._calls and self._has_slot() and self._is_open(self._calls[0][0]):
            frame, data = self._calls.popleft()
            self._calls_bytes -= len(data)
            self._post_frame(frame, data)

    def abort(self, frame: ControlFrame, data: bytes) -> None:
        """Report to the peer that the group failed; drops queued frames."""
        self._calls.clear()
        self._transfers.clear()
        self._calls_bytes = 0
        slot = self.stage.outbox[FRAMES]
        frame.pack_into(slot)
        slot[HEADER : HEADER + len(data)] = data
        part = RegionSlice(self.stage.region, Stage.SIZE + FRAMES * SLOT, HEADER + len(data))
        self._post(part, self._address + Stage.ABORT_OFFSET, self._key, ImmediateKind.ABORT)

    def probe(self) -> None:
        """Post an empty write, so that the transport checks whether the peer is reachable."""
        if not self.qp.outstanding():
            self.qp.post_write(self.stage.region[0:0], self._address, self._key, signaled=False)

    def fill_planes(self, count: int) -> None:
        """Post so many writes of zeros into the abort slot, before the first message: enough of them use all planes."""
        self.stage.outbox[FRAMES][:] = bytes(SLOT)
        for _ in range(count):
            part = RegionSlice(self.stage.region, Stage.SIZE + FRAMES * SLOT, SLOT)
            self.qp.post_write(part, self._address + Stage.ABORT_OFFSET, self._key, signaled=False)

    def has_left(self, now: float) -> bool:
        """Whether the peer left long enough ago that all its data has arrived; `now` in monotonic seconds."""
        return 0 < self.bye_at < now - _DEPARTED_SECONDS

    @property
    def can_send(self) -> bool:
        """Whether a frame that announces no collective would be sent immediately."""
        return not self._calls and self._has_slot()

    @property
    def can_transfer(self) -> bool:
        """Whether a frame of a send or a receive would be sent immediately."""
        return not self._transfers and self._has_slot()

    @property
    def has_backlog(self) -> bool:
        """Whether frames are queued."""
        return bool(self._calls or self._transfers)

    @property
    def is_congested(self) -> bool:
        """Whether so many frames are queued that a collective must wait before it counts as accepted."""
        return len(self._calls) > _MAX_BACKLOG or self._calls_bytes > _MAX_BACKLOG_BYTES

    def _has_slot(self) -> bool:
        return self._frames_sent != self._frames_free and self._has_room()

    def _is_open(self, frame: ControlFrame) -> bool:
        return frame.kind != FrameKind.COLLECTIVE or self._calls_sent != self._calls_free

    def _post_frame(self, frame: ControlFrame, data: bytes | memoryview) -> None:
        index = self._frames_sent % FRAMES
        slot = self.stage.outbox[index]
        frame.pack_into(slot)
        length = HEADER + len(data)
        if data:
            slot[HEADER:length] = data
        self._frames_sent += 1
        self._calls_sent += frame.kind == FrameKind.COLLECTIVE
        part = RegionSlice(self.stage.region, Stage.SIZE + index * SLOT, length)
        self._post(part, self._address + index * SLOT, self._key, ImmediateKind.FRAME)

    # Sending chunks

    def can_send_chunk(self) -> bool:
        """Whether the peer has room for one more chunk, and has been sent the frame that announces it."""
        return not self._calls and self._chunks_sent != self._chunks_free and self._has_room()

    def chunk(self, part: RegionSlice, address: int, key: int, *, last: bool) -> SendWr:
        """Return the write of a chunk to its final address; only the `last` one generates a completion here."""
        self._chunks_sent += 1
        return self._write(part, address, key, ImmediateKind.CHUNK, signaled=last)

    def piece(self, part: RegionSlice, address: int, key: int, prepared: int) -> SendWr:
        """Return the write of a part of a block whose end alone is signalled, after `prepared` unposted writes.

        It completes here if the send queue is filling, so that the sender learns when to continue.
        """
        is_filling = self.qp.outstanding() + prepared >= _MAX_UNSIGNALED // 2
        return SendWr(local=part, remote_addr=address, r_key=key, signaled=is_filling, wr_id=PIECE_WR)

    def staged_chunk(self, part: RegionSlice, *, last: bool) -> SendWr:
        """Return the write of a chunk to the peer's staging buffer."""
        index = self._staged_sent % CHUNKS
        self._staged_sent += 1
        return self.chunk(part, self._address + FRAMES * SLOT + index * CHUNK, self._key, last=last)

    def can_write(self, prepared: int = 0) -> bool:
        """Whether the send queue has room for a write without immediate, after `prepared` unposted writes."""
        return self.qp.outstanding() + prepared < _MAX_UNSIGNALED

    # Receiving

    def on_signal(self, immediate: int) -> ImmediateKind:
        """Process the credits of an immediate; return its kind."""
        self._frames_free += ((immediate >> _FRAME_SHIFT) - (self._frames_free - FRAMES)) & _FRAME_MASK
        self._chunks_free += ((immediate >> _CHUNK_SHIFT) - (self._chunks_free - CHUNKS)) & _CHUNK_MASK
        self._calls_free += (immediate - (self._calls_free - CALLS)) & _CALL_MASK
        self._receives_used += 1
        if self._receives_used == _REPOST:
            self._receives_used = 0
            self.qp.post_recv(_REPOST)
        return _SIGNALS[immediate >> 30]

    def next_slot(self) -> memoryview:
        """Return the mailbox slot of the frame just signalled."""
        slot: memoryview = self.stage.mailbox[self.frames_received % FRAMES]
        self.frames_received += 1
        return slot

    def next_staged(self) -> NDArray[np.uint8]:
        chunk: NDArray[np.uint8] = self.stage.chunks[self.staged_received % CHUNKS]
        self.staged_received += 1
        return chunk

    def release_frame(self) -> None:
        """Count a consumed frame, whose credit the next message returns."""
        self._frames_consumed += 1

    def release_call(self) -> None:
        """Count the frame of a collective that was begun here, whose credit the next message returns."""
        self._calls_begun += 1

    def release_chunk(self, *, is_last: bool) -> None:
        """Count a consumed chunk, whose credit the next message returns, at once if its sender has more for this call.

        After the last one the peer has a credit left for its next call, which this rank will announce, too.
        """
        self._chunks_consumed += 1
        self._chunk_credits = CHUNKS if is_last else 1

    def return_credits(self) -> None:
        """Send a signal for credits alone if enough are due that no other message has returned."""
        frames = self._frames_consumed - self._frames_returned
        chunks = self._chunks_consumed - self._chunks_returned
        calls = self._calls_begun - self._calls_returned
        if frames >= _FRAME_CREDITS or chunks >= self._chunk_credits or calls >= _CALL_CREDITS:
            self._post(RegionSlice(self.stage.region, 0, 0), self._address, self._key, ImmediateKind.CREDIT)

    def _has_room(self) -> bool:
        return self.qp.outstanding() < SENDS - 16

    def _post(self, part: RegionSlice, address: int, key: int, signal: ImmediateKind) -> None:
        self.qp.post_send(self._write(part, address, key, signal, signaled=False))

    def _write(self, part: RegionSlice, address: int, key: int, signal: ImmediateKind, *, signaled: bool) -> SendWr:
        frames, chunks, calls = self._frames_consumed, self._chunks_consumed, self._calls_begun
        self._frames_returned, self._chunks_returned, self._calls_returned = frames, chunks, calls
        credit = (frames & _FRAME_MASK) << _FRAME_SHIFT | (chunks & _CHUNK_MASK) << _CHUNK_SHIFT | calls & _CALL_MASK
        return SendWr(
            local=part,
            remote_addr=address,
            r_key=key,
            immediate=signal << 30 | credit,
            signaled=signaled,
            wr_id=self.rank,
        )

    def retransmitted(self) -> int:
        return 0 if self.network is None else self.network.counters().retransmitted
