"""Collectives of a trace as messages, by the plans and the choice of algorithm of live ranks.

Ranks may share a NIC; messages between them take no time.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from openmrc.collectives.choice import MANY, Collective, CollectiveAlgorithm, choose, plan_for
from openmrc.collectives.plan import Transfers, dependencies
from openmrc.errors import ConfigError
from openmrc.sim.workloads.plan import LARGEST_MESSAGE, Ids, WorkloadGraph

AlgorithmName = Literal["auto", "direct", "ring", "tree"]

INLINE = 64 << 10  # bytes; largest message that a live group sends in one write
CHUNKS = 8  # per block that is forwarded by several ranks
SMALL = 64 << 10  # bytes; smaller blocks are not divided
_GATHERS = (Collective.ALL_GATHER, Collective.GATHER)  # size: the contribution of one rank


@dataclass(frozen=True)
class Lowered:
    """A collective that several groups of equal size run independently."""

    ids: Ids  # of the messages, a row per group
    sender: Ids  # rank within the group, by column of `ids`
    receiver: Ids


def algorithm_of(collective: Collective, wanted: AlgorithmName, ranks: int, size: int) -> CollectiveAlgorithm:
    """Return the algorithm for a collective of `size` bytes per rank; direct where it has no ring or tree."""
    if wanted == "auto":
        return choose(collective, ranks, size, INLINE)
    name = CollectiveAlgorithm[wanted.upper()]
    if collective == Collective.BARRIER:
        return CollectiveAlgorithm.WHOLE if ranks <= MANY else CollectiveAlgorithm.TREE
    if collective in (Collective.ALL_TO_ALL, Collective.GATHER, Collective.SCATTER):
        return CollectiveAlgorithm.DIRECT
    if collective in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER) and name == CollectiveAlgorithm.TREE:
        return CollectiveAlgorithm.RING
    return name


def lower(
    made: WorkloadGraph, members: Ids, collective: Collective, size: int, wanted: AlgorithmName = "auto", start: int = 0
) -> Lowered:
    """Add a collective among each row of `members` (NICs, column r is rank r).

    `size` (bytes) is that of the vector at each rank; for a gather and an all-gather, the contribution of each rank.
    """
    ranks = members.shape[1]
    plan = plan_for(collective, algorithm_of(collective, wanted, ranks, size), ranks)
    part = plan.transfers
    whole = size * ranks if collective in _GATHERS else size
    block = max(1, -(-whole // plan.blocks))
    passes = plan.blocks == 1 and bool((part.after >= 0).any() or (part.reduces == 1).any())
    chunks = CHUNKS if passes and block > SMALL else 1
    piece = -(-block // chunks)
    if piece > LARGEST_MESSAGE:
        raise ConfigError(f"messages of {piece:,} bytes; at most {LARGEST_MESSAGE:,}")
    ids = np.empty((len(members), chunks, plan.count), np.int64)
    for chunk in range(chunks):
        ids[:, chunk] = _messages(made, members, part, piece, start)
        if chunk:  # a rank sends the chunks of a block in order
            made.follow(ids[:, chunk - 1].ravel(), ids[:, chunk].ravel(), acknowledged=True)
    return Lowered(ids.reshape(len(members), -1), np.tile(part.source, chunks), np.tile(part.target, chunks))


def _messages(made: WorkloadGraph, members: Ids, part: Transfers, piece: int, start: int) -> Ids:
    """Add the transfers of one chunk; return their ids, a row per group."""
    source, target = members[:, part.source].T, members[:, part.target].T  # numbered by transfer, then by group
    apart = source != target
    ids = np.empty(source.shape, np.int64)
    ids[apart] = made.messages(source[apart], target[apart], piece, start)
    ids[~apart] = made.computations(source[~apart], 0, start)
    earlier, later = dependencies(part)
    made.follow(ids[earlier].ravel(), ids[later].ravel())
    return ids.T
