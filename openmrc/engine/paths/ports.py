"""Port state changes, local and of peers (MRC §7.4.8, §9.3.2).

The EVs of a port that is down are ineligible and keep their states; when the port is up again its bad EVs are probed
soon. Peers are informed by Port Status Updates until they respond: at 0, 1 and 10 round trips on different planes, then
at `port_status_interval`.

Updates are not authenticated. An update that arrives on a port which it reports as down is ignored. Ports that a peer
reports as down are probed at `port_status_interval`; a response shows that the port works and ends a forged update.
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.core.serial import TIMESTAMP_BITS, distance
from openmrc.engine.congestion import scheduler
from openmrc.engine.paths import ev_states, silence
from openmrc.engine.state import clock, control_queue, events, timers
from openmrc.engine.state.queue_pairs import params_of_peer, receives_data, round_trip
from openmrc.engine.state.tables import NONE, Engine, EventKind
from openmrc.units import NEVER
from openmrc.wire.codes import EndpointOp, Opcode

CONTROLLER_PROBE_ID = 0xC000  # probe_ids from here on: requests of a controller
CHECK_PROBE_ID = 0xE000  # probe_ids from here on: probes of ports that a peer reports as down, by peer
STATUS_PROBE_ID = 0xF000  # probe_ids from here on: Port Status Updates, by peer
_PEER_MASK = 0x0FFF
NO_MASK = -1  # of `ask`


@rare_kernel
def set_local(engine: Engine, now: int, endpoint: int, port: int, up: int) -> None:
    """Set the state of a local port; it takes effect after the remap delay."""
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
    """Put the wanted port states into effect and start Port Status Updates to every connected peer."""
    node = engine.endpoints[endpoint]
    node.remap_at = NEVER
    if node.ports_up == node.ports_wanted:
        return
    risen = node.ports_wanted & ~node.ports_up
    node.ports_up = node.ports_wanted
    index = events.claim(engine, now, endpoint, EventKind.LOCAL_PORTS)
    if index != NONE:
        engine.events[index].state = node.ports_up
    for peer in range(node.peer_base, node.peer_base + node.peer_count):
        if _live_qp(engine, endpoint, peer) != NONE:
            _begin_telling(engine, now, peer)
            scheduler.wake_peer(engine, peer)
    _wake_rotations(engine, now, endpoint, NONE, risen)
    _ensure_usable(engine, now, endpoint, NONE)


@rare_kernel
def introduce(engine: Engine, now: int, peer: int) -> None:
    """Start Port Status Updates to a newly connected peer if a port is down: peers assume that all are up."""
    node = engine.endpoints[engine.peers[peer].endpoint]
    if node.ports_up != (1 << node.port_count) - 1 and not engine.peers[peer].status_pending:
        _begin_telling(engine, now, peer)


@kernel
def is_consistent(mask: int, port: int) -> bool:
    """Return whether a Port Status Update reports the port up on which it arrived: bit n is port n, from 1."""
    return (mask >> (port + 1)) & 1 == 1


@kernel
def is_overtaken(engine: Engine, now: int, peer: int, packet: int) -> bool:
    """Return whether a Port Status Update was sent before the last one that counted; if not, it counts.

    Updates leave on different ports, so the news that a port is up may arrive before the news that it is down.
    """
    row = engine.peers[peer]
    arrived = engine.packets[packet]
    is_comparable = clock.is_unambiguous(now - row.update_at, arrived.timestamp_unit)
    if is_comparable and distance(arrived.tx_timestamp, row.update_stamp, TIMESTAMP_BITS) < 0:
        return True
    row.update_stamp = arrived.tx_timestamp
    row.update_at = now
    return False


@rare_kernel
def set_remote(engine: Engine, now: int, peer: int, mask: int) -> None:
    """Process a Port Status Update: bit n of `mask` is port n, from 1."""
    row = engine.peers[peer]
    node = engine.endpoints[row.endpoint]
    row.check_pending = False  # responses in flight were sent before this update
    _set_peer_ports(engine, now, peer, (mask >> 1) & ((1 << node.port_count) - 1))
    if row.ports_up != (1 << node.port_count) - 1 and row.check_deadline == NEVER:
        row.check_deadline = now + params_of_peer(engine, peer).port_status_interval
        timers.arm_peers(engine, row.endpoint, row.check_deadline)


@rare_kernel
def check(engine: Engine, now: int, peer: int) -> None:
    """Probe one of the ports that a peer reports as down, round-robin, and arm the next probe."""
    row = engine.peers[peer]
    node = engine.endpoints[row.endpoint]
    qp = _live_qp(engine, row.endpoint, peer)
    row.check_deadline = NEVER
    if qp == NONE or row.ports_up == (1 << node.port_count) - 1:
        return
    doubtful = node.ports_up & ~row.ports_up
    if doubtful != 0:
        port = _pick_port(doubtful, node.port_count, row.check_attempts)
        _request(engine, peer, qp, port, CHECK_PROBE_ID, NO_MASK)
        row.check_attempts += 1
        row.check_pending = True
    row.check_deadline = now + params_of_peer(engine, peer).port_status_interval
    timers.arm_peers(engine, row.endpoint, row.check_deadline)


@kernel
def _set_peer_ports(engine: Engine, now: int, peer: int, ports_up: int) -> None:
    row = engine.peers[peer]
    if ports_up == row.ports_up:
        return
    risen = ports_up & ~row.ports_up
    row.ports_up = ports_up
    index = events.claim(engine, now, row.endpoint, EventKind.PEER_PORTS)
    if index != NONE:
        engine.events[index].peer = peer
        engine.events[index].state = ports_up
    scheduler.wake_peer(engine, peer)
    _wake_rotations(engine, now, row.endpoint, peer, risen)
    _ensure_usable(engine, now, row.endpoint, peer)


@rare_kernel
def tell(engine: Engine, now: int, peer: int) -> None:
    """Send a Port Status Update and arm the next one."""
    row = engine.peers[peer]
    node = engine.endpoints[row.endpoint]
    if not row.status_pending or node.ports_up == 0:
        row.status_deadline = NEVER
        return
    qp = _live_qp(engine, row.endpoint, peer)
    if qp == NONE:
        row.status_deadline = NEVER
        return
    port = _pick_port(node.ports_up, node.port_count, row.status_attempts)
    _request(engine, peer, qp, port, STATUS_PROBE_ID, node.ports_up << 1)
    row.status_attempts += 1
    row.status_deadline = now + _gap(engine, peer)
    timers.arm_peers(engine, row.endpoint, row.status_deadline)


@rare_kernel
def on_answer(engine: Engine, now: int, peer: int, probe_id: int, port: int) -> None:
    """Process a response to a Port Status Update, or to a probe of a port that the peer reports as down."""
    row = engine.peers[peer]
    if probe_id & _PEER_MASK != _number(engine, peer):
        return
    if probe_id >= STATUS_PROBE_ID:
        row.status_pending = False
    elif row.check_pending:
        _set_peer_ports(engine, now, peer, row.ports_up | 1 << port)


@rare_kernel
def ask(engine: Engine, peer: int, port: int, entropy: int, probe_id: int, mask: int) -> int:
    """Queue a request: an EV probe with NO_MASK, or with `mask` >= 0 a Port Status Update; return 0 without room."""
    index = control_queue.claim(engine, engine.peers[peer].endpoint, Opcode.ENDPOINT_REQUEST, NONE, peer)
    if index == NONE:
        return 0
    waiting = engine.control[index]
    waiting.psn = probe_id
    waiting.reason = EndpointOp.EV_PROBE if mask < 0 else EndpointOp.PORT_STATUS_UPDATE
    waiting.mask = max(mask, 0)
    waiting.port = port
    waiting.entropy = entropy
    return 1


@kernel
def _request(engine: Engine, peer: int, qp: int, port: int, kind: int, mask: int) -> None:
    rotation = engine.rotations[engine.qps[qp].rotation_base + port]
    entropy = engine.evs[rotation.ev_base + rotation.reverse].value
    ask(engine, peer, port, entropy, kind | _number(engine, peer), mask)


@kernel
def _number(engine: Engine, peer: int) -> int:
    """Return the low bits of the probe_ids of a peer's requests."""
    return (peer - engine.endpoints[engine.peers[peer].endpoint].peer_base) & _PEER_MASK


@kernel
def _begin_telling(engine: Engine, now: int, peer: int) -> None:
    row = engine.peers[peer]
    row.status_pending = True
    row.status_attempts = 0
    row.status_deadline = now
    timers.arm_peers(engine, row.endpoint, now)


@kernel
def _gap(engine: Engine, peer: int) -> int:
    row = engine.peers[peer]
    if row.status_attempts == 1:
        return round_trip(engine, peer)
    if row.status_attempts == 2:
        return 9 * round_trip(engine, peer)
    return params_of_peer(engine, peer).port_status_interval


@kernel
def _pick_port(mask: int, count: int, turn: int) -> int:
    """Return the port of set bit number `turn` modulo the count of set bits; `mask` is not 0."""
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
def _ensure_usable(engine: Engine, now: int, endpoint: int, peer: int) -> None:
    """See that the queue pairs of one peer or of all (NONE) can send, if any port works."""
    node = engine.endpoints[endpoint]
    for qp in range(node.qp_base, node.qp_base + node.qp_count):
        row = engine.qps[qp]
        if receives_data(row.state) and (peer == NONE or row.peer == peer):
            ev_states.ensure_usable(engine, now, qp)


@rare_kernel
def _wake_rotations(engine: Engine, now: int, endpoint: int, peer: int, risen: int) -> None:
    """Record that ports came up, for the queue pairs of one peer or of all, and probe their bad EVs."""
    node = engine.endpoints[endpoint]
    if risen == 0:
        return
    silence.forget_ports(engine, endpoint, risen)
    for qp in range(node.qp_base, node.qp_base + node.qp_count):
        row = engine.qps[qp]
        if receives_data(row.state) and (peer == NONE or row.peer == peer):
            for rotation in range(row.rotation_base, row.rotation_base + row.rotation_count):
                if (risen >> engine.rotations[rotation].port) & 1 == 1:
                    engine.port_returns[rotation].risen_at = now
                    silence.end(engine, now, rotation)
                    ev_states.wake_rotation(engine, now, rotation)
