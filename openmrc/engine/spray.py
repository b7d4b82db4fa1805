"""Which path the next packet takes: decided when it leaves, so that the latest news counts.

Lanes take turns, so every plane carries the same share; within a lane the rotation is walked, and
reshuffled when it is through. A port that is down or busy makes its lane ineligible and changes
nothing else (MRC §9.3.1, §9.3.2).
"""

from openmrc.core.jit import kernel
from openmrc.engine import paths
from openmrc.engine.states import EvEvent, EvState
from openmrc.engine.tables import NONE, Engine

_ANY, _OTHER_EV, _OTHER_PORT = 0, 1, 2  # how choosy a search is


@kernel
def choose(engine: Engine, now: int, qp: int, free_ports: int, avoid: int) -> int:
    """Return the EV row for a data packet; NONE: no usable path now.

    `avoid` is the EV that a packet was lost on: better another port, whose whole plane is another, or another EV.
    """
    row = engine.qps[qp]
    working = working_ports(engine, qp)
    eligible = working & free_ports
    others = eligible if avoid == NONE else eligible & ~(1 << engine.evs[avoid].port)
    if row.burst_left > 0 and row.burst_ev != avoid and _goes_on(engine, row.burst_ev, others or eligible):
        row.burst_left -= 1
        return row.burst_ev
    choosy = _ANY if avoid == NONE else _OTHER_PORT
    ev = NONE
    while ev == NONE and choosy >= _ANY:
        lanes = others if choosy == _OTHER_PORT else eligible
        ev = _next_lane(engine, now, qp, lanes, NONE if choosy == _ANY else avoid)
        choosy -= 1
        if choosy == _ANY and eligible != working:
            break  # the path it was lost on only where there is no other, not where others are busy
    if ev != NONE:
        row.burst_ev = ev
        row.burst_left = engine.params[engine.endpoints[row.endpoint].params].ev_burst - 1
    return ev


@kernel
def choose_control(engine: Engine, qp: int) -> int:
    """Return the EV row for a control packet; NONE: no port works.

    It goes back the way the last packet came, which has just worked, unless that lane's reverse path
    is known not to: then on the next lane.
    """
    row = engine.qps[qp]
    working = working_ports(engine, qp)
    fallback = NONE
    for step in range(row.lane_count):
        lane = engine.lanes[row.lane_base + (row.control_lane + step) % row.lane_count]
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
