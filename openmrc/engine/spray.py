"""Which path the next packet takes: decided when it leaves, so that the latest news counts.

Lanes take turns, so every plane carries the same share; within a lane the rotation is walked, and
reshuffled when it is through. A port that is down or busy makes its lane ineligible and changes
nothing else (MRC §9.3.1, §9.3.2).
"""

from openmrc.core.jit import kernel
from openmrc.engine import paths
from openmrc.engine.states import EvEvent, EvState
from openmrc.engine.tables import NONE, Engine


@kernel
def choose(engine: Engine, now: int, qp: int, free_ports: int, avoid: int) -> int:
    """Return the EV row for a data packet; NONE: no usable path now.

    `avoid` is the EV that a packet was lost on. Its whole plane may be dead, so where other ports can be used it is
    one of those, and waits until one is free; else it is another EV, and the same one where there is no other.
    """
    row = engine.qps[qp]
    lanes = working_ports(engine, qp) & free_ports
    if avoid != NONE:
        others = other_ports(engine, qp, avoid)
        if others != 0:
            lanes &= others
    if row.burst_left > 0 and row.burst_ev != avoid and _goes_on(engine, row.burst_ev, lanes):
        row.burst_left -= 1
        return row.burst_ev
    ev = _next_lane(engine, now, qp, lanes, avoid)
    if ev == NONE and avoid != NONE and (lanes >> engine.evs[avoid].port) & 1 == 1:
        ev = _next_lane(engine, now, qp, lanes, NONE)
    if ev != NONE:
        row.burst_ev = ev
        row.burst_left = engine.params[engine.endpoints[row.endpoint].params].ev_burst - 1
    return ev


@kernel
def other_ports(engine: Engine, qp: int, avoid: int) -> int:
    """Return the mask of working ports, but for that of the EV to avoid, on which EVs are in rotation."""
    row = engine.qps[qp]
    mask = 0
    for index in range(row.lane_base, row.lane_base + row.lane_count):
        lane = engine.lanes[index]
        if lane.active > 0 and lane.port != engine.evs[avoid].port:
            mask |= 1 << lane.port
    return mask & working_ports(engine, qp)


@kernel
def choose_control(engine: Engine, qp: int) -> int:
    """Return the EV row for a control packet; NONE: no port works.

    It goes back over a port that something has come in by since the last one left there. These take turns: where a
    path back is dead, though the way here works, every so many control packets are lost and not all. A lane
    whose reverse path is known not to work is passed over.
    """
    row = engine.qps[qp]
    heard = row.heard_ports & working_ports(engine, qp)
    for step in range(1, row.lane_count + 1):
        number = (row.control_lane + step) % row.lane_count
        lane = engine.lanes[row.lane_base + number]
        if (heard >> lane.port) & 1 == 1 and lane.reverse_ok == 1 and lane.active > 0:
            row.control_lane = number
            row.heard_ports &= ~(1 << lane.port)
            return lane.reverse
    return _last_heard(engine, qp)


@kernel
def _last_heard(engine: Engine, qp: int) -> int:
    """Return the reverse EV of the lane that the last packet came in by, or of the next one that works."""
    row = engine.qps[qp]
    working = working_ports(engine, qp)
    fallback = NONE
    for step in range(row.lane_count):
        lane = engine.lanes[row.lane_base + (row.heard_lane + step) % row.lane_count]
        if (working >> lane.port) & 1 == 1:
            if lane.reverse_ok == 1 and lane.active > 0:
                return lane.reverse
            if fallback == NONE:
                fallback = lane.reverse
    return fallback


@kernel
def working_ports(engine: Engine, qp: int) -> int:
    """Return the mask of ports that work on this side and on the peer's."""
    row = engine.qps[qp]
    return engine.endpoints[row.endpoint].ports_up & engine.peers[row.peer].ports_up


@kernel
def _goes_on(engine: Engine, ev: int, eligible: int) -> bool:
    row = engine.evs[ev]
    return row.state == EvState.GOOD and (eligible >> row.port) & 1 == 1


@kernel
def _next_lane(engine: Engine, now: int, qp: int, eligible: int, avoid: int) -> int:
    row = engine.qps[qp]
    for _ in range(row.lane_count):
        row.lane_cursor = (row.lane_cursor + 1) % row.lane_count
        lane = row.lane_base + row.lane_cursor
        if (eligible >> engine.lanes[lane].port) & 1 == 1:
            ev = _next_in_rotation(engine, now, row.endpoint, lane, avoid)
            if ev != NONE:
                return ev
    return NONE


@kernel
def _next_in_rotation(engine: Engine, now: int, endpoint: int, lane: int, avoid: int) -> int:
    """Walk the rotation to the first GOOD EV; the first SKIP met is forgiven, but passed over (MRC §11.2.2)."""
    row = engine.lanes[lane]
    forgiven = NONE
    for _ in range(2 * row.active):  # a reshuffle on the way may show some twice; no EV is missed
        if row.cursor >= row.active:
            row.cursor = 0
            paths.shuffle(engine, endpoint, lane)
        ev = row.ev_base + engine.slots[row.ev_base + row.cursor].ev
        row.cursor += 1
        state = engine.evs[ev].state
        if state == EvState.GOOD:
            if ev != avoid and ev != forgiven:
                return ev
        elif forgiven == NONE:
            paths.happen(engine, now, ev, EvEvent.ROTATION)
            forgiven = ev
    return forgiven if forgiven != avoid else NONE
