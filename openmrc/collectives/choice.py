"""Choose the algorithm of a collective by data size and number of ranks."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache

from openmrc.collectives import direct, ring, tree
from openmrc.collectives.plan import Plan, rotated


class Collective(IntEnum):
    """Collective operations of a group."""

    ALL_REDUCE = 1
    REDUCE = 2
    BROADCAST = 3
    ALL_GATHER = 4
    REDUCE_SCATTER = 5
    ALL_TO_ALL = 6
    GATHER = 7
    SCATTER = 8
    BARRIER = 9


class Algorithm(IntEnum):
    """Algorithms of collectives."""

    WHOLE = 0  # every rank sends its whole input to all others, which reduce it: lowest latency for small data
    DIRECT = 1
    RING = 2
    TREE = 3


MANY = 8  # largest number of ranks at which each exchanges data with all others at once
LARGE = 1 << 20  # bytes per rank from which bandwidth dominates the number of steps


def choose(collective: Collective, ranks: int, size: int, inline: int) -> Algorithm:
    """Return the algorithm for `size` bytes per rank; `inline` is the maximum size (bytes) of an inline message."""
    few = ranks <= MANY
    match collective:
        case Collective.ALL_REDUCE | Collective.BARRIER:
            if size <= inline and few:
                return Algorithm.WHOLE
            if size < LARGE and not few:
                return Algorithm.TREE
            return Algorithm.DIRECT if few else Algorithm.RING
        case Collective.BROADCAST | Collective.REDUCE:
            if size >= LARGE:
                return Algorithm.RING
            return Algorithm.DIRECT if few else Algorithm.TREE
        case Collective.ALL_GATHER | Collective.REDUCE_SCATTER:
            return Algorithm.DIRECT if few or size <= inline else Algorithm.RING
        case _:
            return Algorithm.DIRECT


_PLANS: dict[tuple[Collective, Algorithm], Callable[[int], Plan]] = {
    (Collective.ALL_REDUCE, Algorithm.WHOLE): direct.all_reduce_whole,
    (Collective.ALL_REDUCE, Algorithm.DIRECT): direct.all_reduce,
    (Collective.ALL_REDUCE, Algorithm.RING): ring.all_reduce,
    (Collective.ALL_REDUCE, Algorithm.TREE): tree.all_reduce,
    (Collective.BARRIER, Algorithm.WHOLE): direct.all_reduce_whole,
    (Collective.BARRIER, Algorithm.TREE): tree.all_reduce,
    (Collective.REDUCE, Algorithm.DIRECT): direct.reduce,
    (Collective.REDUCE, Algorithm.RING): ring.reduce,
    (Collective.REDUCE, Algorithm.TREE): tree.reduce,
    (Collective.BROADCAST, Algorithm.DIRECT): direct.broadcast,
    (Collective.BROADCAST, Algorithm.RING): ring.broadcast,
    (Collective.BROADCAST, Algorithm.TREE): tree.broadcast,
    (Collective.ALL_GATHER, Algorithm.DIRECT): direct.all_gather,
    (Collective.ALL_GATHER, Algorithm.RING): ring.all_gather,
    (Collective.REDUCE_SCATTER, Algorithm.DIRECT): direct.reduce_scatter,
    (Collective.REDUCE_SCATTER, Algorithm.RING): ring.reduce_scatter,
    (Collective.ALL_TO_ALL, Algorithm.DIRECT): direct.all_to_all,
}


@lru_cache(maxsize=256)
def plan_for(collective: Collective, algorithm: Algorithm, ranks: int, root: int = 0) -> Plan:
    """Return the plan of a collective; `root` is ignored by collectives without a root. Cached."""
    if collective == Collective.GATHER:
        return direct.gather(ranks, root)
    if collective == Collective.SCATTER:
        return direct.scatter(ranks, root)
    plan = _PLANS[collective, algorithm](ranks)
    return rotated(plan, root) if root else plan
