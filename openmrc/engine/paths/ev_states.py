"""Path state of the requester, and which EVs are in rotation (MRC §9.3.1).

A rotation holds the EVs of one queue pair on one port as an array of slots: the active EVs, which `spray` uses in turn,
then the reserve. A bad EV is exchanged for a good one of the reserve of the same port, so that all planes stay equally
loaded; without a good one the rotation becomes one EV shorter. Probes (`probes`) restore bad EVs, without a time limit.
"""

from openmrc.core import rng
from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine.paths import last_probe, shares, silence
from openmrc.engine.state import events, timers
from openmrc.engine.state.machines import ILLEGAL, EvEvent, EvState, ev_after
from openmrc.engine.state.queue_pairs import params_of, usable_ports, working_ports
from openmrc.engine.state.tables import NONE, Deadline, Engine, EventKind
from openmrc.units import NEVER, PS_PER_S

_RELAPSE = 10 * PS_PER_S  # a path that held for so long is repaired; published outages of flapping links last 5 to 18 s
_MOST_SUCCESSES = 127  # counted in 8 bits
_MAX_RELAPSES = 3  # of which each doubles the proof; random losses look like relapses, too
PROBE_ROUND_TRIPS = 10  # a bad EV is not probed more often than once in so many round trips
CARRY_AT, CARRY_MARKS_AT = 1 << 14, 1 << 6  # packets, half of what counters of 16 and of 8 bits hold


@rare_kernel
def set_ev(engine: Engine, qp: int, rotation_index: int, k: int, value: int) -> None:
    """Set the value of the k-th EV of a rotation and reset it to GOOD. Call `begin` when all are set."""
    set_new_ev(engine, qp, rotation_index, k, value)
    _forget_failure(engine, engine.rotations[engine.qps[qp].rotation_base + rotation_index].ev_base + k)


@kernel
def set_new_ev(engine: Engine, qp: int, rotation_index: int, k: int, value: int) -> None:
    """Do the same in tables that are new: no EV has failed, and the rows that would say so are not touched."""
    index = engine.qps[qp].rotation_base + rotation_index
    rotation = engine.rotations[index]
    engine.slots[rotation.ev_base + k].ev = k
    ev = engine.evs[rotation.ev_base + k]
    ev.value = value
    ev.rotation = index
    ev.port = rotation.port
    ev.state = EvState.GOOD
    ev.sent = ev.acked = ev.marked = ev.trimmed = 0


@kernel
def _forget_failure(engine: Engine, ev: int) -> None:
    """Clear the failure of an EV that had one: rows that are never written take no memory."""
    failure = engine.ev_failures[ev]
    if failure.lost + failure.probes + failure.sent > 0 or failure.failed_at > 0 or failure.restored_at > 0:
        failure.failed_at = failure.restored_at = 0
        failure.sent = failure.acked = failure.marked = failure.trimmed = failure.lost = 0
        failure.false_losses = failure.lost_psn = failure.acked_at_loss = 0
        failure.probes = failure.probe_at = failure.probe_gap = failure.probe_sent_at = 0
        failure.probe_is_out = False
        failure.losses = failure.successes = failure.relapses = 0


@rare_kernel
def begin(engine: Engine, now: int, qp: int, active_per_rotation: int, min_active: int) -> None:
    """Put the first EVs of every rotation into rotation; the others are the reserve.

    The first rotation and its first EV are drawn: if they followed from the QPN, connections that many NICs open in one
    order would all begin on the same plane and meet on the receivers' links.
    """
    row = engine.qps[qp]
    node = engine.endpoints[row.endpoint]
    node.random = rng.following(node.random)
    row.good_evs = row.ev_count
    row.min_active_evs = min_active
    row.wanted_evs = active_per_rotation
    row.rotation_cursor = rng.below(node.random, row.rotation_count)
    row.round_ports = 0
    row.control_rotation = row.rotation_cursor
    row.heard_rotation = row.rotation_cursor
    row.heard_ports = 0
    row.burst_left = 0
    row.silent_ports = 0
    row.last_probe_ev = NONE
    timers.disarm(engine, qp, Deadline.PROBE)
    for index in range(row.rotation_base, row.rotation_base + row.rotation_count):
        rotation = engine.rotations[index]
        rotation.active = wanted(engine, index)
        node.random = rng.following(node.random)
        rotation.cursor = rng.below(node.random, rotation.active)
        rotation.reverse = 0
        rotation.reverse_candidate = 0
        rotation.reverse_ok = True
        rotation.reverse_probe = False
        port_return = engine.port_returns[index]
        if port_return.risen_at > 0 or port_return.check_gap > 0:  # rows that are not written take no memory
            port_return.risen_at = 0
            port_return.check_at = 0
            port_return.check_gap = 0
        silence.begin(engine, index)
        shares.begin(engine, index)


@kernel
def wanted(engine: Engine, rotation: int) -> int:
    """Return how many EVs are active when none is bad."""
    row = engine.rotations[rotation]
    return int(min(engine.qps[row.qp].wanted_evs, row.total))


@kernel
def on_sent(engine: Engine, ev: int) -> None:
    row = engine.evs[ev]
    row.sent += 1
    if row.sent == CARRY_AT:
        _carry(engine, ev)


@rare_kernel
def _carry(engine: Engine, ev: int) -> None:
    """Carry the counters of an EV to its seldom used row."""
    row, total = engine.evs[ev], engine.ev_failures[ev]
    total.sent += row.sent
    total.acked += row.acked
    total.marked += row.marked
    total.trimmed += row.trimmed
    row.sent = row.acked = row.marked = row.trimmed = 0


@kernel
def on_acked(engine: Engine, ev: int) -> None:
    """Record that a packet on this EV was delivered."""
    row = engine.evs[ev]
    row.acked += 1
    if row.acked == CARRY_AT:
        _carry(engine, ev)
    if row.state == EvState.GOOD:
        rotation = engine.rotations[row.rotation]
        rotation.reverse = ev - rotation.ev_base


@kernel
def on_marked(engine: Engine, now: int, ev: int, always: int) -> None:
    """Process a mark of the responder: the path is congested (SKIP_ONCE) or persistently bad (ALWAYS_SKIP)."""
    row = engine.evs[ev]
    row.marked += 1
    if row.marked == CARRY_MARKS_AT:
        _carry(engine, ev)
    transition(engine, now, ev, EvEvent.SACK_ALWAYS_SKIP if always == 1 else EvEvent.SACK_SKIP_ONCE)


@kernel
def on_trimmed(engine: Engine, now: int, ev: int) -> None:
    """Record that a switch before the last hop trimmed a packet on this EV."""
    row = engine.evs[ev]
    row.trimmed += 1
    if row.trimmed == CARRY_MARKS_AT:
        _carry(engine, ev)
    transition(engine, now, ev, EvEvent.TRIMMED)


@rare_kernel
def on_lost(engine: Engine, now: int, ev: int, psn: int, sent_at: int) -> None:
    """Record a lost packet on this EV, unless it was sent before the EV was restored.

    Losses on a port that is down, here or at the peer, do not count against its EVs: they are as good as before when
    the port is back (MRC §9.3.2). That includes a local port whose change waits for the remap delay.
    """
    row = engine.evs[ev]
    failure = engine.ev_failures[ev]
    failure.lost += 1
    rotation = engine.rotations[row.rotation]
    begins = max(failure.restored_at, engine.port_returns[row.rotation].risen_at)
    if sent_at < begins or not _port_works(engine, row.rotation):
        return
    acked = failure.acked + row.acked
    if acked != failure.acked_at_loss:
        failure.losses = 0
    failure.losses += 1
    if failure.losses < params_of(engine, rotation.qp).loss_threshold:
        failure.acked_at_loss = acked
    else:
        failure.losses = 0
        transition(engine, now, ev, EvEvent.LOST)
        failure.lost_psn = psn
        silence.on_retired(engine, now, row.rotation, sent_at)


@rare_kernel
def on_arrived(engine: Engine, now: int, qp: int, psn: int) -> None:
    """Take back the EV that was left for the loss of a packet that has arrived: its path is as good as before.

    Else an EV of the reserve keeps its place, whose path nobody has tried, until probes are answered. On a port that is
    silent nothing arrives, so there it was another copy.
    """
    row = engine.qps[qp]
    for ev in range(row.ev_base, row.ev_base + row.ev_count):
        failure = engine.ev_failures[ev]
        is_silent = row.silent_ports >> engine.evs[ev].port & 1 == 1
        if engine.evs[ev].state == EvState.ASSUMED_BAD and failure.lost_psn == psn and not is_silent:
            restored_at = failure.restored_at
            transition(engine, now, ev, EvEvent.ARRIVED)
            failure.restored_at = restored_at  # what else was sent on it before is still to come, or lost


@kernel
def _port_works(engine: Engine, rotation: int) -> bool:
    row = engine.rotations[rotation]
    wanted_ports = engine.endpoints[engine.qps[row.qp].endpoint].ports_wanted
    return ((working_ports(engine, row.qp) & wanted_ports) >> row.port) & 1 == 1


@kernel
def transition(engine: Engine, now: int, ev: int, event: int) -> None:
    """Apply a state transition of an EV and the actions of leaving and entering a state."""
    row = engine.evs[ev]
    before = row.state
    after = ev_after(before, event)
    if after == before or after <= ILLEGAL:
        return
    row.state = after
    was_usable = before <= EvState.SKIP
    is_usable = after <= EvState.SKIP
    if not (was_usable and is_usable):
        _notify(engine, now, ev, event)
    if was_usable and not is_usable:
        _retire(engine, now, ev)
    elif is_usable and not was_usable:
        _restore(engine, now, ev)
    elif before == EvState.DENIED or after == EvState.DENIED:
        _schedule_probe(engine, now, ev)


@rare_kernel
def exchange(engine: Engine, ev: int, value: int) -> None:
    """Replace a usable EV by another one of its port, which begins as GOOD and with nothing counted."""
    row = engine.evs[ev]
    last_probe.settle(engine, engine.rotations[row.rotation].qp)
    row.value = value
    row.state = EvState.GOOD
    row.sent = row.acked = row.marked = row.trimmed = 0
    _forget_failure(engine, ev)


@rare_kernel
def position_of(engine: Engine, ev: int) -> int:
    """Return the position of an EV in its rotation; it is in use if that is below `active`."""
    rotation = engine.rotations[engine.evs[ev].rotation]
    position = 0
    while engine.slots[rotation.ev_base + position].ev != ev - rotation.ev_base:
        position += 1
    return position


@kernel
def find(engine: Engine, qp: int, value: int) -> int:
    """Return the row of the EV with this value, or NONE."""
    row = engine.qps[qp]
    for ev in range(row.ev_base, row.ev_base + row.ev_count):
        if engine.evs[ev].value == value:
            return ev
    return NONE


@rare_kernel
def wake_rotation(engine: Engine, now: int, rotation: int) -> None:
    """Schedule probes of all bad EVs of a rotation at the shortest interval: something on this plane recovered."""
    row = engine.rotations[rotation]
    for ev in range(row.ev_base, row.ev_base + row.total):
        bad = engine.ev_failures[ev]
        if engine.evs[ev].state == EvState.ASSUMED_BAD:
            bad.probe_gap = probe_interval(engine, row.qp)
            bad.probe_at = min(bad.probe_at, now + bad.probe_gap)
            timers.arm_by(engine, row.qp, Deadline.PROBE, bad.probe_at)


@rare_kernel
def ensure_usable(engine: Engine, now: int, qp: int) -> None:
    """Restore a bad EV on a working port if all EVs in rotation are on ports that are down."""
    working = working_ports(engine, qp)
    if working != 0 and usable_ports(engine, qp) == 0 and least_bad(engine, qp, NONE, working) != NONE:
        _try_least_bad(engine, now, qp, NONE)


@kernel
def probe_interval(engine: Engine, qp: int) -> int:
    """Return the shortest interval (ps) between two probes of one EV."""
    row = engine.qps[qp]
    params = params_of(engine, qp)
    return max(params.probe_interval, PROBE_ROUND_TRIPS * engine.peers[row.peer].srtt)


@rare_kernel
def _retire(engine: Engine, now: int, ev: int) -> None:
    row = engine.evs[ev]
    failure = engine.ev_failures[ev]
    is_relapse = failure.restored_at > 0 and now - failure.restored_at < _RELAPSE
    failure.relapses = min(failure.relapses + 1, _MAX_RELAPSES) if is_relapse else 0
    failure.failed_at = now
    failure.lost_psn = NONE
    failure.successes = 0
    failure.probe_gap = probe_interval(engine, engine.rotations[row.rotation].qp)
    _schedule_probe(engine, now, ev)
    rotation = engine.rotations[row.rotation]
    position = position_of(engine, ev)
    if position < rotation.active:
        spare = _spare(engine, row.rotation)
        if spare != NONE:
            swap(engine, row.rotation, position, spare)
        else:
            rotation.active -= 1
            swap(engine, row.rotation, position, rotation.active)
    if rotation.reverse == ev - rotation.ev_base and rotation.active > 0:
        rotation.reverse = engine.slots[rotation.ev_base].ev
    qp = engine.qps[rotation.qp]
    qp.good_evs -= 1
    if qp.good_evs < qp.min_active_evs:
        _try_least_bad(engine, now, rotation.qp, ev)
    ensure_usable(engine, now, rotation.qp)


@rare_kernel
def _restore(engine: Engine, now: int, ev: int) -> None:
    row = engine.evs[ev]
    failure = engine.ev_failures[ev]
    failure.restored_at = now
    failure.probe_at = NEVER
    failure.losses = 0
    rotation = engine.rotations[row.rotation]
    engine.qps[rotation.qp].good_evs += 1
    most = wanted(engine, row.rotation)
    if rotation.active < most:
        swap(engine, row.rotation, position_of(engine, ev), rotation.active)
        rotation.active += 1
    elif ev - rotation.ev_base < most:
        _take_place(engine, row.rotation, ev, most)


@rare_kernel
def _take_place(engine: Engine, rotation: int, ev: int, most: int) -> None:
    """Let an EV of the first `most` take the place in rotation of one that stands in for them, if there is one.

    Else a path whose EVs came back together would stay in reserve, and the others carry its share. The one that was
    used least goes: others have shown that their paths work.
    """
    row = engine.rotations[rotation]
    place, least = NONE, NEVER
    for position in range(row.active):
        stands_in = engine.slots[row.ev_base + position].ev
        if stands_in >= most:
            used = engine.evs[row.ev_base + stands_in].sent + engine.ev_failures[row.ev_base + stands_in].sent
            if used < least:
                place, least = position, int(used)
    if place != NONE:
        swap(engine, rotation, position_of(engine, ev), place)


@rare_kernel
def _try_least_bad(engine: Engine, now: int, qp: int, but: int) -> None:
    """Restore the EV that failed longest ago, on a port that works if there is one; `but` only if it is the last."""
    best = least_bad(engine, qp, but, working_ports(engine, qp))
    if best == NONE:
        best = least_bad(engine, qp, but, -1)
    if best == NONE:
        if but == NONE or engine.evs[but].state != EvState.ASSUMED_BAD:
            return  # denied: only the controller restores it
        best = but
    engine.evs[best].state = ev_after(EvState.ASSUMED_BAD, EvEvent.LEAST_BAD)
    _restore(engine, now, best)
    _notify(engine, now, best, EvEvent.LEAST_BAD)


@kernel
def is_short(engine: Engine, qp: int) -> bool:
    """Return whether a queue pair has so few usable EVs that it takes back bad ones untried."""
    row = engine.qps[qp]
    return bool(row.good_evs <= row.min_active_evs)


@kernel
def least_bad(engine: Engine, qp: int, but: int, ports: int) -> int:
    """Return the bad EV on one of these ports that failed longest ago, except `but`; NONE if there is none."""
    row = engine.qps[qp]
    best = NONE
    for ev in range(row.ev_base, row.ev_base + row.ev_count):
        candidate = engine.evs[ev]
        if candidate.state != EvState.ASSUMED_BAD or ev == but or (ports >> candidate.port) & 1 == 0:
            continue
        if best == NONE or engine.ev_failures[ev].failed_at < engine.ev_failures[best].failed_at:
            best = ev
    return best


@kernel
def proof(engine: Engine, ev: int) -> int:
    """Return how many probes in a row must be answered to restore an EV: twice as many for each relapse."""
    once = int(params_of(engine, engine.rotations[engine.evs[ev].rotation].qp).probe_successes)
    return min(once << int(engine.ev_failures[ev].relapses), _MOST_SUCCESSES)


@rare_kernel
def _schedule_probe(engine: Engine, now: int, ev: int) -> None:
    row = engine.evs[ev]
    failure = engine.ev_failures[ev]
    failure.probe_at = NEVER  # only the controller restores a denied EV
    last_probe.settle(engine, engine.rotations[row.rotation].qp)
    failure.probe_is_out = False
    if row.state == EvState.ASSUMED_BAD:
        failure.probe_at = now + failure.probe_gap
        timers.arm_by(engine, engine.rotations[row.rotation].qp, Deadline.PROBE, failure.probe_at)


@kernel
def _spare(engine: Engine, rotation: int) -> int:
    """Return the position of a usable EV in the reserve of a rotation, or NONE."""
    row = engine.rotations[rotation]
    for position in range(row.active, row.total):
        if engine.evs[row.ev_base + engine.slots[row.ev_base + position].ev].state <= EvState.SKIP:
            return position
    return NONE


@kernel
def swap(engine: Engine, rotation: int, a: int, b: int) -> None:
    base = engine.rotations[rotation].ev_base
    first = engine.slots[base + a].ev
    second = engine.slots[base + b].ev
    engine.slots[base + a].ev = second
    engine.slots[base + b].ev = first


@rare_kernel
def _notify(engine: Engine, now: int, ev: int, why: int) -> None:
    row = engine.evs[ev]
    qp = engine.rotations[row.rotation].qp
    index = events.claim(engine, now, engine.qps[qp].endpoint, EventKind.EV_STATE)
    if index != NONE:
        event = engine.events[index]
        event.qp = qp
        event.peer = engine.qps[qp].peer
        event.port = row.port
        event.entropy = row.value
        event.state = row.state
        event.cause = why
