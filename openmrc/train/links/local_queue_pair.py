"""Queue pairs between processes of one host: shared memory for data, a Unix socket for the order of events.

Each direction has a segment that the sender writes: a `Stage`, protected by the link's credits, then a ring through
which writes to any other memory pass in slices, which the receiver copies to regions that it announced. Every write
becomes records of 24 bytes on the socket, in the order of posting; it completes when its data is in the segment, which
outlives its writer. The end of the socket says that the peer's process ended, after everything that it had sent.
"""

import collections
import ctypes
import mmap
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol

from openmrc.train.buffers import supply
from openmrc.train.errors import TrainError
from openmrc.train.links.forks import close_in_forks
from openmrc.train.links.mailbox import Stage
from openmrc.train.links.segment import Bytes, OutgoingSegment
from openmrc.verbs import QpState, SendWr, WcOpcode, WcStatus, WorkCompletion

SLOTS, SLICE = 8, 256 << 10  # of the ring: slices, bytes of one
_RING = -(-Stage.SIZE // mmap.PAGESIZE) * mmap.PAGESIZE  # offset of the ring, on pages of its own
SEGMENT = _RING + SLOTS * SLICE  # bytes
BASE = 1 << 62  # remote address of the peer's stage: no address of a process
FIRST_NUMBER = 1 << 24  # of queue pairs; those of the network are below
_RECORD = struct.Struct("<BBHIQII")  # kind, has an immediate, slots freed so far, immediate, address, key, length
_EVENT, _SLICE, _FREED = 0, 1, 2  # kinds: a write to the stage or without data; a slice in the ring; only freed slots
_MASK = (1 << 16) - 1
_READ = 1 << 16  # bytes of one read from a socket
_RETURN_AT = SLOTS // 4  # freed slots that are reported at once
_copy = ctypes.memmove  # without the interpreter's lock


class AnnouncedMemory(Protocol):
    """What a queue pair must know of this process's memory."""

    def covers(self, key: int, address: int, length: int) -> bool:
        """Whether the peer may write there."""


class LocalStage:
    """The stage of a link to a rank of this host: what the peer writes, and where this rank writes its frames."""

    def __init__(self, outgoing: Bytes, incoming: Bytes) -> None:
        view = incoming.data
        self.mailbox = Stage.mailbox_of(view)
        self.chunks = Stage.chunks_of(incoming)
        self.abort_slot = Stage.abort_slot_of(view)
        self.outbox = [*Stage.mailbox_of(outgoing.data), Stage.abort_slot_of(outgoing.data)]
        self.region = _InPlace()


class _InPlace:
    """The region of frames that already are where the peer reads them."""

    addr, length, r_key = 0, 0, 0

    def __getitem__(self, part: slice) -> Any:
        return self

    def dereg(self) -> None:
        """Do nothing."""


class LocalQueuePair:
    """The queue pair to one rank of this host, with those methods of `QueuePair` that a link uses."""

    def __init__(
        self,
        rank: int,
        connection: socket.socket,
        outgoing: OutgoingSegment,
        incoming: Bytes,
        memory: AnnouncedMemory,
        on_completion: Callable[[WorkCompletion], None],
    ) -> None:
        """The queue pair owns `connection`, a connected stream socket, from now on; the peer has both segments."""
        self.rank = rank
        self.qpn = FIRST_NUMBER + rank
        self.state = QpState.RTS
        self.stage: Any = LocalStage(outgoing.bytes, incoming)  # None once destroyed
        self._socket = connection
        self._socket.setblocking(False)
        close_in_forks(connection)
        outgoing.close()
        self._segments: tuple[Bytes, Bytes] | None = outgoing.bytes, incoming
        self._to, self._from = int(outgoing.bytes.ctypes.data), int(incoming.ctypes.data)
        self._memory = memory
        self._complete = on_completion
        self._lock = threading.Lock()  # users' threads post while the driver receives
        self._posted: collections.deque[SendWr] = collections.deque()  # the first may be partly in the ring
        self._moved = 0  # bytes of the first one in the ring
        self._unsent = bytearray()
        self._read = b""  # the beginning of a record
        self._slices_sent = self._slices_free = 0  # counters that only grow; `free` is of slots freed by the peer
        self._slices_received = self._slices_reported = 0

    def fileno(self) -> int:
        """Return the descriptor of the socket: readable when something arrived, or the peer ended."""
        return self._socket.fileno()

    # As of QueuePair

    def post_send(self, requests: SendWr | Iterable[SendWr]) -> None:
        """Post writes; nothing after `destroy`."""
        with self._lock:
            if self.state != QpState.RTS:
                return
            if isinstance(requests, SendWr):
                self._posted.append(requests)
            else:
                self._posted.extend(requests)
            self._pump()

    def post_write(self, local: Any, remote_addr: int, r_key: int, *, signaled: bool = True) -> None:
        """Do nothing: the link posts an empty write to find out whether the peer is there, which the socket says."""

    def post_recv(self, requests: int = 1) -> None:
        """Do nothing: writes with immediate need no posted receives here."""

    def outstanding(self) -> int:
        """Return how many posted writes have not completed."""
        return len(self._posted)

    def describe(self) -> str:
        return f"shared memory with rank {self.rank}, {len(self._posted)} writes waiting for room"

    def ev_states(self) -> list[Any]:
        """Return nothing: no network is used."""
        return []

    def destroy(self) -> None:
        """Close the socket, and give up the segments; the peer still receives what was sent."""
        with self._lock:
            self.state = QpState.ERROR
            self._posted.clear()
            self._socket.close()
            self.stage = self._segments = None

    # From the driver

    def receive(self) -> bool:
        """Process what has arrived; return False when the peer's process has ended. TrainError for invalid records."""
        with self._lock:
            if self.state != QpState.RTS:
                return False
            try:
                data = self._socket.recv(_READ)
            except BlockingIOError:
                return True
            except OSError:
                data = b""
            if not data:
                return False
            self._take(self._read + data if self._read else data)
            self._pump()
        return True

    def _take(self, data: bytes) -> None:
        whole = len(data) - len(data) % _RECORD.size
        self._read = data[whole:]
        for kind, has_immediate, freed, immediate, address, key, length in _RECORD.iter_unpack(data[:whole]):
            self._slices_free += (freed - self._slices_free) & _MASK
            if kind == _SLICE:
                self._take_slice(address, key, length)
            if has_immediate:
                self._complete(self._completion(WcOpcode.RECV_RDMA_WITH_IMM, 0, length, immediate))

    def _take_slice(self, address: int, key: int, length: int) -> None:
        if length > SLICE or not self._memory.covers(key, address, length):
            raise TrainError(f"rank {self.rank}: {length} bytes for {address:#x}, key {key:#x}: not announced memory")
        supply(address, length)
        _copy(address, self._from + _RING + self._slices_received % SLOTS * SLICE, length)
        self._slices_received += 1
        if self._slices_received - self._slices_reported >= _RETURN_AT:
            self._record(_FREED)
            self._flush()  # at once: the sender may wait for it

    # Sending; the caller holds the lock

    def _pump(self) -> None:
        """Move posted writes into the segment while it has room, and tell the peer."""
        while self._posted and self._move(self._posted[0]):
            request = self._posted.popleft()
            self._moved = 0
            if request.signaled:
                self._complete(self._completion(WcOpcode.RDMA_WRITE, request.wr_id, request.local.length, None))
        self._flush()

    def _move(self, request: SendWr) -> bool:
        """Move a write into the segment; return False if the ring is full before its end."""
        part = request.local
        source, length = part.region.addr + part.offset, part.length
        if request.remote_addr >= BASE:
            if part.region is not self.stage.region and length:
                _copy(self._to + request.remote_addr - BASE, source, length)
            self._record(_EVENT, request.immediate, length=length)
            return True
        while self._moved < length:
            if self._slices_sent - self._slices_free == SLOTS:
                return False
            size = min(length - self._moved, SLICE)
            _copy(self._to + _RING + self._slices_sent % SLOTS * SLICE, source + self._moved, size)
            self._slices_sent += 1
            address = request.remote_addr + self._moved
            self._moved += size
            self._record(_SLICE, request.immediate if self._moved == length else None, address, request.r_key, size)
            self._flush()  # so that the peer copies this slice during the next one
        if not length:
            self._record(_EVENT, request.immediate)
        return True

    def _record(self, kind: int, immediate: int | None = None, address: int = 0, key: int = 0, length: int = 0) -> None:
        self._slices_reported = self._slices_received
        freed = self._slices_received & _MASK
        has_immediate = immediate is not None
        self._unsent += _RECORD.pack(kind, has_immediate, freed, immediate or 0, address, key, length)

    def _flush(self) -> None:
        if self._unsent:
            with suppress(BlockingIOError, BrokenPipeError, ConnectionResetError, OSError):
                del self._unsent[: self._socket.send(self._unsent, socket.MSG_NOSIGNAL)]

    def _completion(self, opcode: WcOpcode, wr_id: int, length: int, immediate: int | None) -> WorkCompletion:
        return WorkCompletion(wr_id, WcStatus.SUCCESS, opcode, length, immediate, self.qpn)
