"""Simulate a scenario: assemble its fabric, workloads, faults and transport, run them, and return the results."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from openmrc.base.amounts import ps_of
from openmrc.core.arrays import Ints
from openmrc.core.rows import column
from openmrc.errors import ConfigError, FieldError
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop import run as loop
from openmrc.sim.loop.fault_events import Faults
from openmrc.sim.loop.run import LoopTransport, World
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.network.reach import nic_rate
from openmrc.sim.results.samples import LinkSampler, Span
from openmrc.sim.results.summary import SimulationRun
from openmrc.sim.scenario import description as scenarios
from openmrc.sim.scenario import matrix, timeline, triggers
from openmrc.sim.scenario.convergence import converging
from openmrc.sim.scenario.description import Matrix, Scenario, schedule
from openmrc.sim.scenario.matrix_line import FailureLine
from openmrc.sim.scenario.transport_options import transport_of
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.transports.mrc.tap import CaptureTap
from openmrc.sim.workloads.families import Workload
from openmrc.sim.workloads.joined import JoinedTraffic, joined
from openmrc.sim.workloads.plan import WorkloadGraph, WorkloadHosts
from openmrc.sim.workloads.shares import plan_of
from openmrc.sim.workloads.trace import Trace
from openmrc.units import PS_PER_US

PROGRESS_S = 0.25  # wall time between two progress reports
MOST_CAPTURED = 10_000_000  # packets of all captured hosts together, about 350 bytes each
MOST_SPANS = 8  # faults around which samples are finer


@dataclass(frozen=True)
class Status:
    """Progress of a run."""

    now: int  # ps
    hops: int  # packets handled at nodes
    finished: int  # flows, computations and barriers
    of: int
    share: float  # of the payload that has reached NICs, retransmissions included
    wall_s: float

    @property
    def left_s(self) -> float | None:
        """Return the estimated remaining wall time at the current rate (s); None: too early to tell."""
        done = max(min(self.share, 1.0), self.finished / max(1, self.of))
        return self.wall_s * (1 - done) / done if done > 0.01 else None


OnProgress = Callable[[Status], None]


@dataclass(frozen=True)
class Prepared:
    """A scenario as the loop needs it: topology, traffic and faults."""

    topology: Topology
    work: JoinedTraffic
    faults: Faults
    events: list[timeline.ReportedFault]
    warnings: list[str]


def hosts_of(topology: Topology) -> WorkloadHosts:
    """Return the fabric as workloads see it; a host is a NIC, with the GPUs behind it."""
    scale_up = topology.fabric.scale_up
    domain = 1 if scale_up is None else scale_up.gpus // topology.gpus_per_nic
    return WorkloadHosts(topology.nics, nic_rate(topology), domain)


def prepare(scenario: Scenario) -> Prepared:
    """Build the fabric, plan the work and resolve the faults to links."""
    if not isinstance(scenario.fabric, Fabric):
        raise ConfigError(f"scenario {scenario.name}: fabric: {scenario.fabric!r} has not been loaded")
    topology = build(scenario.fabric)
    plans: list[tuple[str, WorkloadGraph]] = []
    failures: list[FailureLine] = []
    warnings: list[str] = []
    for number, workload in enumerate(scenario.workloads):
        if isinstance(workload, Matrix):
            read = _matrix(workload, topology)
            plans.append((Path(workload.file).name, triggers.plan_of(read)))
            failures += read.failures
            warnings += read.warnings
        else:
            name = Path(workload.file).name if isinstance(workload, Trace) else str(workload.__struct_config__.tag)
            plans.append((name, _planned(hosts_of(topology), workload, scenario.seed, number)))
    _refuse_second_class(scenario, topology)
    work = joined(plans)
    if work.traffic.single_path.any() and scenario.transport.name == "datagrams":
        warnings.append("single_path: datagrams spray these messages like all others")
    warnings += _unused_ports(scenario, topology)
    text = schedule(scenario)
    broken = timeline.columns(topology, text, scenario.seed, failures)
    return Prepared(topology, work, broken, timeline.events(text), warnings)


def _refuse_second_class(scenario: Scenario, topology: Topology) -> None:
    for number, workload in enumerate(scenario.workloads):
        if workload.second_class and transport_of(scenario.transport, topology).network.lossless:
            raise FieldError(
                f"$.workloads[{number}]",
                f"second_class: the ports of {scenario.transport.name} are lossless, and their PAUSE knows one class; "
                "remove it, or use mrc, uet or datagrams",
            )


def _planned(hosts: WorkloadHosts, workload: Workload, seed: int, number: int) -> WorkloadGraph:
    """Return the plan of the scenario's n-th workload."""
    try:
        return plan_of(hosts, workload, seed + number)
    except ConfigError as error:
        if isinstance(workload, Trace):
            raise  # it names a place in the trace
        raise FieldError(f"$.workloads[{number}]", str(error)) from None


def _unused_ports(scenario: Scenario, topology: Topology) -> list[str]:
    """Warn if a RoCE flow cannot use all ports of its NIC: the comparison would measure planes, not transports."""
    wanted, ports = scenario.transport, int(topology.link_port[topology.link_source < topology.nics].max()) + 1
    if not wanted.name.startswith("roce") or wanted.qps >= ports:
        return []
    return [
        f"transport: {wanted.name} keeps each queue pair on one port: a flow with {wanted.qps} uses {wanted.qps} of "
        f"{ports}; compare with qps: {ports}, or on a fabric with one plane of the NIC's full rate"
    ]


def _matrix(workload: Matrix, topology: Topology) -> matrix.ConnectionMatrix:
    read = matrix.read(Path(workload.file), workload.start_unit)
    if read.hosts != topology.nics:
        raise ConfigError(f"{workload.file}: Nodes: {read.hosts}, expected {topology.nics}, the hosts of the fabric")
    return read


def simulate(scenario: Scenario, threads: int = 1, on_progress: OnProgress | None = None) -> SimulationRun:
    """Run a scenario; on Ctrl-C, stop and return partial results."""
    prepared = prepare(scenario)
    transport = transport_of(scenario.transport, prepared.topology)
    if scenario.capture is not None:
        transport = _tapped(transport, scenario.capture, prepared.topology)
    reporter = _ProgressReporter(prepared, transport.network, on_progress) if on_progress else None
    world = world_of(scenario, prepared, transport, threads)
    recorder = _recorder(scenario, prepared, transport, world)

    def observe(world: World) -> None:
        if world.now >= recorder.due:
            recorder.take(world.now, world.network, world.state)
        if reporter is not None:
            reporter.report(world)

    results = loop.finish(world, transport, ps_of(scenario.until), observe)
    has_domains = scenario.transport.scale_up and prepared.topology.fabric.scale_up is not None
    done = SimulationRun(
        name=scenario.name,
        topology=prepared.topology,
        work=prepared.work,
        results=results,
        samples=recorder.samples(),
        network=transport.network,
        transport=transport.name,
        seed=scenario.seed,
        threads=threads,
        events=[event for event in prepared.events if event.at <= results.now],
        warnings=prepared.warnings,
        spans=recorder.spans,
        captured=world.state.tapped if scenario.capture is not None else None,
        capture=transport.capture if isinstance(transport, MrcTransport) else CaptureTap(),
        inside=np.flatnonzero(column(world.network.flows, "inside")) if has_domains else None,
        restart=scenario.restart,
    )
    done.warnings.extend(result_warnings(done, prepared.events))
    return done


def world_of(scenario: Scenario, prepared: Prepared, transport: LoopTransport, threads: int = 1) -> World:
    """Return the world of a scenario before its first window."""
    topology = prepared.topology
    broken = converging(topology, prepared.faults, transport.network)
    scale_up = scenario.transport.scale_up
    return loop.prepare(topology, prepared.work.traffic, transport, broken, scenario.seed, threads, scale_up)


def result_warnings(done: SimulationRun, events: list[timeline.ReportedFault]) -> Iterator[str]:
    """Yield warnings about faults without effect and traffic that never used the fabric."""
    end = int(done.results.finished.max(initial=0)) if done.is_complete else done.results.now
    late = [event for event in events if event.begins and event.at >= end]
    if late and not done.results.interrupted:
        which = "1 fault is" if len(late) == 1 else f"{len(late):,} faults are"
        yield (
            f"faults: {which} after the end of the run at {end / PS_PER_US:,.6g} us and had no effect; the first: "
            f"{late[0].text} at {late[0].at / PS_PER_US:,.6g} us"
        )
    if not len(done.work.moving):
        yield "workloads: no message moves bytes, so nothing was measured"
    if done.inside is not None and len(done.work.moving) and len(done.inside) == len(done.work.moving):
        yield (
            "scale_up: all messages stay inside scale-up domains, so the fabric carried nothing: goodput of planes and "
            "tiers is 0; transport: {scale_up: false} sends them through the NICs"
        )


def _tapped(transport: LoopTransport, wanted: scenarios.Capture, topology: Topology) -> LoopTransport:
    """Return the transport with a copy of its packets at some NICs."""
    if not isinstance(transport, MrcTransport):
        raise FieldError(
            "$.capture", f"capture: transport {transport.name} has no MRC packets; only mrc can be captured"
        )
    nics = tuple(sorted({_nic(topology, host) for host in wanted.hosts}))
    if len(nics) * wanted.limit > MOST_CAPTURED:
        raise FieldError(
            "$.capture.limit",
            f"capture: {len(nics)} hosts x limit {wanted.limit} are more than {MOST_CAPTURED} packets; "
            f"use a limit of at most {MOST_CAPTURED // len(nics)}",
        )
    return dataclasses.replace(transport, capture=CaptureTap(nics, wanted.limit, ps_of(wanted.start)))


def _nic(topology: Topology, host: int | str) -> int:
    try:
        named = topology.node_named(host) if isinstance(host, str) and not host.isdigit() else int(host)
    except ConfigError:
        named = -1
    if not 0 <= named < topology.nics:
        raise FieldError(
            "$.capture.hosts",
            f"capture: hosts: {host!r} is not a NIC; expected 0 to {topology.nics - 1}, or a name such as h3",
        )
    return named


def _recorder(scenario: Scenario, prepared: Prepared, transport: LoopTransport, world: World) -> LinkSampler:
    sampling = scenario.sampling
    around = ps_of(sampling.around_faults)
    return LinkSampler(
        prepared.topology,
        ps_of(sampling.every) if sampling.every else 0,
        spans=spans_around([event.at for event in prepared.events if event.begins], around),
        transport=transport,
        watched=_watched(prepared.work, world, sampling.flows),
    )


def spans_around(moments: list[int], length: int) -> list[Span]:
    """Return the spans of finer samples: from half a length before to a length (ps) after each of the first faults."""
    if length == 0:
        return []
    distinct = sorted(set(moments))[:MOST_SPANS]
    return [Span(max(0, at - length // 2), at, at + length) for at in distinct]


def _watched(work: JoinedTraffic, world: World, count: int) -> list[Ints]:
    """Return the flows of up to `count` connections, spread evenly over all connections of the fabric."""
    traffic = work.traffic
    flows = work.moving[column(world.network.flows, "inside")[work.moving] == 0]
    pairs = traffic.source[flows] * len(world.network.nics) + traffic.destination[flows]
    firsts = np.sort(np.unique(pairs, return_index=True)[1])
    count = min(count, len(firsts))
    chosen = firsts[np.arange(count) * len(firsts) // max(1, count)]
    return [
        flows[(pairs == pairs[first]) & (traffic.connection[flows] == traffic.connection[flows[first]])]
        for first in chosen
    ]


class _ProgressReporter:
    def __init__(self, prepared: Prepared, network: NetworkSettings, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._begun = time.monotonic()
        self._next = self._begun
        self._to_nics = np.flatnonzero(prepared.topology.link_destination < prepared.topology.nics)
        headers = (network.mtu + network.header) / network.mtu
        self._bytes = max(1.0, float(prepared.work.traffic.size.sum()) * headers)

    def report(self, world: World) -> None:
        wall = time.monotonic()
        if wall < self._next:
            return
        self._next = wall + PROGRESS_S
        arrived = float(column(world.network.ports, "data_bytes")[self._to_nics].sum())
        hops, finished = (int(column(world.network.shards, name).sum()) for name in ("hops", "finished"))
        of = len(world.network.flows)
        self._on_progress(Status(world.now, hops, finished, of, arrived / self._bytes, wall - self._begun))
