"""Memory to memory over one connection, without files: the sender, and the receiver as a process of its own.

Both know the same pieces, one more than the receiver has slots. The sender writes them into the slots in turn, so no
slot ever gets the content that it has. The receiver compares the CRC-32 of every piece that arrives with the one
expected there, and tells over the TCP channel how many it has checked, whose slots are free then; first 0, once its
impairments are in effect. The sender ends by the number of pieces that it has sent, the receiver then tells the SHA-256
of its memory.
"""

import hashlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from isal import isal_zlib

from openmrc.base.faults import Schedule
from openmrc.errors import MrcError
from openmrc.live.host.nic_file import TOKEN_VARIABLE
from openmrc.live.host.planes import EndpointSide, loopback_planes
from openmrc.programs.demo.result import SAMPLE_SECONDS, DemoResult, RateSample, Recorder, unused_planes
from openmrc.programs.endpoint.conversation import Conversation
from openmrc.programs.endpoint.listening import ESTABLISH_SECONDS, announce_port
from openmrc.programs.endpoint.opening import EndpointOptions, connection_options, open_endpoint
from openmrc.programs.endpoint.shares import Meter, ev_counts
from openmrc.verbs import Context, Listener, MemoryRegion, connect

PIECE = 1 << 20  # bytes; a few hundred packets
SLOTS = 8  # of the receiver's memory, and pieces in flight at most: they fit a cache
WAIT_SECONDS = 60.0  # s for the sender
TIMEOUT = 30.0  # s without progress until failure, unless said
RETURN_SECONDS = 5.0  # s until planes must be in use again after the last byte


def content() -> memoryview:
    """Return the pieces, pseudo-random, always the same."""
    return memoryview(bytearray(np.random.default_rng(1).bytes((SLOTS + 1) * PIECE)))


def source(number: int) -> slice:
    """Return where the piece that is sent as number `number`, from 0, is in the content."""
    at = number % (SLOTS + 1) * PIECE
    return slice(at, at + PIECE)


def slot(number: int) -> slice:
    """Return where that piece goes in the receiver's memory."""
    at = number % SLOTS * PIECE
    return slice(at, at + PIECE)


def final_memory(sent: int) -> bytearray:
    """Return what the receiver's memory holds after `sent` pieces."""
    memory, pieces = bytearray(SLOTS * PIECE), content()
    for number in range(max(0, sent - SLOTS), sent):
        memory[slot(number)] = pieces[source(number)]
    return memory


class MemorySender:
    """Sends for some seconds, or some pieces if `most` says so, and fills the result."""

    def __init__(
        self, context: Context, result: DemoResult, show: Callable[[RateSample], None], timeout: float
    ) -> None:
        self._context = context
        self._result = result
        self._show = show
        self._timeout = timeout

    def run(self, port: int, token: str, seconds: float, most: int | None) -> None:
        """Send to the receiver at this port of TCP, wait until planes are back, and compare the memories."""
        result, options = self._result, replace(connection_options(self._context, 0), user_timeout=self._timeout)
        with (
            self._context.alloc_pd().reg_mr(content()) as region,
            connect(
                self._context, "127.0.0.1", port, regions=[region], options=options, timeout=ESTABLISH_SECONDS,
                token=token,
            ) as connection,
        ):  # fmt: skip
            conversation = Conversation(connection, int | str, self._timeout)
            meter = Meter(self._context)
            try:
                with conversation.reporting():
                    conversation.hear(int)
                    self._context.impair(Schedule.parse(result.faults))
                    sent = self._send(conversation, region, seconds, most)
                    conversation.tell(sent)
                    found = conversation.hear(str)
            finally:
                result.planes = meter.shares([connection.qp])
                connection.qp.destroy()  # before its memory goes
        result.judge(found, hashlib.sha256(final_memory(sent)).hexdigest())

    def _send(self, conversation: Conversation, region: MemoryRegion, seconds: float, most: int | None) -> int:
        """Post pieces until the time or the pieces are used up, and wait until all are checked; return their number."""
        pair, remote = conversation.connection.qp, conversation.connection.remote.regions[0]
        recorder = Recorder(
            self._result,
            self._show,
            lambda: [each.sent_bytes for each in self._context.plane_counters()],
            lambda: ev_counts([pair]),
        )
        posted = written = checked = 0  # pieces: of these, acknowledged, and returned by the receiver
        while True:
            is_over = recorder.at >= seconds if most is None else posted == most
            if is_over and posted == written == checked:
                break
            if not is_over and posted - checked < SLOTS:
                pair.post_write(
                    region[source(posted)], remote.addr + slot(posted).start, remote.r_key, immediate=posted
                )
                posted += 1
                continue
            written += len(conversation.wait(conversation.connection.send_cq, SAMPLE_SECONDS, or_message=True))
            while conversation.has_message():
                checked = conversation.hear(int)
            if recorder.count(checked * PIECE) > self._timeout:
                raise conversation.lost(f"no progress for {self._timeout:g} s")
        deadline = recorder.at + RETURN_SECONDS
        while recorder.at < deadline and unused_planes(ev_counts([pair]), self._result.outages):
            time.sleep(SAMPLE_SECONDS)
            recorder.sample()
        return posted


def receive(context: Context, listener: Listener, faults: Schedule) -> None:
    """Receive from one sender, and tell it what arrived."""
    memory, pieces = memoryview(bytearray(SLOTS * PIECE)), content()
    crcs = [isal_zlib.crc32(pieces[source(number)]) for number in range(SLOTS + 1)]
    with (
        context.alloc_pd().reg_mr(memory) as region,
        listener.accept(
            regions=[region], options=connection_options(context, 0, TIMEOUT), timeout=WAIT_SECONDS
        ) as connection,
    ):
        conversation = Conversation(connection, int, TIMEOUT)
        try:
            with conversation.reporting():
                connection.qp.post_recv(2 * SLOTS)
                context.impair(faults)
                conversation.tell(0)
                _check(conversation, memory, crcs)
                conversation.tell(hashlib.sha256(memory).hexdigest())
        finally:
            connection.qp.destroy()


def _check(conversation: Conversation, memory: memoryview, crcs: list[int]) -> None:
    """Check pieces as they arrive, until the sender ends; PeerError if one is wrong or missing."""
    connection, checked = conversation.connection, 0
    while arrived := conversation.wait(connection.recv_cq, TIMEOUT, or_message=True):
        connection.qp.post_recv(len(arrived))
        for each in arrived:
            number = each.immediate or 0
            if isal_zlib.crc32(memory[slot(number)]) != crcs[number % len(crcs)]:
                raise conversation.lost(f"piece {number} arrived with another CRC-32")
            checked += 1
            conversation.tell(checked)
    if (sent := conversation.hear(int)) != checked:
        raise conversation.lost(f"sent {sent} pieces, {checked} arrived")


def main() -> None:
    """Receive from one sender that has the token of the environment; it knows from its connection what failed."""
    planes, faults, _, ready_fd = sys.argv[1:]
    options = EndpointOptions(tuple(loopback_planes(int(planes), EndpointSide.SERVER)))
    try:
        with (
            open_endpoint(options) as context,
            Listener(context, "127.0.0.1", 0, token=os.environ[TOKEN_VARIABLE]) as listener,
        ):
            announce_port(listener, int(ready_fd))
            receive(context, listener, Schedule.parse(faults, "--impair"))
    except MrcError as error:
        sys.stderr.write(f"mrc demo, receiver: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
