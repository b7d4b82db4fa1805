"""Path selection for data and control packets, at the time of transmission.

Rotations are used in turn, so every plane carries the same share; within a rotation the EVs are used in the order in
which they were set, beginning at a random one. EVs of one path that were set evenly spaced stay so: in a random order
they meet by chance, and where all uplinks are full a queue that was long once stays long and is marked. A port that is
down or busy makes its rotation ineligible without any other effect (MRC §9.3.1, §9.3.2).
"""

from openmrc.core import rng
from openmrc.core.jit import kernel
from openmrc.core.memory import prefetch_row
from openmrc.engine.paths import ev_states, last_probe, shares, silence
from openmrc.engine.state.machines import EvEvent, EvState
from openmrc.engine.state.queue_pairs import params_of, usable_ports, working_ports
from openmrc.engine.state.tables import NONE, Engine

_DEFERRED_BY = 4  # turns at least: in a short rotation an EV that is skipped waits for the next pass


@kernel
def choose(engine: Engine, now: int, qp: int, free_ports: int, avoid: int, size: int) -> int:
    """Return the EV row for a data packet of `size` nominal bytes, NONE if no usable path is free.

    `avoid` is the EV on which the packet was lost. Its whole plane may be down: if other ports are usable, the packet
    waits for one of them; otherwise it takes another EV of the same port, or the same EV if there is no other.
    """
    row = engine.qps[qp]
    rotations = silence.data_ports(engine, qp) & free_ports
    if avoid != NONE:
        others = other_ports(engine, qp, avoid)
        if others != 0:
            rotations &= others
    if row.burst_left > 0 and row.burst_ev != avoid and _goes_on(engine, row.burst_ev, rotations):
        row.burst_left = _rest(row.burst_left, size)
        return row.burst_ev
    ev = _next_rotation(engine, now, qp, rotations, avoid, size)
    if ev == NONE and avoid != NONE and (rotations >> engine.evs[avoid].port) & 1 == 1:
        ev = _next_rotation(engine, now, qp, rotations, NONE, size)
    if ev == NONE and params_of(engine, qp).share_by_delay and silence.data_ports(engine, qp) & ~free_ports == 0:
        ev = _next_rotation(engine, now, qp, rotations, avoid, 0)  # no other port will be free: do not wait for shares
    if ev != NONE:
        row.round_ports |= 1 << engine.evs[ev].port
        row.burst_ev = ev
        rotation = engine.evs[ev].rotation
        is_slow = engine.rotations[rotation].is_slow
        row.burst_left = _rest(shares.take_turn(engine, rotation) if is_slow else _burst(engine, qp), size)
    return ev


@kernel
def _burst(engine: Engine, qp: int) -> int:
    """Return how many bytes follow each other on one EV: four bursts of a small window share each port.

    With two, half of what a short queue holds came at once: it overflowed, or only one of two ports had work.
    """
    row = engine.qps[qp]
    return min(params_of(engine, qp).ev_burst, int(engine.peers[row.peer].cwnd) // (4 * row.rotation_count))


@kernel
def _rest(burst: int, size: int) -> int:
    """Return what is left of a burst after a packet of `size` bytes; 0: another of that size does not fit."""
    rest = burst - size
    return rest if rest >= size else 0


@kernel
def unused_ports(engine: Engine, qp: int, free_ports: int) -> int:
    """Return the free ports that the queue pair has not used in this round; a round is one use of each port.

    Ports and queue pairs both take turns. Without rounds, with as many queue pairs as ports, each queue pair would
    always find the same port free.
    """
    row = engine.qps[qp]
    unused = silence.data_ports(engine, qp) & ~row.round_ports
    if unused == 0:
        row.round_ports = 0
        return free_ports
    if row.burst_left > 0:
        unused |= 1 << engine.evs[row.burst_ev].port
    return free_ports & unused


@kernel
def other_ports(engine: Engine, qp: int, avoid: int) -> int:
    """Return the mask of usable ports that are not silent, except that of the EV to avoid."""
    return usable_ports(engine, qp) & silence.data_ports(engine, qp) & ~(1 << engine.evs[avoid].port)


@kernel
def choose_control(engine: Engine, qp: int) -> int:
    """Return the EV row for a control packet, NONE if no port works.

    Ports on which a packet has arrived since the last control packet are used in turn: if the return direction of one
    plane is dead, only a share of the control packets is lost. Rotations whose reverse EV failed a probe are skipped.
    """
    row = engine.qps[qp]
    heard = row.heard_ports & working_ports(engine, qp)
    for step in range(1, row.rotation_count + 1):
        number = (row.control_rotation + step) % row.rotation_count
        rotation = engine.rotations[row.rotation_base + number]
        if (heard >> rotation.port) & 1 == 1 and rotation.reverse_ok and rotation.active > 0:
            row.control_rotation = number
            row.heard_ports &= ~(1 << rotation.port)
            return int(rotation.ev_base + rotation.reverse)
    return _last_heard(engine, qp)


@kernel
def _last_heard(engine: Engine, qp: int) -> int:
    """Return the reverse EV of the rotation on which the last packet arrived, or of the next one that works.

    One with an unanswered probe is taken only if there is no other: repeated on it, a probe might never be answered.
    """
    row = engine.qps[qp]
    working = working_ports(engine, qp)
    unanswered = NONE
    for step in range(row.rotation_count):
        rotation = engine.rotations[row.rotation_base + (row.heard_rotation + step) % row.rotation_count]
        if (working >> rotation.port) & 1 == 0 or not rotation.reverse_ok or rotation.active == 0:
            continue
        ev = int(rotation.ev_base + rotation.reverse)
        if row.probes_sent == 0 or not last_probe.is_out(engine, qp, ev):
            return ev
        if unanswered == NONE:
            unanswered = ev
    return unanswered if unanswered != NONE else _untested(engine, qp, working)


@kernel
def _untested(engine: Engine, qp: int, working: int) -> int:
    """Return the reverse EV of the next rotation that works, NONE if none does; no EV probe was answered on any.

    A probe needs both directions of its plane. What returns may work on other planes than what arrives, so the plane
    heard last is no better than another; each doubt draws one (`reverse.on_doubt`).
    """
    row = engine.qps[qp]
    for step in range(row.rotation_count):
        rotation = engine.rotations[row.rotation_base + (row.control_rotation + step) % row.rotation_count]
        if (working >> rotation.port) & 1 == 1:
            return int(rotation.ev_base + rotation.reverse)
    return NONE


@kernel
def _goes_on(engine: Engine, ev: int, eligible: int) -> bool:
    row = engine.evs[ev]
    return row.state == EvState.GOOD and (eligible >> row.port) & 1 == 1


@kernel
def _next_rotation(engine: Engine, now: int, qp: int, eligible: int, avoid: int, size: int) -> int:
    """Return the EV of the next rotation whose share is worth a packet of `size` bytes, or NONE."""
    row = engine.qps[qp]
    for _ in range(row.rotation_count):
        row.rotation_cursor = (row.rotation_cursor + 1) % row.rotation_count
        rotation = row.rotation_base + row.rotation_cursor
        if (eligible >> engine.rotations[rotation].port) & 1 == 1:
            if _has_turn(engine, qp, rotation, size):
                ev = _next_in_rotation(engine, now, row.endpoint, rotation, avoid)
                if ev != NONE:
                    return ev
            row.round_ports |= 1 << engine.rotations[rotation].port  # nothing to use: the round does not wait for it
    return NONE


@kernel
def _has_turn(engine: Engine, qp: int, rotation: int, size: int) -> bool:
    if not engine.rotations[rotation].is_slow:
        return True
    return shares.has_turn(engine, rotation, max(_burst(engine, qp), size), size)


@kernel
def _next_in_rotation(engine: Engine, now: int, endpoint: int, rotation: int, avoid: int) -> int:
    """Return the next GOOD EV; the first SKIP EV found becomes GOOD and is skipped this time (MRC §11.2.2)."""
    row = engine.rotations[rotation]
    forgiven = NONE
    for _ in range(2 * row.active):  # the place of the skipped EV is looked at twice
        if row.cursor >= row.active:
            row.cursor = 0
        ev = row.ev_base + engine.slots[row.ev_base + row.cursor].ev
        row.cursor += 1
        _prefetch(engine, rotation)
        state = engine.evs[ev].state
        if state == EvState.GOOD:
            if ev != avoid and ev != forgiven:
                return ev
        elif forgiven == NONE:
            ev_states.transition(engine, now, ev, EvEvent.ROTATION)
            forgiven = ev
            _defer(engine, endpoint, rotation)
    return forgiven if forgiven != avoid else NONE


@kernel
def _defer(engine: Engine, endpoint: int, rotation: int) -> None:
    """Let the EV just passed over change places with a random one that follows later in this pass, if there is one.

    Where all paths are full, an EV left out loads others that are as full, and their marks move the load on: the load
    oscillates by the time of a pass. One that comes later keeps its share, and packets that met do so no more. A path
    that is marked again and again loses turns still, by its places near the end of the pass.
    """
    row = engine.rotations[rotation]
    first = row.cursor + _DEFERRED_BY - 1
    if first < row.active:
        node = engine.endpoints[endpoint]
        node.random = rng.following(node.random)
        row.cursor -= 1
        ev_states.swap(engine, rotation, row.cursor, first + rng.below(node.random, row.active - first))


@kernel
def _prefetch(engine: Engine, rotation: int) -> None:
    """Prefetch the EV of the rotation's next packet: with many EVs it is in no near cache."""
    row = engine.rotations[rotation]
    if row.cursor < row.active:
        prefetch_row(engine.evs, row.ev_base + engine.slots[row.ev_base + row.cursor].ev)
