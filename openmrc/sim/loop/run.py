"""Run traffic over a network: `finish(prepare(topology, traffic, transport, ...), transport) -> Results`.

The loop is Python over compiled windows, hundreds or thousands of them, each one call per shard on a thread pool.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from openmrc.core import host_memory
from openmrc.core.arrays import Ints
from openmrc.core.rows import column, table
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop import window
from openmrc.sim.loop.failures import ConnectionFailure, deadlock
from openmrc.sim.loop.fault_events import Faults, faults
from openmrc.sim.loop.probe_times import ProbeTimes
from openmrc.sim.network import network_tables, packet_pool
from openmrc.sim.network.build import NetworkSettings, build
from openmrc.sim.network.domains import inside, outside
from openmrc.sim.network.forwarding.scale_up import CHUNK
from openmrc.sim.network.network_tables import NONE, Network, Service
from openmrc.sim.network.reach import reaches
from openmrc.sim.workloads.traffic import Traffic
from openmrc.units import NEVER

State = Any

DRAIN_ROUND_TRIPS = 10  # longest wait for packets in flight after the last flow
STANDSTILL_WINDOWS = 4096  # windows between two looks for a run in which only probes still move
UNACKNOWLEDGED = "datagrams"  # the transport whose senders receive no acknowledgements


class LoopTransport(Protocol):
    """A transport for the loop: its network settings, and its state.

    The state is a NamedTuple of tables; `frames` has a row for each of `Network.hops`.
    """

    @property
    def name(self) -> str: ...
    @property
    def network(self) -> NetworkSettings: ...
    def build(self, topology: Topology, traffic: Traffic, network: Network, seed: int) -> State: ...
    def counters(self, state: State) -> dict[str, Any]: ...
    def failures(self, state: State, network: Network) -> list[ConnectionFailure]: ...


@dataclass(frozen=True)
class Results:
    """Results of a run: columns by flow and by directed link of the topology, and totals."""

    now: int  # ps, end of the run
    interrupted: bool
    standstill: bool  # nothing could happen any more, and some message was neither finished nor failed
    started: Ints  # ps by flow; NEVER: not started
    finished: Ints  # ps by flow: all acknowledged at the sender (datagrams: all arrived); NEVER
    received: Ints  # ps by flow: all in memory at the receiver; NEVER if not recorded
    failed: Ints  # ps by flow: abandoned by its transport; NEVER
    links: dict[str, Ints]  # counters by link: data_packets, data_bytes, control_packets, trimmed, dropped, peak,
    # arrived, arrived_bytes, marked, lost, control_full, at_random, duplicated
    scale_up_bytes: Ints  # by NIC: packets of the scale-up network, acknowledgements included; empty without one
    counters: dict[str, Any]  # the transport's own
    failures: list[ConnectionFailure] = field(default_factory=list)  # connections that ended in error
    deadlock: list[int] = field(default_factory=list)  # links whose lossless ports wait for each other in a cycle
    hops: int = 0
    on_the_way: int = 0  # packets in flight when the run ended
    windows: int = 0
    setup_s: float = 0.0
    wall_s: float = 0.0


@dataclass
class World:
    """A run in progress: tables, state and clock."""

    network: Network
    state: State
    faults: Faults
    threads: int
    links: int  # of the fabric; those of scale-up networks follow
    now: int = 0
    turn: int = 0
    windows: int = 0
    next_fault: int = 0
    drain: int = NEVER  # ps to wait for packets in flight after the last flow
    flows_done_at: int = NEVER  # ps
    standstill: bool = False  # nothing can happen any more, and some message is neither finished nor failed
    finished_before: int = -1  # messages, at the last look for a standstill
    probes: ProbeTimes | None = None
    setup_s: float = 0.0

    def run(self, until: int, watch: Callable[[], None]) -> None:
        """Advance window by window until every flow is done, nothing can happen any more, or `until` (ps)."""
        lookahead = self.network.config[0].lookahead
        reserve = _reserve(self.network)
        self._make_room(reserve)
        nodes, shards = self.network.nodes, self.network.shards
        wakes = (int(column(nodes, "next_at").min()), int(column(shards, "earliest").min()), self._next_probe_at())
        self.now = max(self.now, min(wakes))
        with ThreadPoolExecutor(self.threads) as pool:
            while self.now < until:
                self._apply_due_faults()
                if self.probes is not None and self.windows:  # the first window does not take in what was sent before
                    self.probes.send_due(self.network, self.now)
                end = min(self.now + lookahead, self._next_fault_at(), until)
                earliest = self._window(pool, end)
                self.windows += 1
                released = window.deliver_signals(self.network)
                earliest = min(earliest, released, self._next_fault_at(), self._next_probe_at())
                self._make_room(reserve)
                done = self.is_done()
                self.standstill = not done and (earliest >= NEVER or self._is_blocked())
                over = done or self.standstill
                self.now = end if over else max(end, earliest)
                watch()
                if over:
                    return

    def is_done(self) -> bool:
        """Return whether every flow is done, and no packet is in flight except endless ones such as probes."""
        finished, allocated, released = (
            int(column(self.network.shards, name).sum()) for name in ("finished", "allocated", "released")
        )
        if finished < len(self.network.flows):
            return False
        self.flows_done_at = min(self.flows_done_at, self.now)
        return allocated == released or self.now - self.flows_done_at >= self.drain

    def _is_blocked(self) -> bool:
        """Return whether no message is in progress and none can start, although probes keep the network busy.

        Looked for now and then, and only if no message was finished since the last look: it reads every message.
        """
        if self.windows % STANDSTILL_WINDOWS or self.drain >= NEVER:  # without acknowledgements there are no probes
            return False
        finished = int(column(self.network.shards, "finished").sum())
        waited, self.finished_before = finished == self.finished_before, finished
        if not waited or (column(self.network.nics, "pending") != NONE).any():
            return False
        flows = self.network.flows
        ended = np.minimum(column(flows, "sent_at"), column(flows, "failed_at"))
        return not bool(((column(flows, "posted_at") < NEVER) & (ended >= NEVER)).any())

    def _make_room(self, reserve: int) -> None:
        """Ensure that every shard has rows for the packets that it may send in the next window."""
        if window.level(self.network, reserve) >= reserve // 2:
            return
        self.network = packet_pool.grown(self.network, reserve)
        self.state = self.state._replace(frames=packet_pool.longer(self.state.frames, len(self.network.hops)))

    def _window(self, pool: ThreadPoolExecutor, end: int) -> int:
        earliest = NEVER
        for phase in (window.SWITCHES, window.NICS):
            earliest = self._phase(pool, phase, end)
        self.turn = 1 - self.turn
        return earliest

    def _phase(self, pool: ThreadPoolExecutor, phase: int, end: int) -> int:
        """Serve the nodes of one phase on all shards; return the earliest time of their next work (ps)."""
        shards = range(len(self.network.shards))

        def serve(shard: int) -> int:
            return int(window.run_window(self.state, self.network, shard, self.turn, phase, self.now, end))

        return serve(0) if len(shards) == 1 else min(pool.map(serve, shards))

    def _next_fault_at(self) -> int:
        return int(self.faults.at[self.next_fault]) if self.next_fault < len(self.faults.at) else NEVER

    def probe(self, probes: ProbeTimes) -> None:
        """Have probes sent from now on; ConfigError if the run has several threads."""
        self.network, self.probes = probes.installed(self.network), probes

    def _next_probe_at(self) -> int:
        return NEVER if self.probes is None else self.probes.next_at

    def _apply_due_faults(self) -> None:
        while self._next_fault_at() <= self.now:
            row = self.next_fault
            kind, subject, value = (
                int(part[row]) for part in (self.faults.kind, self.faults.subject, self.faults.value)
            )
            window.apply_fault(self.state, self.network, self.now, kind, subject, value)
            self.next_fault += 1


def prepare(
    topology: Topology,
    traffic: Traffic,
    transport: LoopTransport,
    broken: Faults | None = None,
    seed: int = 1,
    threads: int = 1,
    scale_up: bool = True,
) -> World:
    """Allocate the tables of a run. Without `scale_up`, messages within a scale-up domain use the fabric too."""
    begun = time.perf_counter()
    settings = transport.network
    hops = _hops_needed(topology, traffic, settings)
    services = Service.SECOND + bool(traffic.second_class.any())
    built = with_flows(build(topology, settings, hops, seed, shards=threads, services=services), traffic)
    stays = inside(topology, traffic) if scale_up else np.zeros(traffic.messages, np.bool_)
    column(built.flows, "inside")[:] = stays
    state = transport.build(topology, outside(traffic, stays), built, seed)
    host_memory.give_back()  # of planning; a tenth of what a run with many connections takes
    drain = NEVER
    if transport.name != UNACKNOWLEDGED:
        longest = max(port.round_trip for port in reaches(topology, settings.mtu, settings.header))
        drain = DRAIN_ROUND_TRIPS * int(longest)
    took = time.perf_counter() - begun
    return World(built, state, broken or faults(), threads, topology.links, drain=drain, setup_s=took)


def finish(
    world: World, transport: LoopTransport, until: int = NEVER, observe: Callable[[World], None] | None = None
) -> Results:
    """Run a world, at most `until` (ps). On Ctrl-C, return partial results.

    `observe` is called after every window, and may only read the world.
    """
    begun, interrupted = time.perf_counter(), False

    def watch() -> None:
        if observe is not None:
            observe(world)

    try:
        world.run(until, watch)
    except KeyboardInterrupt:
        interrupted = True
    return _results(world, transport, interrupted, time.perf_counter() - begun)


def _results(world: World, transport: LoopTransport, interrupted: bool, wall_s: float) -> Results:
    network = world.network
    of_ports = ("data_packets", "data_bytes", "control_packets", "trimmed", "dropped", "peak")
    of_wires = ("arrived", "arrived_bytes", "marked", "lost")
    of_losses = ("control_full", "at_random", "duplicated")
    fabric, nics = slice(0, world.links), len(network.scale_up_ports)
    links = {name: column(network.ports, name)[fabric].copy() for name in of_ports}
    links |= {name: column(network.wires, name)[fabric].copy() for name in of_wires}
    links |= {name: column(network.link_losses, name)[fabric].copy() for name in of_losses}
    if network.config[0].lossless:
        links["marked"] += column(network.queues, "marked")[fabric]
    return Results(
        now=world.now,
        interrupted=interrupted,
        standstill=world.standstill,
        started=column(network.flows, "posted_at").copy(),
        finished=_finished(network, transport),
        received=column(network.flows, "received_at").copy(),
        failed=column(network.flows, "failed_at").copy(),
        links=links,
        scale_up_bytes=column(network.wires, "arrived_bytes")[world.links + nics :].copy(),
        counters=transport.counters(world.state),
        failures=transport.failures(world.state, network),
        deadlock=deadlock(network) if network.config[0].lossless else [],
        hops=int(column(network.shards, "hops").sum()),
        on_the_way=int((column(network.shards, "allocated") - column(network.shards, "released")).sum()),
        windows=world.windows,
        setup_s=world.setup_s,
        wall_s=wall_s,
    )


def _finished(network: Network, transport: LoopTransport) -> Ints:
    """Return when each flow finished (ps): at its sender, or on arrival if senders get no acknowledgements."""
    sent: Ints = column(network.flows, "sent_at").copy()
    if transport.name != UNACKNOWLEDGED:
        return sent
    crossed = (column(network.flows, "size") > 0) & ~column(network.flows, "inside")
    return np.where(crossed, column(network.flows, "received_at"), sent)


def with_flows(network: Network, traffic: Traffic) -> Network:
    """Return the network with a row for every message; those without dependencies are listed at their NICs."""
    count = traffic.messages
    flows, releases = table(network_tables.Flow, count), table(network_tables.Release, len(traffic.released))
    for name in ("source", "destination", "size", "start", "waits", "second_class", "watched"):
        column(flows, name)[:] = getattr(traffic, name)
    for name in ("posted_at", "sent_at", "received_at", "failed_at"):
        column(flows, name)[:] = NEVER
    for name in ("next", "handle"):
        column(flows, name)[:] = NONE
    column(flows, "first_release")[:] = traffic.first_release[:-1]
    column(flows, "release_count")[:] = np.diff(traffic.first_release)
    column(releases, "flow")[:] = traffic.released
    column(releases, "delay")[:] = traffic.release_delay
    column(releases, "side")[:] = traffic.release_side
    shards = len(network.shards)
    signals = table(network_tables.ReleaseSignal, max(1, len(traffic.released)) * shards)
    column(network.shards, "signal_base")[:] = np.arange(shards) * (len(signals) // shards)
    made = network._replace(flows=flows, releases=releases, signals=signals)
    _list_ready(made, traffic)
    return made


def _list_ready(network: Network, traffic: Traffic) -> None:
    ready = np.flatnonzero(traffic.waits <= 0)
    if not len(ready):
        return
    order = ready[np.lexsort((ready, traffic.start[ready], traffic.source[ready]))]
    nic = traffic.source[order]
    same = nic[1:] == nic[:-1]
    column(network.flows, "next")[order[:-1][same]] = order[1:][same]
    firsts = order[np.concatenate([[True], ~same])]
    at = traffic.source[firsts]
    column(network.nics, "pending")[at] = firsts
    column(network.nics, "wake")[at] = traffic.start[firsts]
    column(network.nodes, "next_at")[at] = traffic.start[firsts]


def _hops_needed(topology: Topology, traffic: Traffic, settings: NetworkSettings) -> int:
    """Estimate the packets in flight: windows of 1.5 bandwidth-delay products, twice for acknowledgements.

    The queues of a scale-up network have no limit, so all its chunks may be queued. Unused rows cost no memory; if the
    estimate is too low (small packets, long queues, delays), `World` adds rows during the run.
    """
    ports = reaches(topology, settings.mtu, settings.header)
    per_nic = sum(3 * port.bdp // settings.mtu + 64 for port in ports)
    packets = int((traffic.size // settings.mtu + 2).sum())
    chunks = int((traffic.size[inside(topology, traffic)] // CHUNK + 2).sum())
    return min(per_nic * topology.nics, 2 * packets + 64 * topology.nics) + 2 * topology.nics * 64 + chunks


def _reserve(network: Network) -> int:
    """Estimate the largest number of packets that a shard may send in one window.

    For a NIC: the number of packets of the smallest message size that its ports can send, plus as many control packets.
    """
    sizes = column(network.flows, "size")
    smallest = int(sizes[sizes > 0].min()) if (sizes > 0).any() else 0
    packet = min(smallest, 4096) + network.config[0].header
    links = column(network.nic_ports, "link")
    byte_time = column(network.ports, "byte_time")[links].mean() / (1 << network_tables.BYTE_TIME_BITS)
    fastest = int(network.config[0].planes * network.config[0].lookahead / (packet * byte_time))
    return len(network.nics) * (48 + 2 * fastest) // len(network.shards) + 64
