"""What collectives cost while links of a fabric are out of use, packet by packet on that very fabric.

Each collective of the table of responses (`bench.jobs.responses`) is simulated twice, without the drain and with it,
from the same seed: the links are denied before the first packet, as they are once a drain is done.
"""

from typing import Any

import msgspec

from openmrc.core.arrays import Ints
from openmrc.core.rows import column
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.operations.fleets.simulated_fleet import SimulatedFleet
from openmrc.sim.loop import run as loop
from openmrc.sim.scenario.description import Scenario, Transport
from openmrc.sim.scenario.transport_options import transport_of
from openmrc.sim.simulate import prepare
from openmrc.sim.workloads.families import Workload
from openmrc.units import NEVER, PS_PER_US

GROUP, RING_STEPS = 16, 4  # as in `bench.jobs.responses`
SEED = 1
LARGEST = 1 << 22  # bytes a NIC sends
MOST_NICS = 8192
_FULL_NICS = 1024  # with more, NICs send less: a minute of processor time is long for an answer


class SimulatedCollective(msgspec.Struct, frozen=True, kw_only=True):
    """One collective, without the drain and with it."""

    collective: str
    calm_us: float
    drained_us: float
    bytes_a_nic: int

    @property
    def slow(self) -> float:
        return self.drained_us / self.calm_us


def simulated_collectives(plan: UsidPlan, links: Ints) -> list[SimulatedCollective]:
    """Simulate the collectives; ConfigError: the fabric is too large, or has too few NICs."""
    nics = plan.topology.nics
    if nics > MOST_NICS:
        raise ConfigError(f"--simulate: {nics:,} NICs; packets of at most {MOST_NICS:,} are simulated")
    size = LARGEST * _FULL_NICS // max(nics, _FULL_NICS)
    found = []
    for name, workload in _collectives(nics, size).items():
        calm, drained = (_took_us(plan, workload, out) for out in (links[:0], links))
        found.append(SimulatedCollective(collective=name, calm_us=calm, drained_us=drained, bytes_a_nic=size))
    return found


def _collectives(nics: int, size: int) -> dict[str, Workload]:
    group = max((each for each in range(2, GROUP + 1) if nics % each == 0), default=0)
    if not group:
        raise ConfigError(f"--simulate: {nics} NICs cannot be divided into groups of at most {GROUP}")
    steps = min(RING_STEPS, 2 * (group - 1))
    described: dict[str, dict[str, Any]] = {
        "all_reduce": {"kind": "ring_all_reduce", "size": size // steps * group, "steps": steps},
        "all_to_all": {"kind": "all_to_all", "size": size // (group - 1)},
    }
    grouped = {name: {**each, "group": group, "placement": "random"} for name, each in described.items()}
    both = {**grouped, "point_to_point": {"kind": "permutation", "size": size}}
    return {name: msgspec.convert(each, Workload) for name, each in both.items()}


def _took_us(plan: UsidPlan, workload: Workload, links: Ints) -> float:
    """Return how long (us) a collective takes while nothing crosses these links."""
    topology = plan.topology
    prepared = prepare(Scenario(
        name="drained step", fabric=topology.fabric, transport=Transport(name="mrc"), workloads=(workload,), seed=SEED
    ))  # fmt: skip

    transport = transport_of(Transport(name="mrc"), topology)
    world = loop.prepare(topology, prepared.work.traffic, transport, seed=SEED)
    if len(links):
        SimulatedFleet(topology, world).tell(1, frozenset(links.tolist()), 1.0, 0.0)
    world.run(NEVER, lambda: None)
    end = int(column(world.network.flows, "sent_at").max())
    if end >= NEVER:
        raise ConfigError("--simulate: a collective does not end")
    return end / PS_PER_US
