"""Workloads from traces: Chakra execution traces, GOAL schedules, SimAI's workload text."""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from openmrc.base.amounts import ps_of
from openmrc.errors import ConfigError
from openmrc.sim.workloads.collectives.transfers import Placement
from openmrc.sim.workloads.plan import Amount, Count, Ids, Parameters, WorkloadGraph, WorkloadHosts
from openmrc.sim.workloads.traces import chakra, goal, lowering, simai
from openmrc.sim.workloads.traces.collective import AlgorithmName
from openmrc.sim.workloads.traces.simai import SCHEDULES
from openmrc.units import PS_PER_NS, PS_PER_US

Format = Literal["auto", "chakra", "goal", "simai"]

_UNITS = {"ps": 1, "ns": PS_PER_NS, "us": PS_PER_US}
_INSPECTED = 4096  # bytes read to detect the format


class Trace(Parameters, frozen=True, kw_only=True, tag="trace"):
    """Ranks are numbered from 0; by default rank r is at NIC r."""

    file: str  # relative to the scenario's folder; for Chakra, one rank's file or the common prefix
    format: Format = "auto"
    nics: tuple[Annotated[int, Meta(ge=0)], ...] = ()  # the NIC of each rank; (): by the next two fields
    ranks_per_nic: Count = 1  # neighbours that share a NIC; messages between them take no time
    placement: Placement = "contiguous"  # of ranks over NICs
    compute_scale: Annotated[float, Meta(ge=0, le=1000)] = 1.0  # factor for computation times
    algorithm: AlgorithmName = "auto"  # of collectives; auto: the choice of openmrc.train
    calc_unit: Literal["ps", "ns", "us"] = "ns"  # unit of `calc` in GOAL
    layers: Amount = 0  # SimAI: number of layers to simulate; 0: all
    groups: str = ""  # Chakra: a JSON file of process groups, {"name": [ranks]}
    dimensions: tuple[Count, ...] = ()  # Chakra: the grid of ranks that `involved_dim` refers to
    tflops: Annotated[float, Meta(ge=0)] = 0.0  # Chakra: speed of a rank, for computations without a duration

    def plan(self, hosts: WorkloadHosts, seed: int) -> WorkloadGraph:
        """Read the trace and return its messages and computations."""
        path, start = Path(self.file), ps_of(self.start)
        rest = (self.algorithm, self.compute_scale, start)
        match _format_of(path, self.format):
            case "simai":
                step = simai.read(path, self.layers)
                return simai.plan_of(step, nics_of(step.ranks, hosts, self, seed), hosts.count, *rest)
            case "goal":
                operations = goal.read(path, _UNITS[self.calc_unit])
            case _:
                groups = chakra.read_groups(Path(self.groups)) if self.groups else {}
                reading = chakra.ChakraAssumptions(groups, self.dimensions, self.tflops * 1e12)
                operations = chakra.read(path, reading)
        nics = nics_of(operations.ranks, hosts, self, seed)
        return lowering.plan_of(operations, nics, hosts.count, *rest)


def nics_of(ranks: int, hosts: WorkloadHosts, parameters: Trace, seed: int) -> Ids:
    if parameters.nics:
        if len(parameters.nics) != ranks or max(parameters.nics) >= hosts.count:
            raise ConfigError(
                f"{parameters.file}: nics: {len(parameters.nics)} given, up to {max(parameters.nics)}; expected "
                f"{ranks}, one for each rank of the trace, each in 0..{hosts.count - 1}"
            )
        return np.array(parameters.nics, np.int64)
    used = -(-ranks // parameters.ranks_per_nic)
    if used > hosts.count:
        raise ConfigError(
            f"{parameters.file}: {ranks} ranks with {parameters.ranks_per_nic} per NIC need {used} NICs; the fabric "
            f"has {hosts.count} (use ranks_per_nic: {-(-ranks // hosts.count)})"
        )
    order = np.arange(hosts.count)
    if parameters.placement == "random":
        order = np.random.default_rng(seed).permutation(order)
    elif parameters.placement == "strided":
        order = order[:: hosts.count // used]
    return order[np.arange(ranks) // parameters.ranks_per_nic]


def _format_of(path: Path, given: Format) -> str:
    """Return the format of a file: the given one, or by its name, or by its first bytes."""
    if given != "auto":
        return given
    if chakra.is_trace(path):
        return "chakra"
    try:
        with path.open("rb") as file:
            head = file.read(_INSPECTED)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if head.startswith(tuple(schedule.encode() for schedule in SCHEDULES)):
        return "simai"
    if path.suffix == ".goal" or b"num_ranks" in head:
        return "goal"
    raise ConfigError(f"{path}: unknown format; expected NAME.RANK.et (Chakra), `num_ranks` (GOAL) or a SimAI header")
