"""Which algorithm carries out a collective: by what there is to move and among how many."""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache

from openmrc.collectives import direct, ring, tree
from openmrc.collectives.plan import Plan, rotated


class Collective(IntEnum):
    """What a group can be asked for."""

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
    """How."""

    WHOLE = 0  # everything to everyone at once, folded there: the least latency for a few bytes
    DIRECT = 1
    RING = 2
    TREE = 3


MANY = 8  # ranks from which a rank no longer talks to all others at once
LARGE = 1 << 20  # bytes at a rank from which bandwidth counts more than the number of steps


def choose(collective: Collective, ranks: int, size: int, inline: int) -> Algorithm:
    """Return the algorithm for `size` bytes at a rank; `inline` is how many bytes one message carries at once."""
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


@lru_cache(maxsize=256)
def plan_for(collective: Collective, algorithm: Algorithm, ranks: int, root: int = 0) -> Plan:
    """Return the plan; `root` counts for those that have one."""
    match collective, algorithm:
        case Collective.ALL_REDUCE | Collective.BARRIER, Algorithm.WHOLE:
            return direct.all_reduce_whole(ranks)
        case Collective.GATHER, _:
            return direct.gather(ranks, root)
        case Collective.SCATTER, _:
            return direct.scatter(ranks, root)
        case Collective.ALL_TO_ALL, _:
            return direct.all_to_all(ranks)
    family = {Algorithm.DIRECT: direct, Algorithm.RING: ring, Algorithm.TREE: tree}[algorithm]
    name = Collective.ALL_REDUCE.name if collective == Collective.BARRIER else collective.name
    plan: Plan = getattr(family, name.lower())(ranks)
    return rotated(plan, root) if root else plan
