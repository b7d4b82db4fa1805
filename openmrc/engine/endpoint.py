"""The doors of the engine: everything a world may ask of an endpoint, and nothing else.

A world - sockets, a simulator, a test - owns clock, network and memory. It hands arrived packets to
`receive`, fetches packets with `next_packet` until there is none, calls `expire` when
`next_deadline` has come, and drains `next_completion` and `next_event`. Commands are `post_write`,
`post_receive` and `set_port`. `now` is picoseconds and never goes back. After any other call, ask
`next_packet` again: there may be something to send.
"""

from __future__ import annotations

from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine import (
    completions,
    control_tx,
    deadlines,
    endpoint_ops,
    events,
    messages,
    ports,
    requester,
    responder,
)
from openmrc.engine.queue_pairs import by_qpn
from openmrc.engine.states import QpState
from openmrc.engine.tables import NONE, Engine, WriteRequest
from openmrc.wire.codes import ENDPOINT_QPN, Opcode
from openmrc.wire.packet import NOWHERE


@kernel
def receive(engine: Engine, now: int, endpoint: int, packet: int) -> None:
    """Take one packet off the network; packets[packet] is filled, save `payload`.

    Afterwards `payload` says where the world must place the bytes (the region's `local` + offset),
    or NOWHERE. The world places them before it drains completions.
    """
    arrived = engine.packets[packet]
    arrived.payload = NOWHERE
    if arrived.dest_qpn == ENDPOINT_QPN:
        endpoint_ops.receive(engine, now, endpoint, packet)
        return
    qp = by_qpn(engine, endpoint, arrived.dest_qpn)
    if qp == NONE:
        engine.endpoints[endpoint].unknown_qp += 1
        return
    row = engine.qps[qp]
    if arrived.source != engine.peers[row.peer].address:
        engine.endpoints[endpoint].wrong_source += 1
        return
    _count_arrival(engine, endpoint, packet)
    row.heard_rotation = arrived.port
    row.heard_ports |= 1 << arrived.port
    opcode = arrived.opcode
    if opcode <= Opcode.WRITE_ONLY_IMM:
        responder.on_data(engine, now, qp, packet)
    elif opcode == Opcode.PROBE:
        responder.on_probe(engine, now, qp, packet)
    elif row.state == QpState.RTS:
        requester.on_answer(engine, now, qp, packet)


@rare_kernel
def turn_away(engine: Engine, endpoint: int, packet: int, reason: int) -> None:
    """Refuse an arrived data packet instead of taking it: the world has no room for its payload.

    `reason` is NackReason.NO_PKT_BUFFER or NO_RESOURCE.
    """
    arrived = engine.packets[packet]
    qp = by_qpn(engine, endpoint, arrived.dest_qpn)
    if qp == NONE or arrived.opcode > Opcode.WRITE_ONLY_IMM:
        return
    if arrived.source == engine.peers[engine.qps[qp].peer].address:
        responder.turn_away(engine, qp, packet, reason)


@kernel
def next_packet(engine: Engine, now: int, endpoint: int, free_ports: int, packet: int) -> int:
    """Fill packets[packet] with the next packet to send and return 1, or return 0: there is none.

    `free_ports` is a mask of ports that can take a data packet now; control packets do not ask.
    Its `port` says where it goes, `payload` and `payload_length` which bytes to gather.
    """
    if control_tx.next_packet(engine, now, endpoint, packet) == 1:
        return 1
    if free_ports == 0:
        return 0
    return requester.next_packet(engine, now, endpoint, free_ports, packet)


@kernel
def next_deadline(engine: Engine, endpoint: int) -> int:
    """Return the time (ps) at which `expire` wants to be called; NEVER if nothing is pending.

    It may be early: then `expire` finds nothing to do and the next deadline is later.
    """
    return engine.endpoints[endpoint].deadline


@kernel
def expire(engine: Engine, now: int, endpoint: int) -> None:
    """Do what time has made due."""
    if engine.endpoints[endpoint].deadline <= now:
        deadlines.expire(engine, now, endpoint)


@kernel
def next_completion(engine: Engine, endpoint: int) -> int:
    """Return the row in `completions` of the oldest one not yet taken, or NONE."""
    return completions.take(engine, endpoint)


@kernel
def next_event(engine: Engine, endpoint: int) -> int:
    """Return the row in `events` of the oldest one not yet taken, or NONE."""
    return events.take(engine, endpoint)


@kernel
def post_write(engine: Engine, now: int, qp: int, write: WriteRequest) -> int:
    """Post an RDMA write; return a messages.PostStatus. The row may be used again at once."""
    return messages.post_write(engine, now, qp, write)


@kernel
def post_receive(engine: Engine, qp: int, wr_id: int) -> int:
    """Post a receive for one WriteIMM; return a messages.PostStatus."""
    return messages.post_receive(engine, qp, wr_id)


@kernel
def set_port(engine: Engine, now: int, endpoint: int, port: int, up: int) -> None:
    """Tell the endpoint that one of its own ports works, or does not."""
    ports.set_local(engine, now, endpoint, port, up)


@kernel
def _count_arrival(engine: Engine, endpoint: int, packet: int) -> None:
    arrived = engine.packets[packet]
    port = engine.ports[engine.endpoints[endpoint].port_base + arrived.port]
    port.marked += arrived.marked
    if arrived.opcode <= Opcode.WRITE_ONLY_IMM:
        port.received_packets += 1
        if arrived.trimmed == 0:
            port.received_bytes += arrived.payload_length
        else:
            port.trimmed += 1
    else:
        port.control_received += 1
