"""Reliability probes of the requester (MRC §6.5.1, §7.4.6): they test bad paths and request missing SACKs.

A probe is sent on one EV and answered by a SACK with its probe_id. It consumes no PSN and is never retransmitted: a
missing answer means that the path does not work.
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine.paths import ev_states, last_probe, silence, spray
from openmrc.engine.requester import retries
from openmrc.engine.state import control_queue, timers
from openmrc.engine.state.machines import EvEvent, EvState
from openmrc.engine.state.queue_pairs import params_of, sent_row, usable_ports, working_ports
from openmrc.engine.state.tables import NONE, Asked, Deadline, Engine
from openmrc.units import NEVER
from openmrc.wire.codes import Opcode, PathMark

_EV_BITS = 11  # of a probe_id: the EV; the other 5 bits count its probes, so that late answers are recognised
_EV_MASK = (1 << _EV_BITS) - 1
_COUNT_MASK = (1 << (16 - _EV_BITS)) - 1
MAX_EVS = 1 << _EV_BITS


@rare_kernel
def send_due(engine: Engine, now: int, qp: int) -> None:
    """Probe every bad EV and every silent port that is due; a missing answer doubles the interval."""
    row = engine.qps[qp]
    params = params_of(engine, qp)
    working = working_ports(engine, qp)
    following = NEVER
    last_probe.settle(engine, qp)
    for ev in range(row.ev_base, row.ev_base + row.ev_count):
        bad = engine.evs[ev]
        if bad.state != EvState.ASSUMED_BAD:
            continue
        failure = engine.ev_failures[ev]
        if failure.probe_at <= now:
            port_works = (working >> bad.port) & 1 == 1
            if failure.probe_is_out or not port_works:
                failure.successes = 0
                failure.probe_gap = min(2 * failure.probe_gap, params.probe_interval_max)
            if port_works:
                send(engine, now, qp, ev)
            failure.probe_at = now + failure.probe_gap
        following = min(following, failure.probe_at)
    if row.silent_ports != 0:
        following = min(following, _check_silent(engine, now, qp, working))
    timers.arm(engine, qp, Deadline.PROBE, following)


@kernel
def _check_silent(engine: Engine, now: int, qp: int, working: int) -> int:
    """Probe one EV after the other of every silent port; return when the next probe is due (ps)."""
    row = engine.qps[qp]
    params = params_of(engine, qp)
    is_outage = usable_ports(engine, qp) & ~silence.silent_ports(engine, qp) == 0
    longest = params.outage_probe_interval if is_outage else params.probe_interval_max
    following = NEVER
    for index in range(row.rotation_base, row.rotation_base + row.rotation_count):
        rotation, probing = engine.rotations[index], engine.port_returns[index]
        if (row.silent_ports >> rotation.port) & 1 == 0:
            continue
        if probing.check_at <= now:
            if rotation.active == 0:
                if ev_states.least_bad(engine, qp, NONE, 1 << rotation.port) == NONE:  # all denied: nobody asks
                    silence.forget_ports(engine, row.endpoint, 1 << rotation.port)
            elif (working >> rotation.port) & 1 == 1:
                rotation.cursor = (rotation.cursor + 1) % rotation.active
                send(engine, now, qp, rotation.ev_base + engine.slots[rotation.ev_base + rotation.cursor].ev)
            probing.check_at = now + probing.check_gap
            probing.check_gap = min(2 * probing.check_gap, longest)
        following = min(following, probing.check_at)
    return int(following)


@rare_kernel
def ask(engine: Engine, now: int, qp: int) -> None:
    """Ask for a SACK by a probe on a path that last worked."""
    ev = spray.choose_control(engine, qp)
    if ev != NONE:
        send(engine, now, qp, ev)


@rare_kernel
def send(engine: Engine, now: int, qp: int, ev: int) -> None:
    row = engine.qps[qp]
    index = control_queue.claim(engine, row.endpoint, Opcode.PROBE, qp, row.peer)
    if index == NONE:
        return
    sent_row(engine, qp, row.next_psn - 1).asked |= Asked.BY_PROBE
    last_probe.on_sent(engine, now, qp, ev)
    engine.control[index].psn = _probe_id(engine, qp, ev)
    engine.control[index].ev = ev
    row.probes_sent += 1


@rare_kernel
def on_answer(engine: Engine, now: int, qp: int, packet: int) -> None:
    """Process the answer to a probe: the path works, and packets sent before the probe are lost if unreported."""
    row = engine.qps[qp]
    arrived = engine.packets[packet]
    offset = arrived.ack_psn_offset & _EV_MASK
    if offset >= row.ev_count:
        row.malformed += 1
        return
    ev = row.ev_base + offset
    answered = engine.evs[ev]
    if not last_probe.is_out(engine, qp, ev) or _probe_id(engine, qp, ev) != arrived.ack_psn_offset & 0xFFFF:
        return  # late or unknown
    probe_sent_at = last_probe.on_answered(engine, qp, ev)
    row.probes_answered += 1
    row.newest_delivered = max(row.newest_delivered, probe_sent_at)
    if silence.on_delivered(engine, now, ev, probe_sent_at):
        ev_states.wake_rotation(engine, now, answered.rotation)
    retries.on_answered(engine, row.peer, probe_sent_at)
    if row.unack_psn < row.next_psn:
        timers.arm_by(engine, qp, Deadline.REORDERING, now)
    if answered.state == EvState.ASSUMED_BAD:
        _credit(engine, now, qp, ev, arrived.path_mark)


@kernel
def _probe_id(engine: Engine, qp: int, ev: int) -> int:
    """Return the probe_id of the last probe on an EV."""
    return ((last_probe.count(engine, qp, ev) & _COUNT_MASK) << _EV_BITS) | (ev - engine.qps[qp].ev_base)


@kernel
def _credit(engine: Engine, now: int, qp: int, ev: int, path_mark: int) -> None:
    failure = engine.ev_failures[ev]
    if path_mark >= PathMark.ALWAYS_SKIP:
        failure.successes = 0
        return
    failure.successes += 1
    failure.probe_gap = ev_states.probe_interval(engine, qp)
    failure.probe_at = min(failure.probe_at, now + failure.probe_gap)
    if failure.successes < ev_states.proof(engine, ev) and not ev_states.is_short(engine, qp):
        timers.arm_by(engine, qp, Deadline.PROBE, failure.probe_at)
    elif path_mark == PathMark.SKIP_ONCE:
        ev_states.transition(engine, now, ev, EvEvent.PROBE_MARKED)
    else:
        ev_states.transition(engine, now, ev, EvEvent.PROBES_ANSWERED)
    ev_states.wake_rotation(engine, now, engine.evs[ev].rotation)
