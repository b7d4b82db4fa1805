"""Binary trees: the children of rank k are the ranks 2k + 1 and 2k + 2; the depth is logarithmic in the ranks."""

import numpy as np

from openmrc.collectives.plan import NOTHING, CollectivePlan, Ids, Space, Transfers, joined, transfers


def all_reduce(ranks: int) -> CollectivePlan:
    """Reduce one block up the tree and pass the result down."""
    up = _up(ranks, Space.OUTPUT)
    return CollectivePlan(ranks, 1, joined(up, _down(ranks, len(up.source))))


def reduce(ranks: int) -> CollectivePlan:
    """Reduce one block up the tree, to rank 0; the other ranks keep their sums in SCRATCH."""
    return CollectivePlan(ranks, 1, _up(ranks, Space.SCRATCH))


def broadcast(ranks: int) -> CollectivePlan:
    """Pass one block down the tree, from rank 0."""
    return CollectivePlan(ranks, 1, _down(ranks, 0))


def _up(ranks: int, passing: Space) -> Transfers:
    """Return a row per rank except 0: row `rank - 1` is its transfer to its parent. Partial sums are in `passing`."""
    child = np.arange(1, ranks)
    parent, has_child = (child - 1) // 2, 2 * child + 1 < ranks
    return transfers(
        child,
        parent,
        0,
        read_space=np.where(has_child, passing, Space.INPUT),
        write_space=np.where(parent == 0, Space.OUTPUT, passing),
        reduces=1,
        after=np.where(has_child, _last_child(ranks, child) - 1, NOTHING),
        completes=child == _last_child(ranks, np.zeros_like(child)),
    )


def _down(ranks: int, rows_before: int) -> Transfers:
    """Return a row per rank except 0, in rank order: the transfer from its parent. `rows_before` are those of `_up`."""
    child = np.arange(1, ranks)
    parent = (child - 1) // 2
    from_root = _last_child(ranks, np.zeros_like(child)) - 1 if rows_before else np.full_like(parent, NOTHING)
    return transfers(parent, child, 0, after=np.where(parent == 0, from_root, rows_before + parent - 1))


def _last_child(ranks: int, rank: Ids) -> Ids:
    """Return the child whose contribution a rank reduces last."""
    return np.minimum(2 * rank + 2, ranks - 1)
