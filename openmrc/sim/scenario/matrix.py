"""Read htsim's `.cm` connection matrices (github.com/ultraethernet/uet-htsim): flows, triggers, failures.

The format is line oriented; tokens are split on single spaces. A header (`Nodes`, `Connections`,
`Triggers`, `Failures`, `#` comments) is followed by a body of `SRC->DST attribute value ...`,
`trigger ...` and `failure ...` lines in any order. Input that htsim ignores or misreads is
refused or gets a warning: see `docs/simulator/workloads.md`.

Files of a hundred megabytes are common. They are read in blocks of a megabyte; within a block, connection
lines that differ only in their digits are converted together, all other lines individually.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from openmrc.errors import ConfigError
from openmrc.sim.scenario.matrix_line import COLUMNS, FailureLine, LineReader, Trigger, refuse

BLOCK = 1 << 20  # bytes read at once
LONGEST_LINE = 1 << 16  # bytes; limits the memory for a file without line ends
SUSPICIOUS_START = 1_000_000  # htsim's generators write picoseconds where its UEC program reads microseconds
FIRST_OWN_ID = 1_000_000_001  # htsim numbers flows without `id` from here

StartUnit = Literal["us", "ps"]
_PS_PER: dict[StartUnit, int] = {"us": 1_000_000, "ps": 1}

_SPACED = bytes(byte if chr(byte).isdigit() else 32 for byte in range(256))
_NUMBER = re.compile(rb"\d+")
_HUGE = re.compile(rb"\d{19}")
_PLAIN = re.compile(rb"0->0(?: [a-z_]+ 0)+\r?")  # a connection line, each number written as 0
_SHORTEST_LINE = len("0->1 start 0 size 1")


@dataclass
class ConnectionMatrix:
    """The content of a file: a column per attribute, a row per connection line in file order."""

    path: str
    hosts: int
    triggers: dict[int, Trigger]
    failures: list[FailureLine]
    warnings: list[str]
    source: NDArray[np.int64]
    destination: NDArray[np.int64]
    size: NDArray[np.int64]  # bytes
    start: NDArray[np.int64]  # ps, or -1: by trigger
    connection: NDArray[np.int64]  # id; rows of one id are messages of one connection
    trigger: NDArray[np.int64]  # trigger that starts the row, or 0
    send_done: NDArray[np.int64]  # trigger activated when all data is acknowledged, or 0
    recv_done: NDArray[np.int64]  # trigger activated when all data has arrived, or 0
    line: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.source)


def read(path: Path, start_unit: StartUnit = "us") -> ConnectionMatrix:
    """Return the matrix of a `.cm` file; raise ConfigError with file, line and value if it is invalid."""
    lines = LineReader(str(path), _PS_PER[start_unit])
    try:
        with path.open("rb") as file:
            columns = _columns(file, lines)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    kept = {name: values for name, values in columns.items() if name not in ("message", "prio")}
    matrix = ConnectionMatrix(
        str(path), lines.header["Nodes"], lines.triggers, lines.failures, lines.warnings(), **kept
    )
    _check(matrix, columns["message"])
    matrix.warnings += _unit_warnings(matrix, start_unit)
    return matrix


def _columns(file: BinaryIO, lines: LineReader) -> dict[str, NDArray[np.int64]]:
    """Fill columns of the length the header declares; concatenating at the end would need twice the memory."""
    columns: dict[str, NDArray[np.int64]] = {}
    filled = 0
    for first, block in _blocks(file, lines.path):
        part = by_shape(block, first, lines)
        if not columns and "Connections" in lines.header:
            longest = os.fstat(file.fileno()).st_size // _SHORTEST_LINE
            columns = {name: np.empty(min(lines.header["Connections"], longest), np.int64) for name in COLUMNS}
        for name, values in part.items() if columns else ():
            fitting = values[: len(columns[name]) - filled]
            columns[name][filled : filled + len(fitting)] = fitting
        filled += len(part["source"])
    lines.finish(filled)
    columns = {name: values[:filled] for name, values in columns.items()}
    if not columns:
        refuse(lines.path, 1, "Connections", "nothing", "at least one connection line, such as 0->1 start 0 size 4096")
    return columns


def _blocks(file: BinaryIO, path: str) -> Iterator[tuple[int, bytes]]:
    """Yield (number of the first line, whole lines); the last line may have no line end."""
    line, rest = 1, b""
    while chunk := file.read(BLOCK):
        text = rest + chunk
        end = text.rfind(b"\n") + 1
        block, rest = text[:end], text[end:]
        if len(rest) > LONGEST_LINE:
            refuse(path, line + block.count(b"\n"), "line", rest[:40], f"at most {LONGEST_LINE} bytes")
        if block:
            yield line, block
            line += block.count(b"\n")
    if rest:
        yield line, rest


def by_shape(block: bytes, first: int, lines: LineReader) -> dict[str, NDArray[np.int64]]:
    """Read whole lines, the first of which has number `first`; return the connections' columns in file order."""
    if not lines.in_body or _HUGE.search(block):
        return lines.read_block(block, first)
    texts = block.removesuffix(b"\n").split(b"\n")
    groups = _groups(block, texts)
    parts = [_converted(shape, texts, rows, first, lines) for shape, rows in groups.items()]
    joined = {name: np.concatenate([*(part[name] for part in parts), np.zeros(0, np.int64)]) for name in COLUMNS}
    if len(parts) < 2:
        return joined
    order = np.argsort(joined["line"])
    return {name: values[order] for name, values in joined.items()}


def _groups(block: bytes, texts: list[bytes]) -> dict[bytes, list[int]]:
    """Return the shapes of the lines and the rows of each; a block of one shape takes a fast path."""
    head = _NUMBER.sub(b"0", texts[0])
    if re.fullmatch(rb"(?:" + re.escape(head).replace(b"0", rb"\d+") + rb"\n)*+", block):
        return {head: list(range(len(texts)))}
    groups: dict[bytes, list[int]] = {}
    for at, shape in enumerate(_NUMBER.sub(b"0", block).split(b"\n")):
        groups.setdefault(shape, []).append(at)
    groups.pop(b"", None)
    return groups


def _converted(
    shape: bytes, texts: list[bytes], rows: list[int], first: int, lines: LineReader
) -> dict[str, NDArray[np.int64]]:
    numbers = np.asarray(rows) + first
    mine = [texts[row] for row in rows]
    if not _PLAIN.fullmatch(shape):
        return lines.read_lines(mine, numbers)
    names = lines.names(mine[0], int(numbers[0]))  # refuses an invalid shape
    digits = b" ".join(mine).translate(_SPACED)
    return lines.arranged(names, np.fromstring(digits, np.int64, sep=" ").reshape(-1, len(names)), mine, numbers)


def _check(matrix: ConnectionMatrix, message: NDArray[np.int64]) -> None:
    """Refuse errors across lines: duplicate ids, messages of one id between different hosts."""
    own = matrix.connection == 0
    matrix.connection[own] = FIRST_OWN_ID + np.arange(int(own.sum()))
    order = np.argsort(matrix.connection, kind="stable")
    same = matrix.connection[order[1:]] == matrix.connection[order[:-1]]
    before, again = order[:-1][same], order[1:][same]
    for at in np.flatnonzero((message[again] < 0) | (message[before] < 0)):
        row, earlier = again[at], matrix.line[before[at]]
        _refuse_row(matrix, row, "id", matrix.connection[row], f"an id of its own (line {earlier} has it)")
    moved = (matrix.source[again] != matrix.source[before]) | (matrix.destination[again] != matrix.destination[before])
    for row in again[moved]:
        pair = f"{matrix.source[row]}->{matrix.destination[row]}"
        _refuse_row(matrix, row, "msg", pair, "the hosts of the other messages with this id")


def _refuse_row(matrix: ConnectionMatrix, row: int, what: str, value: object, expected: str) -> None:
    refuse(matrix.path, int(matrix.line[row]), what, value, expected)


def _unit_warnings(matrix: ConnectionMatrix, unit: StartUnit) -> list[str]:
    if unit != "us" or not len(matrix):
        return []
    late = np.flatnonzero(matrix.start >= SUSPICIOUS_START * _PS_PER[unit])
    if not len(late):
        return []
    row = int(late[0])
    return [
        f"{matrix.path}:{matrix.line[row]}: start {matrix.start[row] // _PS_PER[unit]} is read as microseconds; "
        f"{len(late)} lines are at or over {SUSPICIOUS_START}. If the file is in picoseconds, use --cm-start-unit ps"
    ]
