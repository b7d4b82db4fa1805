"""Direct exchanges: every rank writes directly to the ranks that need its data."""

import numpy as np

from openmrc.collectives.plan import NOTHING, CollectivePlan, Ids, Space, Transfers, joined, transfers


def all_reduce(ranks: int) -> CollectivePlan:
    """Reduce block r at rank r, then distribute it to all."""
    scatter = _scatter(ranks)
    source, target = _pairs(ranks)
    # A rank sends its block after reducing the last contribution to it.
    return CollectivePlan(
        ranks, ranks, joined(scatter, transfers(source, target, source, after=_last_into(scatter)[source]))
    )


def all_reduce_whole(ranks: int) -> CollectivePlan:
    """Send the whole input of every rank to all, in SCRATCH; each then reduces all inputs in rank order."""
    source, target = _pairs(ranks)
    return CollectivePlan(
        ranks, 1, transfers(source, target, 0, write=source, read_space=Space.INPUT, write_space=Space.SCRATCH)
    )


def reduce_scatter(ranks: int) -> CollectivePlan:
    return CollectivePlan(ranks, ranks, _scatter(ranks))


def all_gather(ranks: int) -> CollectivePlan:
    """Distribute the blocks of all ranks; rank r starts with block r in OUTPUT."""
    source, target = _pairs(ranks)
    return CollectivePlan(ranks, ranks, transfers(source, target, source))


def all_to_all(ranks: int) -> CollectivePlan:
    """Send block t of rank r's INPUT to rank t, into block r of its OUTPUT."""
    return CollectivePlan(ranks, ranks, joined(*(exchange(ranks, ahead) for ahead in range(1, ranks))))


def exchange(ranks: int, ahead: int) -> Transfers:
    """Return one round of an all-to-all: rank r writes to rank r + `ahead`, so that receivers share the load."""
    source = np.arange(ranks)
    target = (source + ahead) % ranks
    return transfers(source, target, target, write=source, read_space=Space.INPUT)


def broadcast(ranks: int) -> CollectivePlan:
    """Send the block of rank 0 to all."""
    return CollectivePlan(ranks, 1, transfers(np.zeros(ranks - 1), np.arange(1, ranks), 0))


def reduce(ranks: int) -> CollectivePlan:
    """Reduce one block at rank 0, in rank order."""
    source = np.arange(1, ranks)
    return CollectivePlan(
        ranks, 1, transfers(source, 0, 0, read_space=Space.INPUT, reduces=1, completes=source == ranks - 1)
    )


def gather(ranks: int, root: int) -> CollectivePlan:
    """Send all INPUTs to the root; rank r's becomes block r of its OUTPUT."""
    source = np.delete(np.arange(ranks), root)
    return CollectivePlan(ranks, ranks, transfers(source, root, 0, write=source, read_space=Space.INPUT))


def scatter(ranks: int, root: int) -> CollectivePlan:
    """Send block r of the root's INPUT to rank r, into its OUTPUT."""
    target = np.delete(np.arange(ranks), root)
    return CollectivePlan(ranks, ranks, transfers(root, target, target, write=0, read_space=Space.INPUT))


def _pairs(ranks: int) -> tuple[Ids, Ids]:
    """Return (source, target) of all pairs; rank r sends to r + 1, r + 2, ... so that receivers share the load."""
    ahead, rank = np.arange(1, ranks)[:, None], np.arange(ranks)[None, :]
    return np.broadcast_to(rank, (ranks - 1, ranks)).ravel(), ((rank + ahead) % ranks).ravel()


def _scatter(ranks: int) -> Transfers:
    """Return the transfers of block t from every rank to rank t, which reduces them in the order t - 1, t - 2, ..."""
    source, target = _pairs(ranks)
    farthest = np.repeat(np.arange(1, ranks), ranks) == ranks - 1
    return transfers(source, target, target, read_space=Space.INPUT, reduces=1, completes=farthest)


def _last_into(part: Transfers) -> Ids:
    """Return for each rank the row that completes its block."""
    last = np.full(int(part.target.max(initial=NOTHING)) + 1, NOTHING)
    rows = np.flatnonzero(part.completes)
    last[part.target[rows]] = rows
    return last
