"""Read GOAL schedules, the text form of LogGOPSim and ATLAHS (github.com/spcl/LogGOPSim, txt2bin).

    num_ranks 2
    rank 0 {
    l1: calc 1000
    l2: send 4096b to 1 tag 7
    l2 requires l1
    }

Messages match by sender, receiver and tag, in the order of the file. `requires` waits for the end of an operation,
`irequires` for its beginning. A `calc` has no unit in the file. `cpu` selects the processor of the rank;
`nic` has no effect, because a rank has one NIC here. Receives from any sender or with any tag (-1) are refused, because
their match would depend on timing.
"""

import re
from pathlib import Path
from typing import NoReturn

from openmrc.errors import ConfigError
from openmrc.sim.workloads.traces.lines import numbered
from openmrc.sim.workloads.traces.operations import LARGEST, LONGEST, MOST_RANKS, NONE, OperationKind, Operations

_LABEL = r"(?:([a-zA-Z][a-zA-Z0-9_]*)[ \t]*:[ \t]*)?"
_RESOURCES = r"(?:[ \t]+cpu[ \t]*(\d{1,4}))?(?:[ \t]+nic[ \t]*\d{1,4})?"
_CALC = re.compile(_LABEL + r"calc[ \t]*(\d{1,18})" + _RESOURCES)
_SEND = re.compile(
    _LABEL + r"send[ \t]*(\d{1,18})b[ \t]*to[ \t]*(\d{1,9})(?:[ \t]*tag[ \t]*(-1|\d{1,18}))?" + _RESOURCES
)
_RECV = re.compile(
    _LABEL + r"recv[ \t]*(\d{1,18})b[ \t]*from[ \t]*(-1|\d{1,9})(?:[ \t]*tag[ \t]*(-1|\d{1,18}))?" + _RESOURCES
)
_WAIT = re.compile(r"([a-zA-Z][a-zA-Z0-9_]*)[ \t]+(i?)requires[ \t]+([a-zA-Z][a-zA-Z0-9_]*)")
_HEAD = re.compile(r"num_ranks[ \t]*(\d{1,9})")
_RANK = re.compile(r"rank[ \t]*(\d{1,9})[ \t]*\{[ \t]*(.*)")
_COMMENT = re.compile(r"/\*.*?\*/")
_EXPECTED = "expected `[label:] calc T`, `send SIZEb to R`, `recv SIZEb from R`, `label requires label` or `}`"


def read(path: Path, unit: int) -> Operations:
    """Read a schedule; `unit` is that of `calc` (ps). Raise ConfigError with file and line if it is invalid."""
    schedule = _Schedule(path, unit)
    in_comment = False
    for number, line in numbered(path):
        line, in_comment = _without_comments(line, in_comment)
        if line:
            schedule.take(number, line)
    return schedule.finished()


def _without_comments(line: str, in_comment: bool) -> tuple[str, bool]:
    """Return a line without comments, and whether it ends within one."""
    if in_comment:
        _, end, line = line.partition("*/")
        if not end:
            return "", True
    line = _COMMENT.sub(" ", line).partition("//")[0]
    line, begun, _ = line.partition("/*")
    return line.strip(), bool(begun)


class _Schedule:
    """The operations so far, and the labels of the current rank."""

    def __init__(self, path: Path, unit: int) -> None:
        self._made = Operations(str(path), place="line")
        self._path, self._unit = path, unit
        self._rank: int | None = None
        self._seen: set[int] = set()
        self._labels: dict[str, int] = {}
        self._line = 0

    def take(self, number: int, line: str) -> None:
        self._line = number
        if self._rank is not None:
            self._statement(line)
        elif match := _RANK.fullmatch(line):
            self._begin(int(match[1]))
            if match[2]:
                self._statement(match[2])
        elif match := _HEAD.fullmatch(line):
            self._made.ranks = int(match[1])
            if not 1 <= self._made.ranks <= MOST_RANKS or self._seen:
                self._refuse(f"num_ranks {match[1]}: expected 1..{MOST_RANKS}, once, before all ranks")
        else:
            self._refuse(f"{line[:60]!r}: expected `num_ranks N` or `rank R {{`")

    def finished(self) -> Operations:
        """Return the operations of all ranks; refuse an incomplete schedule."""
        if self._rank is not None:
            self._refuse(f"the file ends within rank {self._rank}: a `}}` is missing")
        missing = next((rank for rank in range(self._made.ranks) if rank not in self._seen), None)
        if missing is not None or not self._made.ranks:
            what = f"rank {missing} is missing" if missing is not None else "no `num_ranks N`"
            raise ConfigError(f"{self._path}: {what}; num_ranks is {self._made.ranks}")
        return self._made

    def _begin(self, rank: int) -> None:
        if rank >= self._made.ranks:
            self._refuse(f"rank {rank}: expected 0..{self._made.ranks - 1}, as num_ranks says")
        if rank in self._seen:
            self._refuse(f"duplicate rank {rank}")
        self._seen.add(rank)
        self._rank, self._labels = rank, {}

    def _statement(self, line: str) -> None:
        ends = line.endswith("}")
        line = line.removesuffix("}").strip()
        if line:
            self._operation(line)
        if ends:
            self._rank = None

    def _operation(self, line: str) -> None:
        rank = self._rank
        assert rank is not None
        if match := _WAIT.fullmatch(line):
            self._made.follow(self._row(match[3]), self._row(match[1]), begun=bool(match[2]))
        elif match := _CALC.fullmatch(line):
            length = int(match[2]) * self._unit
            if length > LONGEST:
                self._refuse(f"calc {match[2]}: more than a month")
            self._add(
                match[1],
                self._made.add(OperationKind.COMPUTE, rank, self._line, length=length, lane=int(match[3] or 0)),
            )
        elif match := _SEND.fullmatch(line) or _RECV.fullmatch(line):
            kind = OperationKind.SEND if _SEND.fullmatch(line) else OperationKind.RECEIVE
            self._message(kind, rank, match)
        else:
            self._refuse(f"{line[:60]!r}: {_EXPECTED}")

    def _message(self, kind: OperationKind, rank: int, match: re.Match[str]) -> None:
        label, size, peer, tag = match[1], int(match[2]), int(match[3]), int(match[4] or 0)
        if NONE in (peer, tag):
            self._refuse("receives from any rank or with any tag (-1) are not supported: the match depends on timing")
        if peer >= self._made.ranks or peer == rank:
            self._refuse(f"rank {peer}: expected another of 0..{self._made.ranks - 1}")
        if size > LARGEST:
            self._refuse(f"{size} bytes: too large")
        self._add(label, self._made.add(kind, rank, self._line, peer=peer, tag=tag, size=size))

    def _add(self, label: str | None, row: int) -> None:
        if label is None:
            return
        if label in self._labels:
            self._refuse(f"duplicate label {label!r} in rank {self._rank}")
        self._labels[label] = row
        self._made.names[row] = label

    def _row(self, label: str) -> int:
        if label not in self._labels:
            self._refuse(f"label {label!r} is unknown in rank {self._rank}; define a label before its use")
        return self._labels[label]

    def _refuse(self, why: str) -> NoReturn:
        raise ConfigError(f"{self._path}:{self._line}: {why}")
