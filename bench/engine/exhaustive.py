"""Does every run of a small world end in delivery or in a reported error, whatever its network does?

Two endpoints, one write with an immediate, a few planes. At every arrival and every timer the network may, up to a
number of times in all (`--depth`), lose, duplicate, delay, trim or mark the packet, take a port of either endpoint down
or up, or cut a plane in one direction without telling anybody. Every choice at every step is tried: the state of both
engines, of the packets on their way and of the clock is saved and restored, and a state that was seen with as many
choices left is not visited again.

A run is wrong when
- nothing is left to happen, or nothing has come of it long after the last retry could have been spent,
- success is reported although the responder has not got all of it, or something is written after that,
- an error is reported although a plane worked there and one worked back all the time.

    python -m bench.engine.exhaustive [--depth N] [--packets N] [--planes N] [--evs N] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openmrc.core.jit import entry, kernel, rare_kernel
from openmrc.core.rows import Int, Table, table
from openmrc.engine import endpoint, lifecycle, messages
from openmrc.engine.paths import ev_states
from openmrc.engine.responder import regions
from openmrc.engine.state.build import TableSizes, build
from openmrc.engine.state.machines import QpEvent
from openmrc.engine.state.params import Settings
from openmrc.engine.state.tables import NONE, CompletionKind, Engine, WcStatus, WriteRequest
from openmrc.units import NEVER, PS_PER_US
from openmrc.wire.codes import Opcode, Trim
from openmrc.wire.packet import NOWHERE

MTU = 256  # bytes
R_KEY = 7
LATENCY = 6 * PS_PER_US
LATE = 40 * PS_PER_US  # what a delayed packet takes more: longer than the loss delay
TIMEOUT = 131 * PS_PER_US
LINEAR, EXPONENTIAL = 4, 4
PATIENCE = TIMEOUT * (LINEAR + 2 * (1 << EXPONENTIAL)) * 4  # after the last choice everything is decided
FLIGHTS = 24  # packets on their way
LONGEST_TRAIL = 8  # choices of one run
STACKED = 1 << 13  # saved states for each choice left
MOST_STEPS = 20_000
WORD = 8  # bytes

Words = NDArray[np.int64]


class Choice(IntEnum):
    """What the network may do; those from PORT on come once for every port, or plane and direction."""

    NOTHING = 0
    LOSE = 1
    DUPLICATE = 2
    DELAY = 3
    TRIM = 4
    MARK = 5
    PORT = 6  # toggle a port: + endpoint x planes + port, then the same for CUT


class Outcome(IntEnum):
    """How a run ended."""

    RUNNING = 0
    DELIVERED = 1
    FAILED = 2
    STUCK = 3
    ENDLESS = 4
    INCOMPLETE = 5  # success without the data
    OVERWRITTEN = 6  # written to after success
    GAVE_UP = 7  # an error although paths worked
    OVERFLOW = 8  # the bench's own tables are too small


WRONG = range(Outcome.STUCK, Outcome.OVERFLOW + 1)


class World:
    """What the engines do not know; one row."""

    now: Int  # ps
    changed_at: Int  # ps, the last choice
    left: Int  # choices
    steps: Int
    trail_length: Int
    trail: Annotated[NDArray[np.int64], (np.int64, (2 * LONGEST_TRAIL,))]  # step, choice
    cut: Int  # mask: direction x planes + plane
    touched: Int  # mask of the same: was cut, or a port of it down
    down: Int  # mask: endpoint x planes + port
    succeeded: Int
    received: Int  # completions of the immediate


class Flight:
    """A packet on its way; its fields are the engine's packet row of the same number + 1, the last row stays empty."""

    at: Int  # ps, arrival; NEVER: free
    to: Int  # endpoint
    order: Int


class Search(NamedTuple):
    """The state, as tables over one buffer of words, and what the search remembers."""

    engine: Engine
    world: Table[World]
    flights: Table[Flight]
    state: Words  # all of the above
    counted: Words  # -1 where a word tells states apart, 0 where it is a statistic
    stack: NDArray[np.int64]  # saved states, one a row
    seen: Words  # open hash of states
    ends: Words  # runs by outcome
    facts: Words  # states visited, states seen before, high water of the stack, first wrong outcome
    wrong: Words  # trail of the first wrong run


def search_of(planes: int, evs: int, packets: int, depth: int, slots: int) -> Search:
    """Build the world: both queue pairs in RTS, one receive and one WriteIMM of `packets` packets posted."""
    layout = TableSizes(
        endpoints=2,
        ports=planes,
        evs_per_rotation=evs,
        controls=16,
        events=1,
        sends=1,
        receives=1,
        window=8,
        tracked=32,
        wimms=1,
        regions=1,
    )
    settings = Settings(mtu=MTU, link_gbps=100.0, base_rtt_us=12.0)
    parts = [*build(layout, settings, packets=FLIGHTS + 2), table(World, 1), table(Flight, FLIGHTS)]
    state, views = _over_one_buffer([np.asarray(part) for part in parts])
    engine: Any = Engine(*views[:-2])
    world: Any = views[-2]
    flights: Any = views[-1]
    _connect(engine, planes, evs)
    flights["at"][:] = NEVER
    world[0].left = depth
    write = table(WriteRequest, 1)[0]
    write.length, write.r_key, write.has_immediate, write.signaled = packets * MTU, R_KEY, 1, 1
    assert messages.post_receive(engine, 1, 0) == messages.PostStatus.OK
    assert endpoint.post_write(engine, 0, 0, write) == messages.PostStatus.OK
    return Search(
        engine=engine,
        world=world,
        flights=flights,
        state=state,
        counted=_counted(views, state),
        stack=np.zeros((STACKED * max(depth, 1), len(state)), np.int64),
        seen=np.zeros(slots, np.int64),
        ends=np.zeros(len(Outcome), np.int64),
        facts=np.zeros(4, np.int64),
        wrong=np.zeros(2 * LONGEST_TRAIL + 1, np.int64),
    )


def _over_one_buffer(parts: list[NDArray[Any]]) -> tuple[Words, list[NDArray[Any]]]:
    """Copy tables into one buffer, so that a state is saved by one copy; return it, and the tables in it."""
    places = np.cumsum([0, *(-(-part.nbytes // WORD) for part in parts)])
    state = np.zeros(places[-1], np.int64)
    views = []
    for part, start in zip(parts, places, strict=False):
        raw = state[start : start + -(-part.nbytes // WORD)].view(np.uint8)[: part.nbytes]
        view = raw.view(part.dtype)
        view[:] = part
        views.append(view)
    return state, views


_STATISTICS = {
    "QueuePairRow": ("sent_packets", "sent_bytes", "retransmitted", "timeouts", "inferred_losses", "spurious",
                  "sacks_received", "nacks_received", "duplicates", "out_of_window", "trimmed_arrivals",
                  "marked_arrivals", "sacks_sent", "nacks_sent", "acks_sent", "probes_sent", "probes_answered",
                  "malformed", "heard_at"),
    "Endpoint": ("abandoned", "unknown_qp", "wrong_source", "unknown_opcode", "contradictions", "control_dropped",
                 "events_dropped", "event_head", "event_tail"),
    "Port": ("sent_packets", "sent_bytes", "received_packets", "received_bytes", "retransmitted", "marked", "trimmed",
             "lost", "requeued", "false_losses", "control_sent", "control_received"),
    "Peer": ("quick_adapts", "decreases"),
    "Ev": ("sent", "acked", "marked", "trimmed"),
    "EvFailure": ("lost",),
    "Event": ("kind", "at", "qp", "peer", "port", "entropy", "state", "cause"),
    "World": ("steps", "trail_length", "trail"),
}  # fmt: skip


def _counted(views: list[NDArray[Any]], state: Words) -> Words:
    """Return the mask of words by which two states differ: nothing is decided by statistics."""
    kept, state[:] = state.copy(), -1
    for view in views:
        for name in _STATISTICS.get(view.dtype.type.__name__, ()):
            view[name] = 0
    mask, state[:] = state.copy(), kept
    assert {view.dtype.type.__name__ for view in views} >= _STATISTICS.keys(), "a row type has another name"
    return mask


def _connect(engine: Engine, planes: int, evs: int) -> None:
    for number in range(2):
        node = engine.endpoints[number]
        lifecycle.open_peer(engine, 0, node.peer_base, 1 - number)
        regions.register(engine, number, R_KEY, 0, 1 << 20, regions.Access.REMOTE_WRITE, 1, 0)
        row = engine.qps[node.qp_base]
        row.peer = node.peer_base
        row.dest_qpn = engine.qps[engine.endpoints[1 - number].qp_base].qpn
        row.pd = 1
        row.access = regions.Access.REMOTE_WRITE
        row.path_mtu = MTU
        row.timeout = TIMEOUT
        row.linear_count, row.exponential_count = LINEAR, EXPONENTIAL
        row.mpr = row.mpr_dest = 8
        row.max_wimm = row.max_wimm_dest = 1
        row.trim_nack_dest = True
        for plane in range(planes):
            for k in range(evs):
                ev_states.set_ev(engine, node.qp_base, plane, k, plane << 8 | k)
        ev_states.begin(engine, 0, node.qp_base, evs, 1)
        for event in (QpEvent.TO_INIT, QpEvent.TO_RTR, QpEvent.TO_RTS):
            assert lifecycle.move(engine, 0, node.qp_base, event) == 1


@entry
def explore(search: Search, planes: int, most: int) -> int:
    """Visit every run; return the saved states that `most` states left unvisited."""
    _transmit(search, planes, 0)
    _save(search, 0)
    stacked = 1
    while stacked > 0 and search.facts[0] < most:
        stacked -= 1
        for word in range(len(search.state)):
            search.state[word] = search.stack[stacked, word]
        stacked = _run(search, planes, stacked)
    return stacked


@kernel
def _run(search: Search, planes: int, stacked: int) -> int:
    """Go on from the current state to its end without another choice, and stack what each choice leads to."""
    world = search.world[0]
    while True:
        outcome = _outcome(search, planes)
        if outcome != Outcome.RUNNING:
            _count_end(search, outcome)
            return stacked
        if world.left > 0:
            if _is_seen(search):
                search.facts[1] += 1
                return stacked
            if stacked >= len(search.stack) - 6 - 4 * planes:
                _count_end(search, Outcome.OVERFLOW)
                return stacked
            stacked = _branch(search, planes, stacked)
        search.facts[0] += 1
        _step(search, planes, Choice.NOTHING)


@kernel
def _branch(search: Search, planes: int, stacked: int) -> int:
    """Stack the states to which the choices at this step lead."""
    base = stacked
    _save(search, base)
    stacked += 1
    for choice in range(Choice.LOSE, Choice.PORT + 4 * planes):
        if _applies(search, choice):
            _step(search, planes, choice)
            _save(search, stacked)
            stacked += 1
            for word in range(len(search.state)):
                search.state[word] = search.stack[base, word]
    stacked -= 1  # the state at the base goes on by itself
    for word in range(len(search.state)):
        search.stack[base, word] = search.stack[stacked, word]
    search.facts[2] = max(search.facts[2], stacked)
    return stacked


@kernel
def _save(search: Search, place: int) -> None:
    for word in range(len(search.state)):
        search.stack[place, word] = search.state[word]


@kernel
def _applies(search: Search, choice: int) -> bool:
    """Whether a choice is possible: most need a packet that arrives now."""
    if choice >= Choice.PORT:
        return True
    flight = _next_flight(search)
    if flight == NONE or search.flights[flight].at > _next_deadline(search):
        return False
    packet = search.engine.packets[flight + 1]
    is_data = packet.opcode <= Opcode.WRITE_ONLY_IMM
    if choice == Choice.TRIM:
        return is_data and packet.trimmed == Trim.WHOLE
    if choice == Choice.MARK:
        return is_data and packet.marked == 0
    return True


@rare_kernel
def _step(search: Search, planes: int, choice: int) -> None:
    """Let the network choose, then the next thing happen, then both endpoints send."""
    world = search.world[0]
    if choice != Choice.NOTHING:
        world.trail[2 * world.trail_length] = world.steps
        world.trail[2 * world.trail_length + 1] = choice
        world.trail_length += 1
        world.left -= 1
        world.changed_at = world.now
    world.steps += 1
    flight = _next_flight(search)
    arrives = search.flights[flight].at if flight != NONE else NEVER
    if choice >= Choice.PORT:
        _toggle(search, planes, choice - Choice.PORT)
    elif arrives <= _next_deadline(search):
        world.now = max(world.now, arrives)
        _arrive(search, planes, flight, choice)
    else:
        world.now = max(world.now, _next_deadline(search))
        for number in range(2):
            endpoint.expire(search.engine, world.now, number)
    for number in range(2):
        _drain(search, number)
        _transmit(search, planes, number)


@kernel
def _toggle(search: Search, planes: int, index: int) -> None:
    """Take a port of an endpoint down or up, or cut or mend a plane in one direction."""
    world = search.world[0]
    plane = index % planes
    if index < 2 * planes:
        world.down ^= 1 << index
        world.touched |= (1 << plane) | (1 << (planes + plane))
        endpoint.set_port(search.engine, world.now, index // planes, plane, 1 - ((world.down >> index) & 1))
    else:
        world.cut ^= 1 << (index - 2 * planes)
        world.touched |= 1 << (index - 2 * planes)


@kernel
def _arrive(search: Search, planes: int, flight: int, choice: int) -> None:
    row = search.flights[flight]
    packet = search.engine.packets[flight + 1]
    world = search.world[0]
    if choice == Choice.DELAY:
        row.at = world.now + LATE
        return
    if choice == Choice.DUPLICATE:
        copy = _free_flight(search)
        if copy != NONE:
            search.engine.packets[copy + 1] = packet
            search.flights[copy].at = world.now + LATENCY
            search.flights[copy].to = row.to
            search.flights[copy].order = world.steps
    row.at = NEVER
    ports = (world.down | world.down >> planes) >> packet.port
    if choice == Choice.LOSE or ports & 1 == 1:
        _clear(search, flight + 1)
        return
    if choice == Choice.TRIM:
        packet.trimmed = Trim.TRIMMED
    if choice == Choice.MARK:
        packet.marked = 1
    endpoint.receive(search.engine, world.now, row.to, flight + 1)
    if row.to == 1 and packet.payload != NOWHERE and world.succeeded == 1:
        world.succeeded = 2
    _clear(search, flight + 1)


@kernel
def _drain(search: Search, number: int) -> None:
    engine = search.engine
    while True:
        done = endpoint.next_completion(engine, number)
        if done == NONE:
            break
        row = engine.completions[done]
        if row.kind == CompletionKind.RECEIVE:
            search.world[0].received += 1 if row.status == WcStatus.SUCCESS else 0
        elif row.status == WcStatus.SUCCESS:
            search.world[0].succeeded = 1
        else:
            search.world[0].succeeded = -1
    while endpoint.next_event(engine, number) != NONE:
        pass


@rare_kernel
def _transmit(search: Search, planes: int, number: int) -> None:
    engine = search.engine
    world = search.world[0]
    while endpoint.next_packet(engine, world.now, number, (1 << planes) - 1, 0) == 1:
        flight = _free_flight(search)
        is_cut = (world.cut >> (number * planes + engine.packets[0].port)) & 1
        if flight == NONE or is_cut == 1:
            continue
        engine.packets[flight + 1] = engine.packets[0]
        search.flights[flight].at = world.now + LATENCY
        search.flights[flight].to = 1 - number
        search.flights[flight].order = world.steps
    _clear(search, 0)


@kernel
def _clear(search: Search, packet: int) -> None:
    """Empty a packet row, so that what left it does not tell states apart."""
    search.engine.packets[packet] = search.engine.packets[FLIGHTS + 1]


@kernel
def _next_flight(search: Search) -> int:
    """Return the packet that arrives first, NONE if there is none."""
    found = NONE
    at, order = NEVER, 0
    for flight in range(len(search.flights)):
        row = search.flights[flight]
        if row.at < at or (row.at == at and at < NEVER and row.order < order):
            found, at, order = flight, row.at, row.order
    return found


@kernel
def _free_flight(search: Search) -> int:
    for flight in range(len(search.flights)):
        if search.flights[flight].at == NEVER:
            return flight
    return NONE


@kernel
def _next_deadline(search: Search) -> int:
    return min(endpoint.next_deadline(search.engine, 0), endpoint.next_deadline(search.engine, 1))


@kernel
def _outcome(search: Search, planes: int) -> int:
    world = search.world[0]
    if world.succeeded == 2:
        return Outcome.OVERWRITTEN.value
    if world.succeeded == 1:
        return Outcome.DELIVERED.value if world.received == 1 else Outcome.INCOMPLETE.value
    if world.succeeded == -1:
        every = (1 << planes) - 1
        is_open = world.touched & every != every and (world.touched >> planes) & every != every
        return Outcome.GAVE_UP.value if is_open else Outcome.FAILED.value
    if _next_flight(search) == NONE and _next_deadline(search) == NEVER and world.left == 0:
        return Outcome.STUCK.value
    if world.now > world.changed_at + PATIENCE or world.steps > MOST_STEPS:
        return Outcome.ENDLESS.value
    return Outcome.RUNNING.value


@kernel
def _count_end(search: Search, outcome: int) -> None:
    search.ends[outcome] += 1
    if outcome >= Outcome.STUCK and search.facts[3] == 0:
        search.facts[3] = outcome
        world = search.world[0]
        search.wrong[0] = world.trail_length
        for index in range(2 * world.trail_length):
            search.wrong[1 + index] = world.trail[index]


@kernel
def _is_seen(search: Search) -> bool:
    """Note the current state; return whether it was noted before. A full hash notes nothing more."""
    key = 1469598103934665603
    for word in range(len(search.state)):
        key = (key ^ (search.state[word] & search.counted[word])) * 1099511628211
        key ^= (key >> 29) & 0x7FFFFFFFF
    if key == 0:
        key = 1
    slot = key & (len(search.seen) - 1)
    for _ in range(64):
        if search.seen[slot] == key:
            return True
        if search.seen[slot] == 0:
            search.seen[slot] = key
            return False
        slot = (slot + 1) & (len(search.seen) - 1)
    return False


@dataclass(frozen=True)
class Report:
    """What a search found."""

    planes: int
    evs: int
    packets: int
    depth: int
    states: int
    revisited: int  # states that were met again
    delivered: int
    failed: int
    wrong: dict[str, int]
    first_wrong: list[str]  # outcome, then the choices that lead to it
    complete: bool  # everything was visited
    seconds: float


def search(planes: int = 2, evs: int = 1, packets: int = 4, depth: int = 2, most: int = 1 << 62) -> Report:
    """Visit every run of a world and say how they ended; `most` bounds the states visited."""
    slots = 1 << (12 + 4 * min(depth, 3))
    world = search_of(planes, evs, packets, depth, slots)
    began = time.perf_counter()
    left = explore(world, planes, most)
    ends = {outcome.name.lower(): int(world.ends[outcome]) for outcome in Outcome}
    return Report(
        planes=planes,
        evs=evs,
        packets=packets,
        depth=depth,
        states=int(world.facts[0]),
        revisited=int(world.facts[1]),
        delivered=ends["delivered"],
        failed=ends["failed"],
        wrong={Outcome(number).name.lower(): int(world.ends[number]) for number in WRONG if world.ends[number]},
        first_wrong=_described(world, planes),
        complete=left == 0,
        seconds=time.perf_counter() - began,
    )


def _described(world: Search, planes: int) -> list[str]:
    if world.facts[3] == 0:
        return []
    length = int(world.wrong[0])
    pairs = world.wrong[1 : 1 + 2 * length].reshape(length, 2)
    return [Outcome(int(world.facts[3])).name.lower(), *(f"step {step}: {_name(int(c), planes)}" for step, c in pairs)]


def _name(choice: int, planes: int) -> str:
    if choice < Choice.PORT:
        return Choice(choice).name.lower()
    kind, index = divmod(choice - Choice.PORT, 2 * planes)
    side, plane = divmod(index, planes)
    return f"{'cut' if kind else 'port'} of plane {plane} {('from', 'at')[1 - kind]} endpoint {side}"


def main() -> int:
    """Print what the search found; exit code 1 if a run ended wrongly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=2, help=f"choices of the network in one run, to {LONGEST_TRAIL}")
    parser.add_argument("--packets", type=int, default=4, help="of the write, to 8")
    parser.add_argument("--planes", type=int, default=2)
    parser.add_argument("--evs", type=int, default=1, help="of each plane")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not 0 <= options.depth <= LONGEST_TRAIL or not 1 <= options.packets <= 8:
        parser.error(f"--depth is 0 to {LONGEST_TRAIL}, --packets 1 to 8")
    report = search(options.planes, options.evs, options.packets, options.depth)
    if options.json:
        print(json.dumps(asdict(report)))
    else:
        print(f"{report.states:,} states in {report.seconds:.1f} s, {report.revisited:,} met again")
        print(f"{report.delivered:,} runs delivered, {report.failed:,} reported an error")
        print("wrong:", ", ".join(f"{count:,} {name}" for name, count in report.wrong.items()) or "none")
        print(*report.first_wrong, sep="\n  ")
    return 1 if report.wrong or not report.complete else 0


if __name__ == "__main__":
    sys.exit(main())
