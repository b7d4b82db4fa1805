"""Order operations: waves of simultaneous ones, and a sequence for the computations of each processor."""

from dataclasses import dataclass

import numpy as np

from openmrc.sim.workloads.joined import NARROW
from openmrc.sim.workloads.traces.matching import Matched
from openmrc.sim.workloads.traces.operations import NONE, Ids, OperationKind, Operations


@dataclass(frozen=True)
class Order:
    """For each operation: its wave, and its earliest time if messages took no time."""

    wave: Ids  # NONE: never, because it is in a cycle or behind one
    ready: Ids  # ps


def ordered(made: Operations, met: Matched) -> Order:
    """Schedule every operation as early as possible; simultaneous ones form a wave."""
    count, length = len(made.kind), made.column("length")
    before, after, takes = _edges(made, met, length)
    nodes = count + len(met.members)
    order = np.argsort(before, kind="stable")
    first = np.searchsorted(before[order], np.arange(nodes + 1))
    released, delay = after[order], takes[order]
    waits = np.bincount(after, minlength=nodes)
    wave, ready = np.full(nodes, NONE), np.zeros(nodes, np.int64)
    now, number = np.flatnonzero(waits == 0), 0
    while len(now):
        wave[now] = number
        if len(now) <= NARROW:
            now, number = _next_wave(now, first, released, delay, waits, ready), number + 1
            continue
        lengths = first[now + 1] - first[now]
        at = np.repeat(first[now] - np.cumsum(lengths) + lengths, lengths) + np.arange(int(lengths.sum()))
        np.maximum.at(ready, released[at], np.repeat(ready[now], lengths) + delay[at])
        touched, times = np.unique(released[at], return_counts=True)
        waits[touched] -= times
        now, number = touched[waits[touched] == 0], number + 1
    return Order(wave[:count], ready[:count])


def _next_wave(now: Ids, first: Ids, released: Ids, delay: Ids, waits: Ids, ready: Ids) -> Ids:
    """Release the successors of a narrow wave one by one: a chain has a wave per operation."""
    found = []
    for node in now.tolist():
        for edge in range(first[node], first[node + 1]):
            after = released[edge]
            ready[after] = max(ready[after], ready[node] + delay[edge])
            waits[after] -= 1
            if waits[after] == 0:
                found.append(after)
    return np.array(found, np.int64)


def _edges(made: Operations, met: Matched, length: Ids) -> tuple[Ids, Ids, Ids]:
    """Return all edges (before, after, ps between); a collective is an additional node after its members."""
    before, after, begun = (made.column(name) for name in ("before", "after", "begun"))
    count = len(made.kind)
    takes = np.where(begun == 1, 0, length[before])
    joins = np.flatnonzero(met.instance != NONE)
    ends = np.where((met.instance[before] != NONE) & (begun == 0), count + met.instance[before], before)
    return (
        np.concatenate([ends, met.send, joins]),
        np.concatenate([after, met.receive, count + met.instance[joins]]),
        np.concatenate([takes, np.zeros(len(met.send) + len(joins), np.int64)]),
    )


def one_at_a_time(made: Operations, order: Order) -> tuple[Ids, Ids]:
    """Return edges (before, after) that serialize the computations of each processor, by earliest start.

    Time and wave both increase along every dependency, so these edges create no cycle.
    """
    kind, rank, lane, length = (made.column(name) for name in ("kind", "rank", "lane", "length"))
    rows = np.flatnonzero((kind == OperationKind.COMPUTE) & (length > 0) & (order.wave != NONE))
    rows = rows[np.lexsort((rows, order.wave[rows], order.ready[rows], lane[rows], rank[rows]))]
    same = (rank[rows[1:]] == rank[rows[:-1]]) & (lane[rows[1:]] == lane[rows[:-1]])
    return rows[:-1][same], rows[1:][same]
