"""Direct exchanges: every rank writes directly to the ranks that need its data."""

from __future__ import annotations

import numpy as np

from openmrc.collectives.plan import NOTHING, Ids, Plan, Space, Transfers, joined, transfers


def all_reduce(ranks: int) -> Plan:
    """Reduce block r at rank r, then distribute it to all."""
    scatter = _scatter(ranks)
    source, target = _pairs(ranks)
    # A rank sends its block after reducing the last contribution to it.
    return Plan(ranks, ranks, joined(scatter, transfers(source, target, source, after=_last_into(scatter)[source])))


def all_reduce_whole(ranks: int) -> Plan:
    """Send the whole input of every rank to all, in SCRATCH; each then reduces all inputs in rank order."""
    source, target = _pairs(ranks)
    return Plan(ranks, 1, transfers(source, target, 0, write=source, read_space=Space.INPUT, write_space=Space.SCRATCH))


def reduce_scatter(ranks: int) -> Plan:
    """Reduce block r at rank r."""
    return Plan(ranks, ranks, _scatter(ranks))


def all_gather(ranks: int) -> Plan:
    """Distribute the blocks of all ranks; rank r starts with block r in OUTPUT."""
    source, target = _pairs(ranks)
    return Plan(ranks, ranks, transfers(source, target, source))


def all_to_all(ranks: int) -> Plan:
    """Send block t of rank r's INPUT to rank t, into block r of its OUTPUT."""
    return Plan(ranks, ranks, joined(*(exchange(ranks, ahead) for ahead in range(1, ranks))))


def exchange(ranks: int, ahead: int) -> Transfers:
    """Return one round of an all-to-all: rank r writes to rank r + `ahead`, so that receivers share the load."""
    source = np.arange(ranks)
    target = (source + ahead) % ranks
    return transfers(source, target, target, write=source, read_space=Space.INPUT)


def broadcast(ranks: int) -> Plan:
    """Send the block of rank 0 to all."""
    return Plan(ranks, 1, transfers(np.zeros(ranks - 1), np.arange(1, ranks), 0))


def reduce(ranks: int) -> Plan:
    """Reduce one block at rank 0, in rank order."""
    source = np.arange(1, ranks)
    return Plan(ranks, 1, transfers(source, 0, 0, read_space=Space.INPUT, reduces=1, completes=source == ranks - 1))


def gather(ranks: int, root: int) -> Plan:
    """Send all INPUTs to the root; rank r's becomes block r of its OUTPUT."""
    source = np.delete(np.arange(ranks), root)
    return Plan(ranks, ranks, transfers(source, root, 0, write=source, read_space=Space.INPUT))


def scatter(ranks: int, root: int) -> Plan:
    """Send block r of the root's INPUT to rank r, into its OUTPUT."""
    target = np.delete(np.arange(ranks), root)
    return Plan(ranks, ranks, transfers(root, target, target, write=0, read_space=Space.INPUT))


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
