"""Convert plans to the simulator's traffic.

A computation becomes a message of size 0 from a host to itself; its length becomes the delay of its releases. What a
host takes before a message delays its start, or the releases that it waits for. A
computation that releases nothing gets a successor, so that its end is a completion too. A gate is located at host 0,
its predecessors and successors at other hosts, so passing one costs twice the shortest latency of a
link that does not end at a NIC.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from openmrc.core.jit import entry
from openmrc.errors import ConfigError
from openmrc.fabric.model.topology import Topology
from openmrc.sim.workloads.plan import NOWHERE, Ids, Nodes, WorkloadGraph
from openmrc.sim.workloads.traffic import CompletionSide, Traffic, traffic

NEVER_STARTED = -1


@dataclass(frozen=True)
class JoinedTraffic:
    """Traffic, and its description for reports."""

    traffic: Traffic
    marks: dict[str, Ids]  # message ids, in order of time
    workload: Ids  # of each message: the number of its plan
    names: tuple[str, ...]  # of the plans
    label: Ids  # of each message: an index of `labels`, or UNLABELLED
    labels: tuple[str, ...]  # collectives and computations that messages belong to

    @property
    def moving(self) -> Ids:
        """Return the messages that move bytes: the flows of a report."""
        return np.flatnonzero(self.traffic.size > 0)

    def described(self, flow: int, topology: Topology) -> dict[str, Any]:
        """Return what a report says of every flow."""
        traffic = self.traffic
        return {
            "flow": flow,
            "source": topology.name(int(traffic.source[flow])),
            "destination": topology.name(int(traffic.destination[flow])),
            "bytes": int(traffic.size[flow]),
        }

    def jobs(self) -> list[int]:
        steps = self.marks.get("step", np.zeros(0, np.int64))
        return [int(number) for number in np.unique(self.workload[steps])]

    def steps(self, job: int) -> Ids:
        """Return the gates at the ends of a plan's steps."""
        steps = self.marks["step"]
        mine: Ids = steps[self.workload[steps] == job]
        return mine


def joined(plans: list[tuple[str, WorkloadGraph]]) -> JoinedTraffic:
    """Return several plans, side by side, as one traffic; each has its own connections."""
    if not plans:
        raise ConfigError("no workload: nothing to send")
    whole = WorkloadGraph(plans[0][1].hosts)
    workload, second = [], np.array([plan.second_class for _, plan in plans])
    for number, (_, plan) in enumerate(plans):
        _close(plan)
        whole.append(plan)
        workload.append(np.full(plan.count, number, np.int64))
    nodes, belongs = whole.nodes(), np.concatenate(workload)
    marks = {name: np.array(ids, np.int64) for name, ids in whole.marks.items()}
    names = tuple(name for name, _ in plans)
    made = _traffic(nodes, whole.edges(), belongs, len(plans), second[belongs])
    return JoinedTraffic(made, marks, belongs, names, nodes.label, tuple(whole.labels))


def _close(plan: WorkloadGraph) -> None:
    """Add a node after every computation without a successor, so that its end is recorded."""
    plan.label("")
    releases = np.zeros(plan.count, np.bool_)
    releases[plan.edges()[0]] = True
    nodes = plan.nodes()
    last = np.flatnonzero(~releases & (nodes.length > 0) & (nodes.destination == NOWHERE))
    if len(last):
        plan.follow(last, plan.computations(nodes.source[last], 0))


def _traffic(nodes: Nodes, edges: tuple[Ids, Ids, Ids], belongs: Ids, plans: int, second: Ids) -> Traffic:
    before, after, acknowledged = edges
    stuck, count = never_started(len(nodes.source), before, after, nodes.need), len(nodes.source)
    if len(stuck):  # they wait for each other, or for more releases than they can get
        raise ConfigError(f"workload: {len(stuck)} of {count} messages wait for each other in a cycle")
    moves = nodes.destination != NOWHERE
    waits = np.bincount(after, minlength=len(nodes.source))
    computing, sending = np.where(moves, 0, nodes.length), np.where(moves, nodes.length, 0)
    return traffic(
        nodes.source,
        np.where(moves, nodes.destination, nodes.source),
        nodes.size,
        nodes.start + np.where(waits == 0, sending, 0),
        connection=belongs + plans * nodes.connection,
        releases=(
            before,
            after,
            computing[before] + sending[after],
            np.where(acknowledged, CompletionSide.SENDER, CompletionSide.RECEIVER),
        ),
        waits=np.where(nodes.need > 0, nodes.need, waits),
        single_path=nodes.single_path,
        second_class=second,
    )


def never_started(count: int, before: Ids, after: Ids, need: Ids) -> Ids:
    """Return the nodes that still wait when all nodes that can finish have finished."""
    wave, _ = waves(count, before, after, np.zeros(len(before), np.int64), need)
    return np.flatnonzero(wave == NEVER_STARTED)


def waves(count: int, before: Ids, after: Ids, takes: Ids, need: Ids) -> tuple[Ids, Ids]:
    """Start every node as soon as it can; return its wave, or NEVER_STARTED, and when it starts.

    A node starts `takes` after its predecessors; after `need` of them, 0: after all. When is told if it is all.
    """
    order = np.argsort(before, kind="stable")
    first = np.searchsorted(before[order], np.arange(count + 1))
    waits = np.bincount(after, minlength=count)
    waits = np.where(need > 0, need, waits)
    wave, ready = np.full(count, NEVER_STARTED), np.zeros(count, np.int64)
    _start(first, after[order], takes[order], waits, np.zeros(count, np.int64), wave, ready)
    return wave, ready


@entry
def _start(first: Ids, released: Ids, takes: Ids, waits: Ids, started: Ids, wave: Ids, ready: Ids) -> None:
    """Fill `wave` and `ready`; `started` is room for all nodes in the order in which they start."""
    begun = 0
    for node in range(len(waits)):
        if waits[node] == 0:
            started[begun] = node
            wave[node] = 0
            begun += 1
    done = 0
    while done < begun:
        node = started[done]
        done += 1
        for edge in range(first[node], first[node + 1]):
            after = released[edge]
            ready[after] = max(ready[after], ready[node] + takes[edge])
            waits[after] -= 1
            if waits[after] == 0:
                started[begun] = after
                wave[after] = wave[node] + 1
                begun += 1
