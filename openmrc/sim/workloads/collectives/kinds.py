"""The collectives that a training step is made of, by the `kind` that a scenario names, and how a family is planned."""

from collections.abc import Callable, Mapping
from typing import Any

from openmrc.base.amounts import ps_of
from openmrc.sim.workloads.collectives import all_to_all, hierarchical, moe, permutation, pipeline, ring, tree
from openmrc.sim.workloads.collectives.all_to_all import AllToAll
from openmrc.sim.workloads.collectives.hierarchical import HierarchicalAllReduce
from openmrc.sim.workloads.collectives.moe import MixtureOfExperts
from openmrc.sim.workloads.collectives.permutation import Permutation
from openmrc.sim.workloads.collectives.pipeline import Pipeline
from openmrc.sim.workloads.collectives.ring import AllGather, ReduceScatter, RingAllReduce
from openmrc.sim.workloads.collectives.tree import TreeAllReduce
from openmrc.sim.workloads.plan import Parameters, WorkloadGraph, WorkloadHosts
from openmrc.sim.workloads.shares import in_turn, members_of, part_of, placed

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
Families = Mapping[str, Callable[[WorkloadHosts, Any, int], WorkloadGraph]]

AGAIN = 1_000_003  # between the seeds of a workload's beginnings: those of other workloads are neighbours

COLLECTIVES: Families = {
    "permutation": permutation.plan,
    "all_to_all": all_to_all.plan,
    "ring_all_reduce": ring.plan,
    "reduce_scatter": ring.plan,
    "all_gather": ring.plan,
    "tree_all_reduce": tree.plan,
    "hierarchical_all_reduce": hierarchical.plan,
    "mixture_of_experts": moe.plan,
    "pipeline": pipeline.plan,
}


def planned(families: Families, hosts: WorkloadHosts, parameters: Parameters, seed: int) -> WorkloadGraph:
    """Return the plan of one of these families, on its hosts, as often as it begins."""
    made = [_once(families, hosts, parameters, seed + AGAIN * number) for number in range(parameters.times)]
    whole = made[0] if parameters.every is None else in_turn(made, ps_of(parameters.every))
    whole.second_class = parameters.second_class
    message, step = ps_of(parameters.message_time), ps_of(parameters.step_time)
    if message or step:
        whole.delay(message, step)
    return whole


def _once(families: Families, hosts: WorkloadHosts, parameters: Parameters, seed: int) -> WorkloadGraph:
    family = families[str(parameters.__struct_config__.tag)]
    if parameters.hosts is None:
        return family(hosts, parameters, seed)
    members = members_of(parameters.hosts, hosts.count)
    return placed(family(part_of(hosts, members), parameters, seed), members, hosts.count)
