"""All workload families by the `kind` a scenario names."""

from __future__ import annotations

from openmrc.sim.workloads import background, checkpoint, incast, outcast, trace, training_step
from openmrc.sim.workloads.background import Background
from openmrc.sim.workloads.checkpoint import Checkpoint
from openmrc.sim.workloads.collectives.kinds import COLLECTIVES, Collective, Families, planned
from openmrc.sim.workloads.incast import Incast
from openmrc.sim.workloads.outcast import Outcast
from openmrc.sim.workloads.parameters import Parameters
from openmrc.sim.workloads.plan import WorkloadGraph, WorkloadHosts
from openmrc.sim.workloads.trace import Trace
from openmrc.sim.workloads.training_step import TrainingStep

Workload = Collective | Incast | Outcast | Background | Checkpoint | TrainingStep | Trace

_FAMILIES: Families = {
    **COLLECTIVES,
    "incast": incast.plan,
    "outcast": outcast.plan,
    "background": background.plan,
    "checkpoint": checkpoint.plan,
    "training_step": training_step.plan,
    "trace": trace.plan,
}


def plan_of(hosts: WorkloadHosts, parameters: Parameters, seed: int) -> WorkloadGraph:
    """Return the plan of any family, on its hosts, as often as it begins."""
    return planned(_FAMILIES, hosts, parameters, seed)
