"""Ports that come and go, on this side and on the peer's (MRC §7.4.8, §9.3.2).

A port that is down makes its EVs ineligible at once and forgets nothing about them; when it is back
its bad EVs are probed soon. Peers are told by Port Status Updates until they answer: three at 0, 1
and 10 round trips on different planes, then at a steady interval.
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine import control_queue, events, paths, scheduler, timers
from openmrc.engine.queue_pairs import params_of_peer, receives_data
from openmrc.engine.tables import NONE, Engine, EventKind
from openmrc.units import NEVER
from openmrc.wire.codes import EndpointOp, Opcode

STATUS_PROBE_ID = 0xF000  # probe_ids from here on belong to Port Status Updates, by peer
_PEER_MASK = 0x0FFF


@rare_kernel
def set_local(engine: Engine, now: int, endpoint: int, port: int, up: int) -> None:
    """Note the wanted state of a port; it counts after the remap delay."""
    node = engine.endpoints[endpoint]
    if up == 1:
        node.ports_wanted |= 1 << port
    else:
        node.ports_wanted &= ~(1 << port)
    delay = engine.params[node.params].port_remap_delay
    if delay == 0:
        apply_local(engine, now, endpoint)
    elif node.remap_at == NEVER:
        node.remap_at = now + delay
        timers.arm_endpoint(engine, endpoint, node.remap_at)


@rare_kernel
def apply_local(engine: Engine, now: int, endpoint: int) -> None:
    """Make the wanted port states count, and begin to tell every peer."""
    node = engine.endpoints[endpoint]
    node.remap_at = NEVER
    if node.ports_up == node.ports_wanted:
        return
    risen = node.ports_wanted & ~node.ports_up
    node.ports_up = node.ports_wanted
    events.push(engine, now, endpoint, EventKind.LOCAL_PORTS, NONE, NONE, NONE, 0, node.ports_up, 0)
    for peer in range(node.peer_base, node.peer_base + node.peer_count):
        if _live_qp(engine, endpoint, peer) != NONE:
            _begin_telling(engine, now, peer)
            scheduler.wake_peer(engine, peer)
    _wake_rotations(engine, now, endpoint, NONE, risen)


@rare_kernel
def introduce(engine: Engine, now: int, peer: int) -> None:
    """Tell a peer that has just been connected to which ports work, if not all: it takes them to."""
    node = engine.endpoints[engine.peers[peer].endpoint]
    if node.ports_up != (1 << node.port_count) - 1 and engine.peers[peer].status_pending == 0:
        _begin_telling(engine, now, peer)


@rare_kernel
def set_remote(engine: Engine, now: int, endpoint: int, peer: int, mask: int) -> None:
    """Take a peer's Port Status Update: bit n of the wire's mask is port n, from 1."""
    row = engine.peers[peer]
    ports_up = (mask >> 1) & ((1 << engine.endpoints[endpoint].port_count) - 1)
    if ports_up == row.ports_up:
        return
    risen = ports_up & ~row.ports_up
    row.ports_up = ports_up
    events.push(engine, now, endpoint, EventKind.PEER_PORTS, NONE, peer, NONE, 0, ports_up, 0)
    scheduler.wake_peer(engine, peer)
    _wake_rotations(engine, now, endpoint, peer, risen)


@rare_kernel
def tell(engine: Engine, now: int, peer: int) -> None:
    """Send one Port Status Update and set the time of the next."""
    row = engine.peers[peer]
    node = engine.endpoints[row.endpoint]
    if row.status_pending == 0 or node.ports_up == 0:
        row.status_deadline = NEVER
        return
    qp = _live_qp(engine, row.endpoint, peer)
    if qp == NONE:
        row.status_deadline = NEVER
        return
    port = _pick_port(node.ports_up, node.port_count, row.status_attempts)
    index = control_queue.claim(engine, row.endpoint, Opcode.ENDPOINT_REQUEST, NONE, peer)
    if index != NONE:
        waiting = engine.control[index]
        waiting.psn = STATUS_PROBE_ID | ((peer - node.peer_base) & _PEER_MASK)
        waiting.reason = EndpointOp.PORT_STATUS_UPDATE
        waiting.mask = node.ports_up << 1
        waiting.port = port
        waiting.entropy = engine.evs[engine.rotations[engine.qps[qp].rotation_base + port].reverse].value
    row.status_attempts += 1
    row.status_deadline = now + _gap(engine, peer)
    timers.arm_endpoint(engine, row.endpoint, row.status_deadline)


@rare_kernel
def on_answer(engine: Engine, endpoint: int, probe_id: int) -> None:
    """A peer has answered a Port Status Update."""
    node = engine.endpoints[endpoint]
    index = probe_id & _PEER_MASK
    if index < node.peer_count:
        engine.peers[node.peer_base + index].status_pending = 0


@kernel
def _begin_telling(engine: Engine, now: int, peer: int) -> None:
    row = engine.peers[peer]
    row.status_pending = 1
    row.status_attempts = 0
    row.status_deadline = now
    timers.arm_endpoint(engine, row.endpoint, now)


@kernel
def _gap(engine: Engine, peer: int) -> int:
    row = engine.peers[peer]
    round_trip = max(row.srtt, row.base_rtt)
    if row.status_attempts == 1:
        return round_trip
    if row.status_attempts == 2:
        return 9 * round_trip
    return params_of_peer(engine, peer).port_status_interval


@kernel
def _pick_port(mask: int, count: int, turn: int) -> int:
    """Return the working port number `turn`, counted round and round; the mask is not empty."""
    working = 0
    for port in range(count):
        working += (mask >> port) & 1
    rank = turn % working
    for port in range(count):
        if (mask >> port) & 1 == 1:
            if rank == 0:
                return port
            rank -= 1
    return 0


@kernel
def _live_qp(engine: Engine, endpoint: int, peer: int) -> int:
    node = engine.endpoints[endpoint]
    for qp in range(node.qp_base, node.qp_base + node.qp_count):
        if engine.qps[qp].peer == peer and receives_data(engine.qps[qp].state):
            return qp
    return NONE


@rare_kernel
def _wake_rotations(engine: Engine, now: int, endpoint: int, peer: int, risen: int) -> None:
    """Note that ports came back, of one peer's queue pairs or of all, and probe their bad EVs."""
    node = engine.endpoints[endpoint]
    if risen == 0:
        return
    for qp in range(node.qp_base, node.qp_base + node.qp_count):
        row = engine.qps[qp]
        if receives_data(row.state) and (peer == NONE or row.peer == peer):
            for rotation in range(row.rotation_base, row.rotation_base + row.rotation_count):
                if (risen >> engine.rotations[rotation].port) & 1 == 1:
                    engine.rotations[rotation].risen_at = now
                    paths.wake_rotation(engine, now, rotation)
