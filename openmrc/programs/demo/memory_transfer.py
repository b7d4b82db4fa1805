"""Memory to memory over one connection, without files: the sender, and the receiver as a process of its own.

Both know the same pieces. The sender writes them into the receiver's memory, round after round; in round r, slot s
receives piece s + r, so no slot ever gets the content that it has. The receiver compares the CRC-32 of every piece that
arrives with the one expected there, and tells over the TCP channel how many it has checked, whose slots are free then;
first 0, once its impairments are in effect. The sender ends by the number of pieces that it has sent, and both compute
the SHA-256 of the receiver's memory, which the last round has filled.
"""

import hashlib
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgspec
import numpy as np
from isal import isal_zlib

from openmrc.base.amounts import gbps
from openmrc.base.faults import Schedule
from openmrc.errors import MrcError
from openmrc.live.host.nic_file import TOKEN_VARIABLE
from openmrc.live.host.planes import EndpointSide, loopback_planes
from openmrc.programs.demo.result import SAMPLE_SECONDS, DemoResult, RateSample, unused_planes
from openmrc.programs.endpoint.conversation import Conversation
from openmrc.programs.endpoint.listening import ESTABLISH_SECONDS, announce_port
from openmrc.programs.endpoint.opening import EndpointOptions, connection_options, open_endpoint
from openmrc.programs.endpoint.shares import Meter, ev_counts
from openmrc.verbs import Connection, Context, Listener, MemoryRegion, connect

PIECE = 1 << 20  # bytes; a few hundred packets
PIECES = 8  # of both memories, and in flight at most: they fit a cache
WAIT_SECONDS = 60.0  # s for the sender
TIMEOUT = 30.0  # s without progress until failure, unless said
RETURN_SECONDS = 5.0  # s until planes must be in use again after the last byte


class MemoryVerdict(msgspec.Struct, tag="verdict", forbid_unknown_fields=True):
    """The receiver's last message: what arrived."""

    wrong: int  # pieces that arrived with another CRC-32 than the expected one
    sha256: str  # of the memory at the end
    longest_stall_ms: float  # longest wait for the next piece


def content(seed: int) -> memoryview:
    """Return the pieces, pseudo-random, the same for the same seed."""
    memory = memoryview(mmap.mmap(-1, PIECES * PIECE))
    memory[:] = np.random.default_rng(seed).bytes(PIECES * PIECE)
    return memory


def piece_of(memory: memoryview, slot: int) -> memoryview:
    return memory[slot * PIECE : (slot + 1) * PIECE]


def source_of(number: int) -> int:
    """Return the piece that is sent as number `number`, from 0; it goes to slot `number % PIECES`."""
    return (number + number // PIECES) % PIECES


def final_order(sent: int) -> list[int]:
    """Return, per slot, the piece that it holds after `sent` pieces; -1: none yet."""
    held = [-1] * PIECES
    for number in range(max(0, sent - PIECES), sent):
        held[number % PIECES] = source_of(number)
    return held


@contextmanager
def sampled(take: Callable[[float, float], None]) -> Iterator[None]:
    """Call `take` with the seconds since the block began and since the last call, every tenth of a second and last.

    In a thread: a terminal that blocks must not stop a transfer.
    """
    began, is_over = time.monotonic(), threading.Event()

    def run() -> None:
        last, is_last = 0.0, False
        while not is_last:
            is_last = is_over.wait(SAMPLE_SECONDS)
            at = time.monotonic() - began
            if at - last >= SAMPLE_SECONDS / 2 or not last:  # the rest of a tenth would be noise
                take(at, at - last)
                last = at

    thread = threading.Thread(target=run, name="sampler", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(5.0)


class MemorySender:
    """Sends for some seconds, or some pieces if `most` says so, and fills the result."""

    def __init__(self, context: Context, result: DemoResult, timeout: float) -> None:
        self._context = context
        self._result = result
        self._timeout = timeout
        self._memory = content(result.seed)
        self._counters = context.plane_counters()  # at the last sample
        self._sampled = 0  # bytes at the last sample

    def run(
        self, port: int, token: str, seconds: float, most: int | None, on_sample: Callable[[RateSample], None]
    ) -> None:
        """Send to the receiver at this port of TCP, wait until planes are back, and compare the memories."""
        result, options = self._result, replace(connection_options(self._context, 0), user_timeout=self._timeout)
        with (
            self._context.alloc_pd().reg_mr(self._memory) as region,
            connect(
                self._context, "127.0.0.1", port, regions=[region], options=options, timeout=ESTABLISH_SECONDS,
                token=token,
            ) as connection,
        ):  # fmt: skip
            conversation = Conversation(connection, int | MemoryVerdict, self._timeout)
            meter = Meter(self._context)
            try:
                with conversation.reporting():
                    conversation.hear(int)
                    self._context.impair(Schedule.parse(result.faults))
                    with sampled(lambda at, span: on_sample(self._sample(connection, at, span))):
                        sent = self._send(conversation, region, seconds, most)
                        self._await_planes(connection)
                    conversation.tell(sent)
                    verdict = conversation.hear(MemoryVerdict)
            finally:
                result.take_planes(meter.shares([connection.qp]))
                connection.qp.destroy()  # before its memory goes
        held = (piece_of(self._memory, each) if each >= 0 else bytes(PIECE) for each in final_order(sent))
        result.longest_stall_ms = round(verdict.longest_stall_ms, 3)
        result.judge(verdict.wrong, verdict.sha256, hashlib.sha256(b"".join(held)).hexdigest())

    def _send(self, conversation: Conversation, region: MemoryRegion, seconds: float, most: int | None) -> int:
        """Post pieces until the time or the pieces are used up, and wait until all are checked; return their number."""
        connection, result = conversation.connection, self._result
        began, remote = time.monotonic(), connection.remote.regions[0]
        posted = written = checked = 0  # pieces: of these, acknowledged, and returned by the receiver
        while True:
            is_over = time.monotonic() - began >= seconds if most is None else posted == most
            if is_over and posted == written == checked:
                return posted
            if not is_over and posted - checked < PIECES:
                start, target = source_of(posted) * PIECE, remote.addr + posted % PIECES * PIECE
                connection.qp.post_write(region[start : start + PIECE], target, remote.r_key, immediate=posted)
                posted += 1
                continue
            found = conversation.wait(connection.send_cq, self._timeout, or_message=True)
            if not found and not conversation.has_message():
                raise conversation.lost(f"no progress for {self._timeout:g} s")
            written += len(found)
            while conversation.has_message():
                checked = conversation.hear(int)
            took = time.monotonic() - began
            result.bytes, result.seconds, result.gbps = checked * PIECE, round(took, 3), gbps(checked * PIECE, took)

    def _sample(self, connection: Connection, at: float, span: float) -> RateSample:
        """Return what the last `span` seconds brought."""
        counters, done = self._context.plane_counters(), self._result.bytes
        pairs = list(zip(counters, self._counters, strict=True))
        sample = RateSample(
            at=round(at, 3),
            done=done,
            gbps=round(gbps(done - self._sampled, span), 4),
            planes=[round(gbps(new.sent_bytes - old.sent_bytes, span), 4) for new, old in pairs],
            evs=ev_counts([connection.qp]),
            retransmitted=sum(new.retransmitted - old.retransmitted for new, old in pairs),
        )
        self._counters, self._sampled = counters, done
        self._result.samples.append(sample)
        return sample

    def _await_planes(self, connection: Connection) -> None:
        """Wait, for a few seconds at most, until every plane that came back up is in use."""
        deadline = time.monotonic() + RETURN_SECONDS
        while time.monotonic() < deadline and unused_planes(ev_counts([connection.qp]), self._result.outages):
            time.sleep(SAMPLE_SECONDS)


def receive(context: Context, listener: Listener, faults: Schedule, seed: int) -> None:
    """Receive from one sender, and tell it what arrived."""
    expected, memory = content(seed), memoryview(mmap.mmap(-1, PIECES * PIECE))
    crcs = [isal_zlib.crc32(piece_of(expected, slot)) for slot in range(PIECES)]
    options = connection_options(context, 0, TIMEOUT)
    with (
        context.alloc_pd().reg_mr(memory) as region,
        listener.accept(regions=[region], options=options, timeout=WAIT_SECONDS) as connection,
    ):
        conversation = Conversation(connection, int, TIMEOUT)
        try:
            with conversation.reporting():
                connection.qp.post_recv(2 * PIECES)
                context.impair(faults)
                conversation.tell(0)
                conversation.tell(_checked(conversation, memory, crcs))
        finally:
            connection.qp.destroy()


def _checked(conversation: Conversation, memory: memoryview, crcs: list[int]) -> MemoryVerdict:
    """Check pieces as they arrive, until the sender ends."""
    connection, longest_stall = conversation.connection, 0.0
    checked = wrong = 0  # pieces
    while True:
        begun = time.monotonic()
        arrived = conversation.wait(connection.recv_cq, TIMEOUT, or_message=True)
        if not arrived:
            break
        if checked:
            longest_stall = max(longest_stall, time.monotonic() - begun)
        connection.qp.post_recv(len(arrived))
        for each in arrived:
            number = each.immediate or 0
            wrong += isal_zlib.crc32(piece_of(memory, number % PIECES)) != crcs[source_of(number)]
            checked += 1
            conversation.tell(checked)
    if (sent := conversation.hear(int)) != checked:
        raise conversation.lost(f"sent {sent} pieces, {checked} arrived")
    return MemoryVerdict(wrong, hashlib.sha256(memory).hexdigest(), longest_stall * 1e3)


def main() -> None:
    """Receive from one sender that has the token of the environment; it knows from its connection what failed."""
    planes, faults, seed, _, ready_fd = sys.argv[1:]
    options = EndpointOptions(tuple(loopback_planes(int(planes), EndpointSide.SERVER)))
    try:
        with (
            open_endpoint(options) as context,
            Listener(context, "127.0.0.1", 0, token=os.environ[TOKEN_VARIABLE]) as listener,
        ):
            announce_port(listener, int(ready_fd))
            receive(context, listener, Schedule.parse(faults, "--impair"), int(seed))
    except MrcError as error:
        sys.stderr.write(f"mrc demo, receiver: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
