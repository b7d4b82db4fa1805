"""A test stream over MRC: writes with immediate into a ring; slots are returned by writes in the other direction."""

from __future__ import annotations

import mmap
import time

from bench.lab.experiments.pieces import PIECE, Log, write_piece
from openmrc.programs.endpoint.opening import EndpointOptions, open_endpoint
from openmrc.verbs import NO_TOKEN, Connection, ConnectionOptions, Context, Listener, MemoryRegion, SendWr, connect

SLOTS = 512  # pieces of the ring, and receives posted
OUTSTANDING = 96  # pieces posted and not completed
_POSTED = 8  # pieces per call: the interpreter must leave the processors to the fabric
_CREDIT_EVERY = 32
_PATIENCE = 60.0  # s without progress
_OPENING = 120.0  # s; the engine may have to be compiled first


def receive(port: int) -> Log:
    """Receive one stream to its end."""
    log = Log("mrc")
    with open_endpoint(EndpointOptions()) as context:
        ring = context.alloc_pd().reg_mr(mmap.mmap(-1, SLOTS * PIECE))
        with Listener(context, "", port, token=NO_TOKEN) as listener:  # an isolated network without other users
            asked = ConnectionOptions(max_recv_wr=SLOTS)
            with listener.accept(regions=[ring], options=asked, timeout=_OPENING) as connection:
                connection.qp.post_recv(SLOTS)
                connection.tell("post")
                _take(connection, ring, log)
                log.facts = _facts(context)
    return log


def _take(connection: Connection, ring: MemoryRegion, log: Log) -> None:
    memory = memoryview(ring.bytes.data)
    remote, given = connection.remote.regions[0], 0
    while log.sent < 0 or len(log.times) < log.sent:
        for done in connection.recv_cq.wait(_PATIENCE):
            if done.byte_len == 0:
                log.sent = done.immediate or 0
                continue
            at = len(log.times) % SLOTS * PIECE
            log.take(memory[at : at + PIECE])
        if len(log.times) - given >= _CREDIT_EVERY:
            connection.qp.post_recv(len(log.times) - given)
            given = len(log.times)
            connection.qp.post_write(ring[:8], remote.addr, remote.r_key, immediate=given)
        connection.send_cq.poll()
    connection.tell("all")
    connection.hear(str, timeout=_PATIENCE)


def send(host: str, port: int, seconds: float) -> None:
    """Send as fast as the network allows for a time."""
    with open_endpoint(EndpointOptions()) as context:
        domain = context.alloc_pd()
        ring, credit = domain.reg_mr(mmap.mmap(-1, SLOTS * PIECE)), domain.reg_mr(mmap.mmap(-1, 4096))
        asked = ConnectionOptions(max_send_wr=OUTSTANDING + 1, max_recv_wr=SLOTS)
        with connect(context, host, port, regions=[credit], options=asked, timeout=_OPENING) as connection:
            connection.qp.post_recv(SLOTS // _CREDIT_EVERY)
            connection.hear(str, timeout=_PATIENCE)
            count = _give(connection, ring, seconds)
            remote = connection.remote.regions[0]
            connection.qp.post_write(ring[:0], remote.addr, remote.r_key, immediate=count)
            connection.hear(str, timeout=_PATIENCE)
            connection.tell("bye")


def _give(connection: Connection, ring: MemoryRegion, seconds: float) -> int:
    posted = completed = credited = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until or completed < posted:
        is_over = time.monotonic() >= until
        is_full = posted - completed > OUTSTANDING - _POSTED
        has_room = posted - credited < SLOTS - _POSTED
        if not is_over and not is_full and has_room:
            _post(connection, ring, posted)
            posted += _POSTED
        waits = is_full or (is_over and completed < posted)
        for done in connection.send_cq.wait(_PATIENCE) if waits else connection.send_cq.poll():
            if not done.ok:
                raise ConnectionError(done.error)
            completed = done.wr_id
        credits = connection.recv_cq.poll()
        for each in credits:
            credited = max(credited, each.immediate or 0)
        if credits:
            connection.qp.post_recv(len(credits))
        elif not is_full and not has_room:
            time.sleep(0.0002)
    return posted


def _post(connection: Connection, ring: MemoryRegion, first: int) -> None:
    """Post the next pieces; the last one's completion covers all of them."""
    memory, remote = memoryview(ring.bytes.data), connection.remote.regions[0]
    requests = []
    for number in range(first, first + _POSTED):
        at = number % SLOTS * PIECE
        piece = slice(at, at + PIECE)
        write_piece(memory[piece], number)
        is_last = number + 1 == first + _POSTED
        address = remote.addr + at
        requests.append(
            SendWr(
                wr_id=number + 1,
                local=ring[piece],
                remote_addr=address,
                r_key=remote.r_key,
                immediate=0,
                signaled=is_last,
            )
        )
    connection.qp.post_send(requests)


def _facts(context: Context) -> dict[str, object]:
    counted = context.plane_counters()
    names = ("received_packets", "marked", "trimmed", "refused", "kernel_drops")
    return {name: [getattr(plane, name) for plane in counted] for name in names}
