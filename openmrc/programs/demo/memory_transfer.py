"""Memory to memory over one connection, without files: the sender, and the receiver as a process of its own.

The sender has one piece more than the receiver has slots and writes them into the slots in turn, so no slot ever gets
the content that it has. The receiver tells over the TCP channel how many pieces it has read, whose slots are free then;
first 0, once its impairments are in effect. The sender ends by the number of pieces that it has sent. The receiver then
tells the SHA-256 over the CRC-32s of all pieces as they arrived, which the sender compares with that of what it sent.
"""

import hashlib
import os
import sys
import time
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
from isal import isal_zlib
from rich.console import Console

from openmrc.base.faults import Schedule
from openmrc.errors import MrcError
from openmrc.live.host.nic_file import TOKEN_VARIABLE
from openmrc.live.host.planes import EndpointSide, loopback_planes
from openmrc.programs.demo.result import SAMPLE_SECONDS, DemoResult, Recorder, unused_planes
from openmrc.programs.demo.view import View
from openmrc.programs.endpoint.conversation import Conversation
from openmrc.programs.endpoint.listening import ESTABLISH_SECONDS, announce_port
from openmrc.programs.endpoint.opening import EndpointOptions, open_endpoint
from openmrc.programs.endpoint.second_process import SecondProcess
from openmrc.programs.endpoint.shares import Meter
from openmrc.verbs import ConnectionOptions, Listener, MemoryRegion, connect

PIECE = 1 << 20  # bytes; a few hundred packets
SLOTS = 8  # of the receiver's memory, and pieces in flight at most: they fit a cache
PIECES = SLOTS + 1  # of the sender's memory
TIMEOUT = 30.0  # s without progress until failure, unless said
RETURN_SECONDS = 5.0  # s until planes must be in use again after the last byte


def place(number: int, count: int) -> slice:
    """Return where piece `number`, from 0, is in a memory of `count` pieces that are used in turn."""
    at = number % count * PIECE
    return slice(at, at + PIECE)


def checksum(piece: Any) -> bytes:
    """Return a piece's CRC-32: a SHA-256 of every byte would take longer than moving it."""
    return isal_zlib.crc32(piece).to_bytes(4, "big")


def digest_of(memory: Any, sent: int) -> str:
    """Return the SHA-256 that a receiver of `sent` pieces from the sender's memory must tell."""
    checksums = [checksum(memory[place(number, PIECES)]) for number in range(PIECES)]
    return hashlib.sha256(b"".join(checksums[number % PIECES] for number in range(sent))).hexdigest()


def send(
    result: DemoResult, console: Console, *, planes: int, seconds: float, most: int | None, timeout: float
) -> None:
    """Send to a second process over all planes, wait until planes are back, and compare what arrived.

    The transfer ends after some seconds, or after `most` pieces.
    """
    content = np.random.default_rng(1).integers(0, 256, PIECES * PIECE, np.uint8)  # always the same
    title = f"MRC, from memory to memory over {planes} planes"
    endpoint = EndpointOptions(tuple(loopback_planes(planes, EndpointSide.CLIENT)))
    options = ConnectionOptions(user_timeout=timeout)
    with (
        open_endpoint(endpoint) as context,
        SecondProcess([str(planes), result.faults], __name__) as receiver,
        closing(View(console, f"{context.describe()}\n{title}", range(planes), result.outages)) as view,
        context.alloc_pd().reg_mr(content) as region,
        connect(
            context, "127.0.0.1", receiver.port, regions=[region], options=options, timeout=ESTABLISH_SECONDS,
            token=receiver.token,
        ) as connection,
    ):  # fmt: skip
        conversation = Conversation(connection, int | str, timeout)
        shares = partial(Meter(context).shares, [connection.qp])
        try:
            with conversation.reporting():
                conversation.hear(int)
                context.impair(Schedule.parse(result.faults))
                recorder = Recorder(result, view.show, lambda: [(each.sent_bytes, each.evs) for each in shares()])
                sent = _send_pieces(conversation, region, recorder, seconds, most)
                deadline = recorder.at + RETURN_SECONDS
                while recorder.at < deadline and unused_planes(shares(), result.outages):
                    time.sleep(SAMPLE_SECONDS)
                    recorder.sample()
                conversation.tell(sent)
                found = conversation.hear(str)
        finally:
            result.planes = shares()
    result.judge(found, digest_of(content, sent))


def _send_pieces(
    conversation: Conversation, region: MemoryRegion, recorder: Recorder, seconds: float, most: int | None
) -> int:
    """Post pieces until the time or the pieces are used up, and wait until all are read; return their number."""
    pair, remote = conversation.connection.qp, conversation.connection.remote.regions[0]
    posted = written = read = 0  # pieces: of these, acknowledged, and read by the receiver
    while True:
        is_over = recorder.at >= seconds if most is None else posted == most
        if is_over and posted == written == read:
            return posted
        if not is_over and posted - read < SLOTS:
            target = remote[place(posted, SLOTS)]
            pair.post_write(region[place(posted, PIECES)], target.addr, target.r_key, immediate=posted)
            posted += 1
            continue
        written += len(conversation.wait(conversation.connection.send_cq, SAMPLE_SECONDS, or_message=True))
        while conversation.has_message():
            read = conversation.hear(int)
        if recorder.count(read * PIECE) > conversation.timeout:
            raise conversation.stalled()


def receive(listener: Listener, faults: Schedule) -> None:
    """Receive from one sender until it ends, and tell it what arrived."""
    options = ConnectionOptions(user_timeout=TIMEOUT)
    with (
        listener.context.alloc_pd().reg_mr(bytearray(SLOTS * PIECE)) as region,
        listener.accept(regions=[region], options=options, timeout=TIMEOUT) as connection,
    ):
        conversation, digest, read = Conversation(connection, int, TIMEOUT), hashlib.sha256(), 0
        with conversation.reporting():
            connection.qp.post_recv(2 * SLOTS)
            listener.context.impair(faults)
            conversation.tell(read)
            while arrived := conversation.wait(connection.recv_cq, TIMEOUT, or_message=True):
                connection.qp.post_recv(len(arrived))
                for _ in arrived:
                    digest.update(checksum(region.bytes[place(read, SLOTS)]))
                    read += 1
                    conversation.tell(read)
            conversation.hear(int)
            conversation.tell(digest.hexdigest())


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
            receive(listener, Schedule.parse(faults, "--impair"))
    except MrcError as error:
        sys.exit(f"mrc demo, receiver: {error}")


if __name__ == "__main__":
    main()
