"""Choose the algorithm of a collective by data size and number of ranks."""

from collections.abc import Callable
from enum import IntEnum
from functools import lru_cache

from openmrc.collectives import direct, ring, tree
from openmrc.collectives.plan import CollectivePlan, rotated


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


class CollectiveAlgorithm(IntEnum):
    """Algorithms of collectives."""

    WHOLE = 0  # every rank sends its whole input to all others, which reduce it: lowest latency for small data
    DIRECT = 1
    RING = 2
    TREE = 3


MANY = 8  # largest number of ranks at which each exchanges data with all others at once
SMALL = 8 << 10  # bytes up to which more than MANY ranks exchange data directly
LARGE = 1 << 20  # bytes per rank from which bandwidth dominates the number of steps
# Bytes of a root with all others up to which it exchanges them directly: a ring has more messages, each of which costs
# interpreter time at both ends (`torch_sweep`).
OF_ROOT = 4 << 20


def choose(collective: Collective, ranks: int, size: int, inline: int) -> CollectiveAlgorithm:
    """Return the algorithm for `size` bytes per rank; `inline` is the maximum size (bytes) of an inline message."""
    few = ranks <= MANY
    match collective:
        case Collective.ALL_REDUCE | Collective.BARRIER:
            if size <= inline and few:
                return CollectiveAlgorithm.WHOLE
            if size < LARGE and not few:
                return CollectiveAlgorithm.TREE
            return CollectiveAlgorithm.DIRECT if few else CollectiveAlgorithm.RING
        case Collective.BROADCAST | Collective.REDUCE:
            if few and (size < LARGE or size * (ranks - 1) <= OF_ROOT):
                return CollectiveAlgorithm.DIRECT
            return CollectiveAlgorithm.RING if size >= LARGE else CollectiveAlgorithm.TREE
        case Collective.ALL_GATHER | Collective.REDUCE_SCATTER:
            return CollectiveAlgorithm.DIRECT if few or size <= SMALL else CollectiveAlgorithm.RING
        case _:
            return CollectiveAlgorithm.DIRECT


_PLANS: dict[tuple[Collective, CollectiveAlgorithm], Callable[[int], CollectivePlan]] = {
    (Collective.ALL_REDUCE, CollectiveAlgorithm.WHOLE): direct.all_reduce_whole,
    (Collective.ALL_REDUCE, CollectiveAlgorithm.DIRECT): direct.all_reduce,
    (Collective.ALL_REDUCE, CollectiveAlgorithm.RING): ring.all_reduce,
    (Collective.ALL_REDUCE, CollectiveAlgorithm.TREE): tree.all_reduce,
    (Collective.BARRIER, CollectiveAlgorithm.WHOLE): direct.all_reduce_whole,
    (Collective.BARRIER, CollectiveAlgorithm.TREE): tree.all_reduce,
    (Collective.REDUCE, CollectiveAlgorithm.DIRECT): direct.reduce,
    (Collective.REDUCE, CollectiveAlgorithm.RING): ring.reduce,
    (Collective.REDUCE, CollectiveAlgorithm.TREE): tree.reduce,
    (Collective.BROADCAST, CollectiveAlgorithm.DIRECT): direct.broadcast,
    (Collective.BROADCAST, CollectiveAlgorithm.RING): ring.broadcast,
    (Collective.BROADCAST, CollectiveAlgorithm.TREE): tree.broadcast,
    (Collective.ALL_GATHER, CollectiveAlgorithm.DIRECT): direct.all_gather,
    (Collective.ALL_GATHER, CollectiveAlgorithm.RING): ring.all_gather,
    (Collective.REDUCE_SCATTER, CollectiveAlgorithm.DIRECT): direct.reduce_scatter,
    (Collective.REDUCE_SCATTER, CollectiveAlgorithm.RING): ring.reduce_scatter,
    (Collective.ALL_TO_ALL, CollectiveAlgorithm.DIRECT): direct.all_to_all,
}


@lru_cache(maxsize=256)
def plan_for(collective: Collective, algorithm: CollectiveAlgorithm, ranks: int, root: int = 0) -> CollectivePlan:
    """Return the plan of a collective; `root` is ignored by collectives without a root. Cached."""
    if collective == Collective.GATHER:
        return direct.gather(ranks, root)
    if collective == Collective.SCATTER:
        return direct.scatter(ranks, root)
    plan = _PLANS[collective, algorithm](ranks)
    return rotated(plan, root) if root else plan
