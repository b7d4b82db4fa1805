"""Return paths of control packets: a responder with nothing to send tests them by EV probes (MRC §6.5.2, §7.4.7).

The rotations are probed in turn, one probe at a time. An answer proves an EV, which becomes the reverse EV of its
rotation and is the one probed from then on; a rotation without a proven EV probes a random one. Without an answer until
the next turn the EV is no longer proven, and control packets prefer other rotations.

Duplicates and reliability probes indicate lost answers: the next control packets then use other EVs at once, except
where one is proven, and the next EV probe leaves after a round trip. A probe of a bad EV looks to a responder like one
that asks for a lost answer. If each of them gave up EVs that are known to work, answers would return on random ones,
of which most are dead when most uplinks are: one in twenty probes was answered so (docs/decisions/0041-small-loss.md).
"""

from openmrc.core import rng
from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine.state import control_queue, timers
from openmrc.engine.state.queue_pairs import params_of, working_ports
from openmrc.engine.state.states import EvState
from openmrc.engine.state.tables import NONE, Deadline, Engine
from openmrc.wire.codes import EndpointOp, Opcode

_ROTATION_BITS = 4  # of a probe_id: the rotation; the other 12 bits are the queue pair
MAX_QPS = 0xC00  # queue pairs of an endpoint beyond this many do not probe: their ids belong to `ports`


@rare_kernel
def on_deadline(engine: Engine, now: int, qp: int) -> None:
    """Probe the next rotation, if data arrived and none was sent since the last probe."""
    row = engine.qps[qp]
    timers.disarm(engine, qp, Deadline.REVERSE)
    received = row.data_since_reverse
    row.data_since_reverse = 0
    if received == 0:
        return  # idle: the next data packet arms the timer again
    if row.unack_psn == row.next_psn:
        _probe(engine, qp)
    interval = params_of(engine, qp).reverse_probe_interval
    timers.arm(engine, qp, Deadline.REVERSE, now + max(interval, engine.peers[row.peer].base_rtt))


@rare_kernel
def on_answer(engine: Engine, peer: int, probe_id: int) -> None:
    """Process the answer to an EV probe: control packets of the rotation use its EV from now on."""
    node = engine.endpoints[engine.peers[peer].endpoint]
    index = probe_id >> _ROTATION_BITS
    if index >= min(node.qp_count, MAX_QPS):
        return
    row = engine.qps[node.qp_base + index]
    number = probe_id & ((1 << _ROTATION_BITS) - 1)
    if row.peer != peer or number >= row.rotation_count:
        return
    rotation = engine.rotations[row.rotation_base + number]
    if rotation.reverse_probe:
        rotation.reverse_probe = False
        rotation.reverse_ok = True
        if engine.evs[rotation.ev_base + rotation.reverse_candidate].state != EvState.DENIED:  # meanwhile
            rotation.reverse = rotation.reverse_candidate
            rotation.reverse_proven = True


@rare_kernel
def on_doubt(engine: Engine, now: int, qp: int) -> None:
    """Select random return EVs where none is proven, because answers may have been lost.

    SACKs and transport ACKs that alternated over two planes would always use the same one each. In half of the cases
    planes without arrivals are used too: the forward direction may work on other planes than the return direction.
    If no EV is proven, the results of EV probes are discarded, because a probe needs both directions.
    """
    row = engine.qps[qp]
    node = engine.endpoints[row.endpoint]
    node.random = rng.following(node.random)
    row.control_rotation = rng.below(node.random, row.rotation_count)
    if node.random & 1 == 1:
        row.heard_ports = (1 << row.rotation_count) - 1
    is_one_proven = _is_one_proven(engine, qp)
    for index in range(row.rotation_base, row.rotation_base + row.rotation_count):
        if not engine.rotations[index].reverse_proven:
            engine.rotations[index].reverse_ok = not is_one_proven
            _draw(engine, row.endpoint, index)
    if params_of(engine, qp).reverse_probe_interval > 0:
        row.data_since_reverse += 1
        timers.arm_by(engine, qp, Deadline.REVERSE, now + engine.peers[row.peer].base_rtt)


@kernel
def _is_one_proven(engine: Engine, qp: int) -> bool:
    """Return whether the reverse EV of some working port is proven, and the port has EVs for control packets."""
    row = engine.qps[qp]
    working = working_ports(engine, qp)
    for index in range(row.rotation_base, row.rotation_base + row.rotation_count):
        rotation = engine.rotations[index]
        if rotation.reverse_proven and rotation.active > 0 and (working >> rotation.port) & 1 == 1:
            return True
    return False


@kernel
def _draw(engine: Engine, endpoint: int, index: int) -> None:
    """Select a random active EV of a rotation as its reverse EV."""
    rotation = engine.rotations[index]
    if rotation.active > 0:
        node = engine.endpoints[endpoint]
        node.random = rng.following(node.random)
        position = rng.below(node.random, rotation.active)
        rotation.reverse = engine.slots[rotation.ev_base + position].ev


@kernel
def _probe(engine: Engine, qp: int) -> None:
    row = engine.qps[qp]
    node = engine.endpoints[row.endpoint]
    if qp - node.qp_base >= MAX_QPS:
        return
    row.reverse_cursor = (row.reverse_cursor + 1) % row.rotation_count
    rotation = engine.rotations[row.rotation_base + row.reverse_cursor]
    if (working_ports(engine, qp) >> rotation.port) & 1 == 0:
        return
    if rotation.reverse_probe:
        rotation.reverse_ok = False
        rotation.reverse_proven = False
    candidate = _candidate(engine, row.endpoint, row.rotation_base + row.reverse_cursor)
    if candidate == NONE:
        return
    index = control_queue.claim(engine, row.endpoint, Opcode.ENDPOINT_REQUEST, NONE, row.peer)
    if index == NONE:
        return
    rotation.reverse_candidate = candidate - rotation.ev_base
    rotation.reverse_probe = True
    waiting = engine.control[index]
    waiting.psn = ((qp - node.qp_base) << _ROTATION_BITS) | row.reverse_cursor
    waiting.reason = EndpointOp.EV_PROBE
    waiting.port = rotation.port
    waiting.entropy = engine.evs[candidate].value


@kernel
def _candidate(engine: Engine, endpoint: int, rotation: int) -> int:
    """Return the EV of a rotation to probe: the proven one, else a random one.

    None that is denied, NONE if all are: nothing may cross a drained link.
    """
    row = engine.rotations[rotation]
    proven = row.ev_base + row.reverse
    if row.reverse_proven and engine.evs[proven].state != EvState.DENIED:
        return int(proven)
    node = engine.endpoints[endpoint]
    node.random = rng.following(node.random)
    first = rng.below(node.random, row.total)
    for step in range(row.total):
        ev = row.ev_base + (first + step) % row.total
        if engine.evs[ev].state != EvState.DENIED:
            return int(ev)
    return NONE
