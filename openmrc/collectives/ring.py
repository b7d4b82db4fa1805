"""Rings: every rank forwards blocks to the next one.

An all-reduce of n ranks is a reduce-scatter of n - 1 steps followed by an all-gather of n - 1 steps, each of 1/n of
the data. This is the minimum of any algorithm (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
clusters of workstations", 2009). In step s a rank sends the block that it received in step s - 1.
"""

import numpy as np

from openmrc.collectives.plan import NOTHING, CollectivePlan, Ids, Space, Transfers, joined, transfers


def all_reduce(ranks: int, steps: int | None = None) -> CollectivePlan:
    """Reduce n blocks over all ranks, with the results at each; `steps` cuts the 2 (n - 1) steps short."""
    most = 2 * (ranks - 1) if steps is None else steps
    half = min(most, ranks - 1)
    return CollectivePlan(
        ranks, ranks, joined(_scatter(ranks, Space.OUTPUT, half), _gather(ranks, ranks - 1, most - half))
    )


def reduce_scatter(ranks: int) -> CollectivePlan:
    """Reduce n blocks over all ranks, with result r at rank r; partial sums are in SCRATCH."""
    return CollectivePlan(ranks, ranks, _scatter(ranks, Space.SCRATCH, ranks - 1))


def all_gather(ranks: int) -> CollectivePlan:
    """Distribute the blocks of all ranks; rank r starts with block r in OUTPUT."""
    return CollectivePlan(ranks, ranks, _gather(ranks, 0, ranks - 1))


def broadcast(ranks: int) -> CollectivePlan:
    """Pass one block from rank 0 along the chain of ranks, in consecutive chunks."""
    source = np.arange(ranks - 1)
    return CollectivePlan(ranks, 1, transfers(source, source + 1, 0, after=source - 1))


def reduce(ranks: int) -> CollectivePlan:
    """Reduce one block along the chain of ranks that ends at rank 0, in consecutive chunks."""
    step = np.arange(ranks - 1)
    source, target = ranks - 1 - step, ranks - 2 - step
    return CollectivePlan(
        ranks,
        1,
        transfers(
            source,
            target,
            0,
            read_space=np.where(step == 0, Space.INPUT, Space.SCRATCH),
            write_space=np.where(target == 0, Space.OUTPUT, Space.SCRATCH),
            reduces=1,
            after=step - 1,
            completes=target == 0,
        ),
    )


def _scatter(ranks: int, passing: Space, steps: int) -> Transfers:
    """Return steps; after n - 1 of them rank r holds the sum of block r. Partial sums are in space `passing`."""
    step, rank = np.arange(steps)[:, None], np.arange(ranks)[None, :]
    last = step == ranks - 2
    return transfers(
        rank,
        (rank + 1) % ranks,
        (rank - step - 1) % ranks,
        read_space=np.where(step == 0, Space.INPUT, passing),
        write_space=np.where(last, Space.OUTPUT, passing),
        reduces=1,
        after=_before(ranks, step, rank),
        completes=last,
    )


def _gather(ranks: int, steps_before: int, steps: int) -> Transfers:
    """Return steps that follow `steps_before` steps of the ring; n - 1 of them send block r from rank r to all."""
    step, rank = np.arange(steps)[:, None], np.arange(ranks)[None, :]
    return transfers(rank, (rank + 1) % ranks, (rank - step) % ranks, after=_before(ranks, step + steps_before, rank))


def _before(ranks: int, step: Ids, rank: Ids) -> Ids:
    return np.where(step == 0, NOTHING, (step - 1) * ranks + (rank - 1) % ranks)
