"""Memory to memory over one connection: the transfer of the demo, without files.

Both ends register the same number of pieces. The sender writes its pieces into the receiver's memory, round after
round; in round r, slot s receives piece s + r, so no slot ever gets the content that it has. The receiver compares the
CRC-32 of every piece that arrives with the one expected there, and tells over the TCP channel how many it has checked.
At the end both compute the SHA-256 of the receiver's memory, which the last round has filled.
"""

import hashlib
import mmap
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from isal import isal_zlib

from openmrc.base.faults import Schedule
from openmrc.errors import MrcError
from openmrc.live.host.nic_file import TOKEN_VARIABLE
from openmrc.live.host.planes import EndpointSide, loopback_planes
from openmrc.programs.endpoint.access import AccessPolicy
from openmrc.programs.endpoint.conversation import Conversation, Note
from openmrc.programs.endpoint.listening import ESTABLISH_SECONDS, Refusals, announce_port, next_peer, open_listener
from openmrc.programs.endpoint.opening import EndpointOptions, connection_options, open_endpoint
from openmrc.programs.endpoint.shares import Meter, PlaneShare
from openmrc.verbs import Connection, ConnectionOptions, Context, Listener, MemoryRegion, connect

PIECE = 1 << 20  # bytes; a few hundred packets
PIECES = 8  # of both memories, and in flight at most: they fit a cache
SENDER, RECEIVER = "demo sender", "demo receiver"
WAIT_SECONDS = 60.0  # s for the sender
TIMEOUT = 30.0  # s without progress until failure, unless said


class MemoryOffer(msgspec.Struct, tag="memory", forbid_unknown_fields=True):
    """Sender: the CRC-32 of each of its pieces."""

    crcs: list[int]


class MemoryChecked(msgspec.Struct, tag="checked", forbid_unknown_fields=True):
    """Receiver: so many pieces are checked, and their slots free; 0 once impairments are in effect."""

    pieces: int


class MemoryEnd(msgspec.Struct, tag="end", forbid_unknown_fields=True):
    """Sender: the number of pieces sent."""

    pieces: int


class MemoryVerdict(msgspec.Struct, tag="verdict", forbid_unknown_fields=True):
    """Receiver: what arrived."""

    wrong: int  # pieces that arrived with another CRC-32 than the expected one
    sha256: str  # of the memory at the end
    longest_stall_ms: float  # longest wait for the next piece


def content(seed: int) -> bytes:
    """Return the sender's pieces, pseudo-random, the same for the same seed."""
    return np.random.default_rng(seed).bytes(PIECES * PIECE)


def source_of(number: int) -> int:
    """Return the piece that is sent as number `number`, from 0; it goes to slot `number % PIECES`."""
    return (number + number // PIECES) % PIECES


def final_order(sent: int) -> list[int]:
    """Return, per slot, the piece that it holds after `sent` pieces; -1: none yet."""
    held = [-1] * PIECES
    for number in range(max(0, sent - PIECES), sent):
        held[number % PIECES] = source_of(number)
    return held


@dataclass
class MemorySender:
    """Sends for some seconds, or some bytes, and asks for the verdict."""

    context: Context
    seed: int
    seconds: float
    faults: Schedule
    connection: ConnectionOptions
    most: int | None = None  # bytes; None: as many as fit into the time
    timeout: float = TIMEOUT
    done: int = 0  # bytes that the receiver has checked
    took: float = 0.0  # s
    verdict: MemoryVerdict | None = None
    expected: str = ""  # SHA-256
    planes: list[PlaneShare] = field(default_factory=list)

    def run(
        self, port: int, token: str, begin: Callable[[Connection], Any], settle: Callable[[Connection], Any]
    ) -> None:
        """Send; `begin` is called before the first byte, `settle` after the last one, while the connection is open."""
        memory = memoryview(mmap.mmap(-1, PIECES * PIECE))
        memory[:] = content(self.seed)
        pieces = [memory[at * PIECE : (at + 1) * PIECE] for at in range(PIECES)]
        with (
            self.context.alloc_pd().reg_mr(memory) as region,
            connect(
                self.context, "127.0.0.1", port, regions=[region], options=self.connection, note=Note(SENDER),
                timeout=ESTABLISH_SECONDS, token=token,
            ) as connection,
        ):  # fmt: skip
            conversation = Conversation(connection, MemoryChecked | MemoryVerdict, self.timeout)
            meter = Meter(self.context)
            try:
                with conversation.reporting():
                    conversation.tell(MemoryOffer([isal_zlib.crc32(piece) for piece in pieces]))
                    conversation.hear(MemoryChecked)
                    self.context.impair(self.faults)
                    begin(connection)
                    sent = self._send(conversation, region)
                    settle(connection)
                    held = (pieces[each] if each >= 0 else bytes(PIECE) for each in final_order(sent))
                    self.expected = hashlib.sha256(b"".join(held)).hexdigest()
                    conversation.tell(MemoryEnd(sent))
                    self.verdict = conversation.hear(MemoryVerdict)
            finally:
                self.planes = meter.shares([connection.qp])
                connection.qp.destroy()  # before its memory goes

    def _send(self, conversation: Conversation, region: MemoryRegion) -> int:
        """Post pieces until the time or the bytes are used up, and wait until all are checked; return their number."""
        connection = conversation.connection
        began, remote = time.monotonic(), connection.remote.regions[0]
        wanted = None if self.most is None else -(-self.most // PIECE)
        posted = written = checked = 0  # pieces: of these, acknowledged, and returned by the receiver
        while True:
            is_over = time.monotonic() - began >= self.seconds if wanted is None else posted == wanted
            if is_over and posted == written == checked:
                self.took = time.monotonic() - began
                return posted
            if not is_over and posted - checked < PIECES:
                start, target = source_of(posted) * PIECE, remote.addr + posted % PIECES * PIECE
                connection.qp.post_write(region[start : start + PIECE], target, remote.r_key, immediate=posted)
                posted += 1
                continue
            found = conversation.wait(connection.send_cq, self.timeout, or_message=True)
            if not found and not conversation.has_message():
                raise conversation.lost(f"no progress for {self.timeout:g} s")
            written += len(found)
            while conversation.has_message():
                checked = conversation.hear(MemoryChecked).pieces
            self.done = checked * PIECE


class MemoryReceiver:
    """Receives from one sender, and says what arrived."""

    def __init__(self, context: Context, faults: Schedule) -> None:
        self._context = context
        self._faults = faults
        self._memory = memoryview(mmap.mmap(-1, PIECES * PIECE))
        self._longest_stall = 0.0  # s
        self._checked = self._wrong = 0  # pieces

    def serve(self, listener: Listener, wait: float, refusals: Refusals) -> None:
        """Wait for the sender, and receive until it asks for the verdict."""
        options, note = connection_options(self._context, 0, TIMEOUT), Note(RECEIVER)
        with self._context.alloc_pd().reg_mr(self._memory) as region:

            def accept() -> Connection:
                return listener.accept(regions=[region], options=options, note=note, timeout=ESTABLISH_SECONDS)

            connection, _ = next_peer(listener, accept, SENDER, wait, refusals)
            with connection:
                conversation = Conversation(connection, MemoryOffer | MemoryEnd, TIMEOUT)
                try:
                    with conversation.reporting():
                        self._converse(conversation)
                finally:
                    connection.qp.destroy()

    def _converse(self, conversation: Conversation) -> None:
        conversation.connection.qp.post_recv(2 * PIECES)
        crcs = conversation.hear(MemoryOffer).crcs
        if len(crcs) != PIECES:
            raise conversation.lost(f"announced {len(crcs)} pieces instead of {PIECES}")
        self._context.impair(self._faults)
        conversation.tell(MemoryChecked(0))
        ended = self._receive(conversation, crcs)
        if ended.pieces != self._checked:
            raise conversation.lost(f"sent {ended.pieces} pieces, {self._checked} arrived")
        digest = hashlib.sha256(self._memory).hexdigest()
        conversation.tell(MemoryVerdict(self._wrong, digest, self._longest_stall * 1e3))

    def _receive(self, conversation: Conversation, crcs: list[int]) -> MemoryEnd:
        """Check pieces as they arrive; return the sender's last message."""
        connection = conversation.connection
        while True:
            begun = time.monotonic()
            arrived = conversation.wait(connection.recv_cq, TIMEOUT, or_message=True)
            if not arrived:
                return conversation.hear(MemoryEnd)
            if self._checked:
                self._longest_stall = max(self._longest_stall, time.monotonic() - begun)
            connection.qp.post_recv(len(arrived))
            for each in arrived:
                number = each.immediate or 0
                start = number % PIECES * PIECE
                found = isal_zlib.crc32(self._memory[start : start + PIECE])
                self._wrong += found != crcs[source_of(number)]
                self._checked += 1
                conversation.tell(MemoryChecked(self._checked))


def _complain(line: str) -> None:
    sys.stderr.write(f"mrc demo, receiver: {line}\n")


def main() -> None:
    """Receive from one sender that has the token of the environment; it knows from its connection what failed."""
    planes, faults, _, ready_fd = sys.argv[1:]
    options = EndpointOptions(tuple(loopback_planes(int(planes), EndpointSide.SERVER)))
    access = AccessPolicy(("127.0.0.1",), os.environ[TOKEN_VARIABLE])
    try:
        with (
            Refusals(_complain) as refusals,
            open_endpoint(options) as context,
            open_listener(context, 0, access, refusals) as listener,
        ):
            announce_port(listener, int(ready_fd))
            MemoryReceiver(context, Schedule.parse(faults, "--impair")).serve(listener, WAIT_SECONDS, refusals)
    except MrcError as error:
        _complain(str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
