"""Memory to memory over one connection: the transfer of the demo, without files.

Both ends register the same number of pieces. The sender writes its pieces into the receiver's memory, round after
round; in round r, slot s receives piece s + r, so no slot ever gets the content that it has. The receiver compares the
CRC-32 of every piece that arrives with the one expected there, and tells over the TCP channel how many it has checked.
At the end both compute the SHA-256 of the receiver's memory, which the last round has filled.
"""

from __future__ import annotations

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
from openmrc.programs.endpoint.conversation import Conversation, Note, is_from_peer
from openmrc.programs.endpoint.listening import ESTABLISH_SECONDS, Refusals, announce_port, next_peer, open_listener
from openmrc.programs.endpoint.opening import EndpointOptions, connection_options, open_endpoint
from openmrc.programs.endpoint.shares import Meter, PlaneShare
from openmrc.verbs import Connection, ConnectionOptions, Context, Listener, MemoryRegion, connect

PIECE = 1 << 20  # bytes; a few hundred packets
PIECES = 8  # of both memories, and in flight at most: they fit a cache
SENDER, RECEIVER = "demo sender", "demo receiver"
WAIT_SECONDS = 60.0  # s for the sender
TIMEOUT = 30.0  # s without progress


class MemoryOffer(msgspec.Struct, tag="memory", forbid_unknown_fields=True):
    """Sender: the CRC-32 of each of its pieces."""

    crcs: list[int]


class MemoryChecked(msgspec.Struct, tag="checked", forbid_unknown_fields=True):
    """Receiver: so many pieces are checked, and their slots free; 0 once impairments are in effect."""

    pieces: int


class MemoryEnd(msgspec.Struct, tag="end", forbid_unknown_fields=True):
    """Sender: the number of pieces sent, and the SHA-256 that the receiver's memory must have."""

    pieces: int
    sha256: str


class MemoryVerdict(msgspec.Struct, tag="verdict", forbid_unknown_fields=True):
    """Receiver: what arrived."""

    pieces: int  # whose CRC-32 is the expected one
    wrong: int  # that arrived with another
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
    timeout: float = 30.0  # s without progress
    done: int = 0  # bytes that the receiver has checked
    took: float = 0.0  # s
    verdict: MemoryVerdict | None = None
    expected: str = ""  # SHA-256
    planes: list[PlaneShare] = field(default_factory=list)
    _posted: int = 0  # pieces
    _written: int = 0  # pieces that are acknowledged
    _checked: int = 0  # pieces that the receiver has returned

    def run(
        self, port: int, token: str, begin: Callable[[Connection], Any], settle: Callable[[Connection], Any]
    ) -> None:
        """Send; `begin` is called before the first byte, `settle` after the last one, while the connection is open."""
        self._memory = memoryview(mmap.mmap(-1, PIECES * PIECE))
        self._memory[:] = content(self.seed)
        pd = self.context.alloc_pd()
        with pd.reg_mr(self._memory) as region:
            note, options = Note(SENDER), self.connection
            with connect(
                self.context, "127.0.0.1", port, regions=[region], options=options, note=note,
                timeout=ESTABLISH_SECONDS, token=token,
            ) as connection:  # fmt: skip
                self._converse(connection, region, begin, settle)

    def _converse(
        self,
        connection: Connection,
        region: MemoryRegion,
        begin: Callable[[Connection], Any],
        settle: Callable[[Connection], Any],
    ) -> None:
        self.conversation = Conversation(connection, MemoryChecked | MemoryVerdict, self.timeout)
        meter = Meter(self.context)
        try:
            pieces = (self._memory[at * PIECE : (at + 1) * PIECE] for at in range(PIECES))
            self.conversation.tell(MemoryOffer([isal_zlib.crc32(piece) for piece in pieces]))
            self.conversation.hear(MemoryChecked)
            self.context.impair(self.faults)
            begin(connection)
            self._send(connection, region)
            settle(connection)
            self.expected = self._digest()
            self.conversation.tell(MemoryEnd(self._posted, self.expected))
            self.verdict = self.conversation.hear(MemoryVerdict)
        except BaseException as error:
            if not is_from_peer(error):
                self.conversation.give_up(str(error) or "interrupted")
            raise
        finally:
            self.planes = meter.shares([connection.qp])
            connection.qp.destroy()  # before its memory goes

    def _send(self, connection: Connection, region: MemoryRegion) -> None:
        """Post pieces until the time or the bytes are used up, and wait until all are checked."""
        began, remote = time.monotonic(), connection.remote.regions[0]
        wanted = None if self.most is None else -(-self.most // PIECE)
        while (self._posted < wanted) if wanted is not None else (time.monotonic() - began < self.seconds):
            while self._posted - self._checked >= PIECES:
                self._take_completions(connection)
            start = source_of(self._posted) * PIECE
            target = remote.addr + self._posted % PIECES * PIECE
            connection.qp.post_write(region[start : start + PIECE], target, remote.r_key, immediate=self._posted)
            self._posted += 1
        while self._checked < self._posted or self._written < self._posted:
            self._take_completions(connection)
        self.took = time.monotonic() - began

    def _take_completions(self, connection: Connection) -> None:
        before = self._written, self._checked
        (written,) = self.conversation.wait((connection.send_cq,), self.timeout, or_message=True)
        self._written += len(written)
        while self.conversation.has_message():
            self._checked = self.conversation.hear(MemoryChecked).pieces
        if before == (self._written, self._checked):
            raise self.conversation.lost(f"no progress for {self.timeout:g} s")
        self.done = self._checked * PIECE

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for piece in final_order(self._posted):
            digest.update(self._memory[piece * PIECE : (piece + 1) * PIECE] if piece >= 0 else bytes(PIECE))
        return digest.hexdigest()


@dataclass
class MemoryReceiver:
    """Receives from one sender, and says what arrived."""

    context: Context
    faults: Schedule
    connection: ConnectionOptions
    timeout: float = 30.0  # s without progress
    longest_stall: float = 0.0  # s
    _right: int = 0
    _wrong: int = 0

    def serve(self, listener: Listener, wait: float, refusals: Refusals) -> None:
        """Wait for the sender, and receive until it asks for the verdict."""
        self._memory = memoryview(mmap.mmap(-1, PIECES * PIECE))
        pd = self.context.alloc_pd()
        with pd.reg_mr(self._memory) as region:

            def accept() -> Connection:
                return listener.accept(
                    regions=[region], options=self.connection, note=Note(RECEIVER), timeout=ESTABLISH_SECONDS
                )

            connection, _ = next_peer(listener, accept, SENDER, wait, refusals)
            with connection:
                self._converse(connection)

    def _converse(self, connection: Connection) -> None:
        conversation = Conversation(connection, MemoryOffer | MemoryEnd, self.timeout)
        try:
            connection.qp.post_recv(2 * PIECES)
            crcs = conversation.hear(MemoryOffer).crcs
            if len(crcs) != PIECES:
                raise conversation.lost(f"announced {len(crcs)} pieces instead of {PIECES}")
            self.context.impair(self.faults)
            conversation.tell(MemoryChecked(0))
            ended = self._receive(conversation, crcs)
            if ended.pieces != self._right + self._wrong:
                raise conversation.lost(f"sent {ended.pieces} pieces, {self._right + self._wrong} arrived")
            digest = hashlib.sha256(self._memory).hexdigest()
            conversation.tell(MemoryVerdict(self._right, self._wrong, digest, self.longest_stall * 1e3))
        except BaseException as error:
            if not is_from_peer(error):
                conversation.give_up(str(error) or "interrupted")
            raise
        finally:
            connection.qp.destroy()

    def _receive(self, conversation: Conversation, crcs: list[int]) -> MemoryEnd:
        """Check pieces as they arrive; return the sender's last message."""
        connection = conversation.connection
        while True:
            begun = time.monotonic()
            (arrived,) = conversation.wait((connection.recv_cq,), self.timeout, or_message=True)
            if not arrived:
                return conversation.hear(MemoryEnd)
            if self._right + self._wrong:
                self.longest_stall = max(self.longest_stall, time.monotonic() - begun)
            connection.qp.post_recv(len(arrived))
            for each in arrived:
                self._check(each.immediate or 0, crcs)
                conversation.tell(MemoryChecked(self._right + self._wrong))

    def _check(self, number: int, crcs: list[int]) -> None:
        slot = number % PIECES
        found = isal_zlib.crc32(self._memory[slot * PIECE : (slot + 1) * PIECE])
        if found == crcs[source_of(number)]:
            self._right += 1
        else:
            self._wrong += 1


def _complain(line: str) -> None:
    sys.stderr.write(f"mrc demo, receiver: {line}\n")


def receive(planes: int, faults: Schedule, ready_fd: int) -> None:
    """Receive from one sender that has the token of the environment, on `planes` loopback planes."""
    options = EndpointOptions(tuple(loopback_planes(planes, EndpointSide.SERVER)))
    access = AccessPolicy(("127.0.0.1",), os.environ[TOKEN_VARIABLE])
    with (
        Refusals(_complain) as refusals,
        open_endpoint(options) as context,
        open_listener(context, 0, access, refusals) as listener,
    ):
        announce_port(listener, ready_fd)
        MemoryReceiver(context, faults, connection_options(context, 0, TIMEOUT)).serve(listener, WAIT_SECONDS, refusals)


def main() -> None:
    """Run the process; the sender knows the reason of a failure from its connection."""
    planes, faults, _, ready_fd = sys.argv[1:]
    try:
        receive(int(planes), Schedule.parse(faults, "--impair"), int(ready_fd))
    except MrcError as error:
        _complain(str(error))
        sys.exit(1)


if __name__ == "__main__":
    main()
