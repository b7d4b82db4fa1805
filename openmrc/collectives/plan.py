"""The plan of a collective as a table: which rank writes which block to which rank, and the dependencies.

A *block* is a part of the data that is transferred as a unit; *spaces* are the three memories of a rank. A transfer
either stores the block at the target or reduces it there: target[write] = target's own block op arrived block. Plans
contain neither sizes nor times, so a live group and the simulator use the same ones. A live group splits blocks into
chunks; chunk c of a transfer waits only for chunk c of the transfer that it depends on.
"""

from dataclasses import dataclass, fields, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
NOTHING = -1  # `after` of a transfer without a dependency


class Space(IntEnum):
    """A memory of a rank."""

    INPUT = 0  # data of the caller; never written
    OUTPUT = 1  # result for the caller
    SCRATCH = 2  # partial sums that are passed to another rank


@dataclass(frozen=True)
class Transfers:
    """A table with a row per transfer; transfers between two ranks, and reductions into a block, have this order."""

    source: Ids  # rank that writes
    target: Ids  # rank whose memory is written
    read: Ids  # block at the source
    read_space: Ids
    write: Ids  # block at the target
    write_space: Ids
    reduces: Ids  # 1: reduced with the target's own block, 0: stored
    after: Ids  # transfer that must have arrived at the source first; NOTHING: none
    completes: Ids  # 1: the target's block then holds the contributions of all ranks


@dataclass(frozen=True)
class CollectivePlan:
    """A collective of `ranks` ranks whose data is split into `blocks` blocks."""

    ranks: int
    blocks: int
    transfers: Transfers

    @property
    def count(self) -> int:
        return len(self.transfers.source)


def transfers(
    source: npt.ArrayLike,
    target: npt.ArrayLike,
    block: npt.ArrayLike,
    *,
    write: npt.ArrayLike | None = None,
    read_space: npt.ArrayLike = Space.OUTPUT,
    write_space: npt.ArrayLike = Space.OUTPUT,
    reduces: npt.ArrayLike = 0,
    after: npt.ArrayLike = NOTHING,
    completes: npt.ArrayLike = 0,
) -> Transfers:
    """Return a table; arguments broadcast. `write` is the block at the target (default: the block at the source)."""
    given = (source, target, block, read_space, block if write is None else write, write_space)
    columns = [np.asarray(value, np.int64) for value in (*given, reduces, after, completes)]
    return Transfers(*(np.ascontiguousarray(column).ravel() for column in np.broadcast_arrays(*columns)))


def joined(*parts: Transfers) -> Transfers:
    """Return the concatenation of tables; `after` already refers to rows of the result."""
    none = np.zeros(0, np.int64)
    columns = (np.concatenate([none, *(getattr(part, each.name) for part in parts)]) for each in fields(Transfers))
    return Transfers(*columns)


def dependencies(part: Transfers) -> tuple[Ids, Ids]:
    """Return (earlier, later): all pairs of transfers where the later one waits for the arrival of the earlier.

    The earlier ones are those that `after` names, and the transfers reduced into the same block before them.
    """
    later, earlier = np.flatnonzero(part.after != NOTHING), part.after[part.after != NOTHING]
    before = _reduced_before(part)
    pairs = [(earlier, later)]
    while len(later):
        earlier = np.where(part.reduces[earlier] == 1, before[earlier], NOTHING)
        later, earlier = later[earlier != NOTHING], earlier[earlier != NOTHING]
        pairs.append((earlier, later))
    return np.concatenate([pair[0] for pair in pairs]), np.concatenate([pair[1] for pair in pairs])


def _reduced_before(part: Transfers) -> Ids:
    """Return for each transfer its predecessor in the reductions into the same block; NOTHING: none."""
    before = np.full(len(part.source), NOTHING)
    rows = np.flatnonzero(part.reduces == 1)
    keys = (part.write[rows], part.write_space[rows], part.target[rows])
    order = rows[np.lexsort((rows, *keys))]
    if len(order) > 1:
        same = np.ones(len(order) - 1, np.bool_)
        for column in (part.write, part.write_space, part.target):
            same &= column[order[1:]] == column[order[:-1]]
        before[order[1:][same]] = order[:-1][same]
    return before


def rotated(plan: CollectivePlan, root: int) -> CollectivePlan:
    """Return a plan for root 0 with all ranks shifted by `root` (modulo the number of ranks); blocks do not change."""
    part = plan.transfers
    source, target = (part.source + root) % plan.ranks, (part.target + root) % plan.ranks
    return replace(plan, transfers=replace(part, source=source, target=target))
