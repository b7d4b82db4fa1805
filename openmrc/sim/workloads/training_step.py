"""Synchronous training steps: compute, then collectives; a step ends when the slowest host has finished.

`marks["step"]` of the plan are gates, one at the end of each step.
"""

from typing import Annotated

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from openmrc.base.amounts import Duration, ps_of
from openmrc.errors import ConfigError
from openmrc.sim.workloads.collectives.all_to_all import AllToAll
from openmrc.sim.workloads.collectives.hierarchical import HierarchicalAllReduce
from openmrc.sim.workloads.collectives.moe import MixtureOfExperts
from openmrc.sim.workloads.collectives.permutation import Permutation
from openmrc.sim.workloads.collectives.pipeline import Pipeline
from openmrc.sim.workloads.collectives.ring import AllGather, ReduceScatter, RingAllReduce
from openmrc.sim.workloads.collectives.tree import TreeAllReduce
from openmrc.sim.workloads.plan import Amount, Count, Ids, Parameters, WorkloadGraph, WorkloadHosts, refuse_many
from openmrc.sim.workloads.shares import plan_of

Factors = NDArray[np.float64]
Collective = (
    Permutation
    | AllToAll
    | RingAllReduce
    | ReduceScatter
    | AllGather
    | TreeAllReduce
    | HierarchicalAllReduce
    | MixtureOfExperts
    | Pipeline
)


class TrainingStep(Parameters, frozen=True, kw_only=True, tag="training_step"):
    """Each host computes, then runs the collectives in order, then waits for all others."""

    steps: Count = 1
    compute: Duration
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.0  # random variation of the computation per host, as a share of it
    stragglers: Amount = 0  # hosts, drawn at random, that compute more slowly in every step
    straggling: Annotated[float, Meta(ge=1, le=1000)] = 1.5  # how much longer they take
    collectives: Annotated[tuple[Collective, ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        """Refuse a class of its own for a part: connections are shared by the steps of a job."""
        super().__post_init__()
        if any(part.second_class for part in self.collectives):
            raise ValueError("collectives: second_class belongs to the whole training_step")

    def plan(self, hosts: WorkloadHosts, seed: int) -> WorkloadGraph:
        """Return all steps, chained by one gate each."""
        made = WorkloadGraph(hosts.count)
        draw = np.random.default_rng(seed)
        slow = straggling(hosts.count, self, seed)
        everyone = np.arange(hosts.count)
        parts = [plan_of(hosts, collective, seed + at) for at, collective in enumerate(self.collectives)]
        refuse_many(self.steps * sum(part.count + hosts.count for part in parts), "steps")
        gate: int | None = None
        kinds = [str(collective.__struct_config__.tag) for collective in self.collectives]
        for step in range(1, self.steps + 1):
            made.label(f"step {step}: compute")
            ready = made.computations(everyone, lengths(slow, self, draw), ps_of(self.start))
            if gate is not None:
                made.follow(gate, ready)
            names = [f"step {step}: {kind}" for kind in kinds]
            gate = _step(made, parts, names, everyone, ready)
            made.mark("step", gate)
        return made


def straggling(hosts: int, parameters: TrainingStep, seed: int) -> Factors:
    """Return by host how much longer than others it computes: 1, or `straggling` for those drawn."""
    if parameters.stragglers > hosts:
        raise ConfigError(f"training_step: stragglers: {parameters.stragglers} of {hosts} hosts")
    factors = np.ones(hosts)
    drawn = np.random.default_rng([seed, 11]).choice(hosts, parameters.stragglers, replace=False)
    factors[drawn] = parameters.straggling
    return factors


def lengths(slow: Factors, parameters: TrainingStep, draw: np.random.Generator) -> Ids:
    """Return the computation of each host in one step (ps)."""
    varied = slow * (1 + parameters.jitter * draw.uniform(-1, 1, len(slow)))
    return (ps_of(parameters.compute) * varied).astype(np.int64)


def _step(made: WorkloadGraph, parts: list[WorkloadGraph], names: list[str], everyone: Ids, ready: Ids) -> int:
    for part, name in zip(parts, names, strict=True):
        made.label(name)
        finished = made.computations(everyone, 0)
        made.follow(ready, finished)  # a host outside the collective continues
        made.after(part, ready, finished)
        ready = finished
    gate = made.gate()
    made.follow(ready, gate)
    return gate
