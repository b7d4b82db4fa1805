"""Traffic over a simulated network in one call, for tests and benches of the loop."""

from __future__ import annotations

from collections.abc import Callable

from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop.fault_events import Faults
from openmrc.sim.loop.run import LoopTransport, Results, World, finish, prepare
from openmrc.sim.workloads.traffic import Traffic
from openmrc.units import NEVER


def run(
    topology: Topology,
    traffic: Traffic,
    transport: LoopTransport,
    broken: Faults | None = None,
    seed: int = 1,
    threads: int = 1,
    until: int = NEVER,
    observe: Callable[[World], None] | None = None,
) -> Results:
    """Simulate, at most `until` (ps), as `finish` does."""
    return finish(prepare(topology, traffic, transport, broken, seed, threads), transport, until, observe)
