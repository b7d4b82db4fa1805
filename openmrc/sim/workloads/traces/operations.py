"""The content of a trace in any format: operations of ranks, and their dependencies.

Readers fill `Operations` row by row; `lower` converts them to a plan. An operation records its place in the file, so
that errors name file and node, or file and line.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from openmrc.collectives.choice import Collective
from openmrc.errors import ConfigError

Ids = npt.NDArray[np.int64]

NONE = -1
MOST_OPERATIONS = 20_000_000  # of all ranks together, about 100 bytes each
MOST_RANKS = 1 << 20
LONGEST = 1 << 61  # ps, a month: of one computation
LARGEST = 1 << 50  # bytes of one collective or message


class OperationKind(IntEnum):
    COMPUTE = 0  # takes time, possibly 0, and moves nothing
    SEND = 1
    RECEIVE = 2
    COLLECTIVE = 3


@dataclass
class Operations:
    """Columns, a row per operation of any rank; edges are pairs of rows."""

    source: str  # file, or the common prefix of all ranks' files
    place: str = "node"  # unit of `at`: node or line
    ranks: int = 0
    groups: list[tuple[int, ...]] = field(default_factory=list)  # ranks of collectives, in their order
    names: list[str] = field(default_factory=list)
    kind: array[int] = field(default_factory=lambda: array("q"))
    rank: array[int] = field(default_factory=lambda: array("q"))
    at: array[int] = field(default_factory=lambda: array("Q"))  # node identity or line number
    length: array[int] = field(default_factory=lambda: array("q"))  # ps, of a computation
    lane: array[int] = field(default_factory=lambda: array("q"))  # processor of the rank, or NONE
    peer: array[int] = field(default_factory=lambda: array("q"))  # rank sent to or received from
    tag: array[int] = field(default_factory=lambda: array("q"))
    size: array[int] = field(default_factory=lambda: array("q"))  # bytes
    collective: array[int] = field(default_factory=lambda: array("q"))  # Collective, or NONE
    group: array[int] = field(default_factory=lambda: array("q"))  # index of `groups`, or NONE
    before: array[int] = field(default_factory=lambda: array("q"))  # operation that must end (or begin) ...
    after: array[int] = field(default_factory=lambda: array("q"))  # ... before this one begins
    begun: array[int] = field(default_factory=lambda: array("b"))  # 1: wait for the beginning of `before` only

    def add(
        self,
        kind: OperationKind,
        rank: int,
        at: int,
        name: str = "",
        *,
        length: int = 0,
        lane: int = NONE,
        peer: int = NONE,
        tag: int = 0,
        size: int = 0,
        collective: Collective | int = NONE,
        group: int = NONE,
    ) -> int:
        """Add an operation; return its row."""
        row = len(self.kind)
        if row >= MOST_OPERATIONS:
            raise ConfigError(f"{self.source}: more than {MOST_OPERATIONS:,} operations; simulate a part of the trace")
        if not 0 <= size <= LARGEST or not 0 <= length <= LONGEST:
            raise ConfigError(f"{self.file_of(rank)}: {self.place} {at}: size or time out of range")
        for column, value in zip(
            (self.kind, self.rank, self.at, self.length, self.lane, self.peer, self.tag, self.size),
            (kind, rank, at, length, lane, peer, tag, size),
            strict=True,
        ):
            column.append(value)
        self.collective.append(collective)
        self.group.append(group)
        self.names.append(name)
        return row

    def follow(self, before: int, after: int, begun: bool = False) -> None:
        """Make one operation wait until another has ended, or has begun."""
        self.before.append(before)
        self.after.append(after)
        self.begun.append(begun)

    def file_of(self, rank: int) -> str:
        return f"{self.source}.{rank}.et" if self.place == "node" else self.source

    def where(self, row: int) -> str:
        """Return the place and name of an operation: `x.3.et: node 17 (all_reduce)`."""
        name = f" ({self.names[row]})" if self.names[row] else ""
        if self.place == "node":
            return f"{self.file_of(self.rank[row])}: node {self.at[row]}{name}"
        return f"{self.source}:{self.at[row]}: rank {self.rank[row]}{name}"

    def refuse(self, row: int, why: str) -> NoReturn:
        """Raise the ConfigError of an operation."""
        raise ConfigError(f"{self.where(row)}: {why}")

    def column(self, name: str) -> Ids:
        return np.array(getattr(self, name), np.int64)
