"""Synchronous training steps: compute, then collectives; a step ends when the slowest host has finished.

`marks["step"]` of the plan are gates, one at the end of each step.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta

from openmrc.sim.workloads.all_to_all import AllToAll
from openmrc.sim.workloads.amounts import Duration, ps_of
from openmrc.sim.workloads.hierarchical import HierarchicalAllReduce
from openmrc.sim.workloads.moe import MixtureOfExperts
from openmrc.sim.workloads.parameters import Count, Parameters
from openmrc.sim.workloads.permutation import Permutation
from openmrc.sim.workloads.pipeline import Pipeline
from openmrc.sim.workloads.plan import Ids, WorkloadGraph, WorkloadHosts, refuse_many
from openmrc.sim.workloads.ring import AllGather, ReduceScatter, RingAllReduce
from openmrc.sim.workloads.tree import TreeAllReduce

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
    collectives: Annotated[tuple[Collective, ...], Meta(min_length=1)]


def plan(hosts: WorkloadHosts, parameters: TrainingStep, seed: int) -> WorkloadGraph:
    """Return all steps, chained by one gate each."""
    from openmrc.sim.workloads.families import plan_of

    made = WorkloadGraph(hosts.count)
    draw = np.random.default_rng(seed)
    everyone = np.arange(hosts.count)
    parts = [plan_of(hosts, collective, seed + at) for at, collective in enumerate(parameters.collectives)]
    refuse_many(parameters.steps * sum(part.count + hosts.count for part in parts), "steps")
    gate: int | None = None
    kinds = [str(collective.__struct_config__.tag) for collective in parameters.collectives]
    for step in range(1, parameters.steps + 1):
        made.label(f"step {step}: compute")
        ready = made.computations(everyone, _lengths(hosts, parameters, draw), ps_of(parameters.start))
        if gate is not None:
            made.follow(gate, ready)
        names = [f"step {step}: {kind}" for kind in kinds]
        gate = _step(made, parts, names, everyone, ready)
        made.mark("step", gate)
    return made


def _lengths(hosts: WorkloadHosts, parameters: TrainingStep, draw: np.random.Generator) -> Ids:
    varied = 1 + parameters.jitter * draw.uniform(-1, 1, hosts.count)
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
