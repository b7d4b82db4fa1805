"""The plan of a collective as data: which rank writes which block to which rank, after what.

A *block* is a part of the data that travels as one; *spaces* are the three memories of a rank. A transfer
either stores the block at the target or reduces it there: target[writes] = target's own block op arrived.
Plans know neither bytes nor time, so that a live group and the simulator run the same one: the former cuts
blocks into chunks, and chunk c of a transfer waits only for chunk c of the one before.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
NOTHING = -1  # `after` of a transfer that waits for nothing


class Space(IntEnum):
    """A memory of a rank."""

    INPUT = 0  # what the caller passed; never written
    OUTPUT = 1  # what the caller gets
    SCRATCH = 2  # sums on their way to another rank


@dataclass(frozen=True)
class Transfers:
    """Columns, a row per transfer. Between two ranks transfers are in this order, and so are folds into one block."""

    source: Ids  # rank that writes
    target: Ids  # rank whose memory is written
    read: Ids  # block at the source
    read_space: Ids
    write: Ids  # block at the target
    write_space: Ids
    reduces: Ids  # 1: combined with the target's own block, 0: stored
    after: Ids  # transfer that must have arrived at the source first; NOTHING: none
    completes: Ids  # 1: with this transfer the target's block holds the contributions of all ranks


@dataclass(frozen=True)
class Plan:
    """A collective among `ranks` ranks whose data is cut into `blocks` blocks."""

    ranks: int
    blocks: int
    transfers: Transfers

    @property
    def count(self) -> int:
        """Return how many transfers there are."""
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
    """Return columns; arrays broadcast. `write` is the block at the target, the same as at the source if not given."""
    given = (source, target, block, read_space, block if write is None else write, write_space)
    columns = [np.asarray(value, np.int64) for value in (*given, reduces, after, completes)]
    return Transfers(*(np.ascontiguousarray(column).ravel() for column in np.broadcast_arrays(*columns)))


def joined(*parts: Transfers) -> Transfers:
    """Return the transfers of all parts, one part behind the other; `after` counts over all of them already."""
    none = np.zeros(0, np.int64)
    columns = (np.concatenate([none, *(getattr(part, each.name) for part in parts)]) for each in fields(Transfers))
    return Transfers(*columns)


def dependencies(part: Transfers) -> tuple[Ids, Ids]:
    """Return (earlier, later): all pairs of transfers of which the later one waits until the earlier has arrived.

    These are those that `after` names, and what is folded into the same block before them.
    """
    later, earlier = np.flatnonzero(part.after != NOTHING), part.after[part.after != NOTHING]
    before = _folded_before(part)
    pairs = [(earlier, later)]
    while len(later):
        earlier = np.where(part.reduces[earlier] == 1, before[earlier], NOTHING)
        later, earlier = later[earlier != NOTHING], earlier[earlier != NOTHING]
        pairs.append((earlier, later))
    return np.concatenate([pair[0] for pair in pairs]), np.concatenate([pair[1] for pair in pairs])


def _folded_before(part: Transfers) -> Ids:
    """Return for each transfer the one that is folded into the same block just before it; NOTHING: none."""
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


def rotated(plan: Plan, root: int) -> Plan:
    """Return the plan with rank r in the place of rank r - root: plans are made for root 0. Blocks stay."""
    part = plan.transfers
    source, target = (part.source + root) % plan.ranks, (part.target + root) % plan.ranks
    return replace(plan, transfers=replace(part, source=source, target=target))
