"""The public interface of the engine (sans-IO).

The caller - a socket event loop, a simulator, a test - owns clock, network and memory. It passes received packets to
`receive`, calls `next_packet` until there is none, calls `expire` when `next_deadline` is reached, and drains
`next_completion` and `next_event`. Commands are `post_write`, `post_receive` and `set_port`. `now` is monotonic, in
picoseconds. Any other call may make a packet available: call `next_packet` again afterwards.
"""

from openmrc.core.jit import kernel
from openmrc.engine import control_tx, deadlines, endpoint_ops, messages
from openmrc.engine.paths import ports
from openmrc.engine.requester import transmission
from openmrc.engine.responder import acceptance
from openmrc.engine.state import completions, events
from openmrc.engine.state.machines import QpState
from openmrc.engine.state.queue_pairs import by_qpn
from openmrc.engine.state.tables import NONE, Engine, WriteRequest
from openmrc.wire.codes import ENDPOINT_QPN, Opcode
from openmrc.wire.packet import NOWHERE


@kernel
def receive(engine: Engine, now: int, endpoint: int, packet: int) -> None:
    """Process a received packet; packets[packet] is filled, except `payload`.

    On return `payload` is the address at which the caller must place the payload (the region's `local` + offset), or
    NOWHERE. The caller places it before it drains completions.
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
        acceptance.on_data(engine, now, qp, packet)
    elif opcode == Opcode.PROBE:
        acceptance.on_probe(engine, now, qp, packet)
    elif row.state == QpState.RTS:
        transmission.on_answer(engine, now, qp, packet)


@kernel
def next_packet(engine: Engine, now: int, endpoint: int, free_ports: int, packet: int) -> int:
    """Fill packets[packet] with the next packet to send and return 1; return 0 if there is none.

    `free_ports` is the mask of ports that accept a data packet now; control packets ignore it. `port` is the port to
    send on, `payload` and `payload_length` the bytes to gather.
    """
    node = engine.endpoints[endpoint]
    while True:
        ahead = node.data_ahead
        if ahead == 0 and control_tx.next_packet(engine, now, endpoint, packet) == 1:
            return 1
        found = 0
        if free_ports != 0:
            found = transmission.next_packet(engine, now, endpoint, free_ports, packet)
        if ahead == 0:
            return found
        node.data_ahead = ahead - 1 if found == 1 else 0
        if found == 1:
            return 1


@kernel
def put_data_first(engine: Engine, endpoint: int, packets: int) -> None:
    """Let up to `packets` data packets leave before the control packets that wait; fewer if there are fewer."""
    engine.endpoints[endpoint].data_ahead = packets


@kernel
def next_deadline(engine: Engine, endpoint: int) -> int:
    """Return the time (ps) at which `expire` must be called, NEVER if no timer is armed.

    It may be early: `expire` then does nothing but set a later deadline.
    """
    return engine.endpoints[endpoint].deadline


@kernel
def expire(engine: Engine, now: int, endpoint: int) -> None:
    """Serve the timers that are due at `now`."""
    if engine.endpoints[endpoint].deadline <= now:
        deadlines.expire(engine, now, endpoint)


@kernel
def next_completion(engine: Engine, endpoint: int) -> int:
    """Remove the oldest completion and return its row in `completions`, or NONE."""
    return completions.take(engine, endpoint)


@kernel
def next_event(engine: Engine, endpoint: int) -> int:
    """Remove the oldest event and return its row in `events`, or NONE."""
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
    """Set the state of a local port: 1 up, 0 down."""
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
