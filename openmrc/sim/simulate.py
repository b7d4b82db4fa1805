"""A scenario, simulated: fabric, work, faults and transport are put together, run, and what came of it returned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from openmrc.errors import ConfigError
from openmrc.fabric import topology as fabric_topology
from openmrc.fabric.description import Fabric
from openmrc.fabric.topology import Topology
from openmrc.sim import matrix, timeline, triggers
from openmrc.sim.carriers import transport_of
from openmrc.sim.faults import Faults
from openmrc.sim.matrix import StartUnit
from openmrc.sim.matrix_line import Failure
from openmrc.sim.results import Run
from openmrc.sim.run import Progress, World, run
from openmrc.sim.samples import Recorder
from openmrc.sim.scenario import Matrix, Scenario, schedule
from openmrc.sim.workloads.amounts import ps_of
from openmrc.sim.workloads.families import plan_of
from openmrc.sim.workloads.joined import Work, joined
from openmrc.sim.workloads.plan import Hosts, Plan

Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Prepared:
    """What a scenario asks for, worked out."""

    topology: Topology
    work: Work
    faults: Faults
    events: list[timeline.Event]
    warnings: list[str]


def hosts_of(topology: Topology) -> Hosts:
    """Return what workloads must know of a fabric; a host is a NIC."""
    scale_up = topology.fabric.scale_up
    rate = sum(round(plane.host_gbps * 1e9) for plane in topology.fabric.planes_one_by_one())
    if scale_up is None:
        return Hosts(topology.nics, rate)
    domain = max(1, scale_up.gpus // topology.gpus_per_nic)
    own = round(scale_up.gbps * 1e9) * topology.gpus_per_nic
    return Hosts(topology.nics, rate, domain, own, scale_up.latency_ns * 1000)


def prepare(scenario: Scenario) -> Prepared:
    """Build the fabric, plan the work and lay the faults on their links."""
    if not isinstance(scenario.fabric, Fabric):
        raise ConfigError(f"scenario {scenario.name}: fabric: {scenario.fabric!r} has not been loaded")
    topology = fabric_topology.build(scenario.fabric)
    plans: list[tuple[str, Plan]] = []
    failures: list[Failure] = []
    warnings: list[str] = []
    for number, workload in enumerate(scenario.workloads):
        if isinstance(workload, Matrix):
            read = _matrix(workload, topology)
            plans.append((Path(workload.file).name, triggers.plan_of(read)))
            failures += read.failures
            warnings += read.warnings
        else:
            name = str(workload.__struct_config__.tag)
            plans.append((name, plan_of(hosts_of(topology), workload, scenario.seed + number)))
    words = schedule(scenario)
    broken = timeline.columns(topology, words, scenario.seed, failures)
    return Prepared(topology, joined(plans), broken, timeline.events(words), warnings)


def _matrix(workload: Matrix, topology: Topology) -> matrix.Matrix:
    read = matrix.read(Path(workload.file), StartUnit[workload.start_unit])
    if read.hosts != topology.nics:
        raise ConfigError(f"{workload.file}: Nodes: {read.hosts}, expected {topology.nics}, the hosts of the fabric")
    return read


def simulate(scenario: Scenario, threads: int = 1, progress: Watch | None = None) -> Run:
    """Run a scenario; Ctrl-C ends it early, with what there is."""
    prepared = prepare(scenario)
    transport = transport_of(scenario.transport)
    every = scenario.sampling.every
    recorder = Recorder(prepared.topology, ps_of(every) if every else 0)

    def observe(world: World) -> None:
        if world.now >= recorder.due:
            recorder.take(world.now, world.network)

    results = run(
        prepared.topology,
        prepared.work.traffic,
        transport,
        broken=prepared.faults,
        seed=scenario.seed,
        threads=threads,
        until=ps_of(scenario.until),
        progress=progress,
        observe=observe,
    )
    return Run(
        name=scenario.name,
        topology=prepared.topology,
        work=prepared.work,
        results=results,
        samples=recorder.samples(),
        network=transport.network_settings(),
        transport=transport.name,
        seed=scenario.seed,
        threads=threads,
        events=[event for event in prepared.events if event.at <= results.now],
        warnings=prepared.warnings,
    )
