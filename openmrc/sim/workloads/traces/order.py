"""Order operations: waves of simultaneous ones, and a sequence for the computations of each processor."""

import numpy as np

from openmrc.sim.workloads.joined import waves
from openmrc.sim.workloads.traces.matching import Matched
from openmrc.sim.workloads.traces.operations import NONE, Ids, OperationKind, Operations


def ordered(made: Operations, met: Matched) -> tuple[Ids, Ids]:
    """Schedule every operation as early as possible, as if messages took no time; return its wave and its time (ps).

    NONE is the wave of those that never start, because they are in a cycle or behind one.
    """
    count = len(made.kind)
    before, after, takes = _edges(made, met, made.column("length"))
    nodes = count + len(met.members)
    wave, ready = waves(nodes, before, after, takes, np.zeros(nodes, np.int64))
    return wave[:count], ready[:count]


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


def one_at_a_time(made: Operations, wave: Ids, ready: Ids) -> tuple[Ids, Ids]:
    """Return edges (before, after) that serialize the computations of each processor, by earliest start.

    Time and wave both increase along every dependency, so these edges create no cycle.
    """
    kind, rank, lane, length = (made.column(name) for name in ("kind", "rank", "lane", "length"))
    rows = np.flatnonzero((kind == OperationKind.COMPUTE) & (length > 0) & (wave != NONE))
    rows = rows[np.lexsort((rows, wave[rows], ready[rows], lane[rows], rank[rows]))]
    same = (rank[rows[1:]] == rank[rows[:-1]]) & (lane[rows[1:]] == lane[rows[:-1]])
    return rows[:-1][same], rows[1:][same]
