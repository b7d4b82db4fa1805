"""Return paths of control packets: a responder with nothing to send finds them by EV probes (MRC §6.5.2, §7.4.7).

The rotations are probed in turn, each time on a random EV of all that they have. An EV that answers becomes the reverse
EV of its rotation; one that does not leaves it as it is, but until a probe of the rotation is answered again, control
packets prefer others. With data to send, every acknowledged EV becomes the reverse EV of its rotation instead.

Duplicates and reliability probes indicate lost answers: the next EV probe then leaves within a round trip.
"""

from openmrc.core import rng
from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine.paths import ev_states, ports
from openmrc.engine.responder import sacks
from openmrc.engine.state import timers
from openmrc.engine.state.machines import EvState
from openmrc.engine.state.queue_pairs import params_of, receives_data, working_ports
from openmrc.engine.state.tables import NONE, Deadline, Engine
from openmrc.units import NEVER
from openmrc.wire.codes import PathMark

_ROTATION_BITS = 4  # of a probe_id: the rotation; the other 12 bits are the queue pair
_MOST_UNANSWERED = 32  # EV probes after the last data: ours, to find one path of four with a chance of 0.9999
MAX_QPS = 0xC00  # queue pairs of an endpoint beyond this many do not probe: their ids belong to `ports`


@kernel
def on_data(engine: Engine, now: int, qp: int) -> None:
    """Probe a return path a round trip after the first data, and once in each round trip with data from then on."""
    row = engine.qps[qp]
    row.reverse_left = _MOST_UNANSWERED
    if timers.due(engine, qp, Deadline.REVERSE) == NEVER:
        interval = params_of(engine, qp).reverse_probe_interval
        if interval > 0:
            timers.arm(engine, qp, Deadline.REVERSE, now + max(interval, engine.peers[row.peer].base_rtt))


@rare_kernel
def on_deadline(engine: Engine, now: int, qp: int) -> None:
    """Probe the next rotation if data arrived since the last probe, and none is to be sent, or that was not answered.

    A sender whose answers are all lost soon has its window closed: the data ends, the need for a path does not.
    """
    row = engine.qps[qp]
    timers.disarm(engine, qp, Deadline.REVERSE)
    is_answered = not engine.rotations[row.rotation_base + row.reverse_cursor].reverse_probe
    if row.reverse_left == 0 or (row.reverse_left < _MOST_UNANSWERED and is_answered):
        return  # idle: the next data packet arms the timer again
    row.reverse_left -= 1
    if row.unack_psn == row.next_psn:
        _probe(engine, qp)
    interval = params_of(engine, qp).reverse_probe_interval
    timers.arm(engine, qp, Deadline.REVERSE, now + max(interval, engine.peers[row.peer].base_rtt))


@rare_kernel
def on_answer(engine: Engine, peer: int, probe_id: int, packet: int) -> None:
    """Process the answer to an EV probe: control packets of the rotation use its EV from now on.

    An answer takes the path of its request. Where queues stand, it may arrive when the next EV is probed already, which
    it says nothing about. If no other rotation had a path, the last answers were lost: what has arrived is reported
    again at once.
    """
    node = engine.endpoints[engine.peers[peer].endpoint]
    index = probe_id >> _ROTATION_BITS
    if index >= min(node.qp_count, MAX_QPS):
        return
    qp = node.qp_base + index
    row = engine.qps[qp]
    number = probe_id & ((1 << _ROTATION_BITS) - 1)
    if row.peer != peer or number >= row.rotation_count:
        return
    rotation = engine.rotations[row.rotation_base + number]
    if not rotation.reverse_probe:
        return
    answered = ev_states.find(engine, qp, engine.packets[packet].entropy)
    if answered == NONE or engine.evs[answered].port != rotation.port:
        answered = int(rotation.ev_base + rotation.reverse_candidate)  # of a peer that answers elsewhere
    rotation.reverse_probe = False
    if not _has_path(engine, qp) and receives_data(row.state):
        row.lowest_unsacked = row.expected_psn
        sacks.queue(engine, qp, packet, row.expected_psn - 1, PathMark.NONE)
    rotation.reverse_ok = True
    if engine.evs[answered].state != EvState.DENIED:  # meanwhile
        rotation.reverse = answered - rotation.ev_base


@kernel
def _has_path(engine: Engine, qp: int) -> bool:
    """Return whether the last EV probe was answered in some rotation whose port works."""
    row = engine.qps[qp]
    working = working_ports(engine, qp)
    for index in range(row.rotation_base, row.rotation_base + row.rotation_count):
        if engine.rotations[index].reverse_ok and (working >> engine.rotations[index].port) & 1 == 1:
            return True
    return False


@rare_kernel
def on_doubt(engine: Engine, now: int, qp: int) -> None:
    """Use other planes for answers, because some may have been lost, and probe a return path within a round trip.

    SACKs and transport ACKs that alternated over two planes would always use the same one each. In half of the cases
    planes without arrivals are used too: the forward direction may work on other planes than the return direction.
    """
    row = engine.qps[qp]
    node = engine.endpoints[row.endpoint]
    node.random = rng.following(node.random)
    row.control_rotation = rng.below(node.random, row.rotation_count)
    if node.random & 1 == 1:
        row.heard_ports = (1 << row.rotation_count) - 1
    if params_of(engine, qp).reverse_probe_interval > 0:
        row.reverse_left = _MOST_UNANSWERED
        timers.arm_by(engine, qp, Deadline.REVERSE, now + engine.peers[row.peer].base_rtt)


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
    probe_id = ((qp - node.qp_base) << _ROTATION_BITS) | row.reverse_cursor
    if ports.ask(engine, row.peer, rotation.port, engine.evs[candidate].value, probe_id, ports.NO_MASK) == 1:
        rotation.reverse_candidate = candidate - rotation.ev_base
        rotation.reverse_probe = True


@kernel
def _candidate(engine: Engine, endpoint: int, rotation: int) -> int:
    """Return a random EV of a rotation to probe, none that is denied: nothing may cross a drained link; else NONE."""
    row = engine.rotations[rotation]
    node = engine.endpoints[endpoint]
    node.random = rng.following(node.random)
    first = rng.below(node.random, row.total)
    for step in range(row.total):
        ev = row.ev_base + (first + step) % row.total
        if engine.evs[ev].state != EvState.DENIED:
            return int(ev)
    return NONE
