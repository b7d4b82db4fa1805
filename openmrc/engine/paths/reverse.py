"""Return paths of control packets: a responder with nothing to send tests them by EV probes (MRC §6.5.2, §7.4.7).

The rotations are probed in turn, one probe at a time, each on a random EV. An answer makes it the reverse EV of the
rotation; without an answer until the next turn, control packets prefer other rotations. Duplicates and reliability
probes indicate lost answers: the next control packets then use other EVs at once.
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
        if engine.evs[rotation.reverse_candidate].state != EvState.DENIED:  # meanwhile
            rotation.reverse = rotation.reverse_candidate


@rare_kernel
def on_doubt(engine: Engine, qp: int) -> None:
    """Select random return EVs, because answers may have been lost.

    SACKs and transport ACKs that alternated over two planes would always use the same one each. In half of the cases
    planes without arrivals are used too: the forward direction may work on other planes than the return direction.
    Results of EV probes are discarded, because a probe needs both directions.
    """
    row = engine.qps[qp]
    node = engine.endpoints[row.endpoint]
    node.random = rng.following(node.random)
    row.control_rotation = rng.below(node.random, row.rotation_count)
    if node.random & 1 == 1:
        row.heard_ports = (1 << row.rotation_count) - 1
    for index in range(row.rotation_base, row.rotation_base + row.rotation_count):
        rotation = engine.rotations[index]
        rotation.reverse_ok = True
        if rotation.active > 0:
            node.random = rng.following(node.random)
            position = rng.below(node.random, rotation.active)
            rotation.reverse = rotation.ev_base + engine.slots[rotation.ev_base + position].ev


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
    candidate = _candidate(engine, row.endpoint, row.rotation_base + row.reverse_cursor)
    if candidate == NONE:
        return
    index = control_queue.claim(engine, row.endpoint, Opcode.ENDPOINT_REQUEST, NONE, row.peer)
    if index == NONE:
        return
    rotation.reverse_candidate = candidate
    rotation.reverse_probe = True
    waiting = engine.control[index]
    waiting.psn = ((qp - node.qp_base) << _ROTATION_BITS) | row.reverse_cursor
    waiting.reason = EndpointOp.EV_PROBE
    waiting.port = rotation.port
    waiting.entropy = engine.evs[rotation.reverse_candidate].value


@kernel
def _candidate(engine: Engine, endpoint: int, rotation: int) -> int:
    """Return a random EV of a rotation that is not denied, NONE if all are: nothing may cross a drained link."""
    row = engine.rotations[rotation]
    node = engine.endpoints[endpoint]
    node.random = rng.following(node.random)
    first = rng.below(node.random, row.total)
    for step in range(row.total):
        ev = row.ev_base + (first + step) % row.total
        if engine.evs[ev].state != EvState.DENIED:
            return int(ev)
    return NONE
