"""All workload families by the `kind` a scenario names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openmrc.sim.workloads import (
    all_to_all,
    background,
    checkpoint,
    hierarchical,
    incast,
    moe,
    outcast,
    permutation,
    pipeline,
    ring,
    trace,
    training_step,
    tree,
)
from openmrc.sim.workloads.amounts import ps_of
from openmrc.sim.workloads.background import Background
from openmrc.sim.workloads.checkpoint import Checkpoint
from openmrc.sim.workloads.incast import Incast
from openmrc.sim.workloads.outcast import Outcast
from openmrc.sim.workloads.parameters import Parameters
from openmrc.sim.workloads.plan import WorkloadGraph, WorkloadHosts
from openmrc.sim.workloads.shares import in_turn, members_of, part_of, placed
from openmrc.sim.workloads.trace import Trace
from openmrc.sim.workloads.training_step import Collective, TrainingStep

Workload = Collective | Incast | Outcast | Background | Checkpoint | TrainingStep | Trace

AGAIN = 1_000_003  # between the seeds of a workload's beginnings: those of other workloads are neighbours

_FAMILIES: dict[str, Callable[[WorkloadHosts, Any, int], WorkloadGraph]] = {
    "permutation": permutation.plan,
    "incast": incast.plan,
    "outcast": outcast.plan,
    "all_to_all": all_to_all.plan,
    "ring_all_reduce": ring.plan,
    "reduce_scatter": ring.plan,
    "all_gather": ring.plan,
    "tree_all_reduce": tree.plan,
    "hierarchical_all_reduce": hierarchical.plan,
    "mixture_of_experts": moe.plan,
    "pipeline": pipeline.plan,
    "background": background.plan,
    "checkpoint": checkpoint.plan,
    "training_step": training_step.plan,
    "trace": trace.plan,
}


def plan_of(hosts: WorkloadHosts, parameters: Parameters, seed: int) -> WorkloadGraph:
    """Return the plan of any family, on its hosts, as often as it begins."""
    made = [_once(hosts, parameters, seed + AGAIN * number) for number in range(parameters.times)]
    whole = made[0] if parameters.every is None else in_turn(made, ps_of(parameters.every))
    whole.second_class = parameters.second_class
    return whole


def _once(hosts: WorkloadHosts, parameters: Parameters, seed: int) -> WorkloadGraph:
    family = _FAMILIES[str(parameters.__struct_config__.tag)]
    if parameters.hosts is None:
        return family(hosts, parameters, seed)
    members = members_of(parameters.hosts, hosts.count)
    return placed(family(part_of(hosts, members), parameters, seed), members, hosts.count)
