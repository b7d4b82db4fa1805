"""The content of test streams: numbered pieces with known bytes, and their arrival times.

The receiver detects a piece that is lost, duplicated, misplaced or damaged, and one with a packet that was never
written: memory is reused, so every kibibyte starts with the piece's number. Times are the machine's monotonic clock,
the same in every namespace, so arrivals can be compared with the time at which a cable was pulled.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

PIECE = 32 << 10  # bytes; at 600 Mb/s, one per 0.4 ms
_BLOCK = 1 << 10  # bytes; a packet of any usual length contains at least one whole
_CONTENT = np.frombuffer(bytearray(random.Random(2604).randbytes(PIECE)), "<u8").reshape(-1, _BLOCK // 8)


def content(number: int) -> bytes:
    """Return the piece with this number."""
    _CONTENT[:, 0] = number
    return _CONTENT.tobytes()


def write_piece(memory: memoryview, number: int) -> None:
    """Write the piece with this number."""
    memory[:] = content(number)


def is_whole(memory: memoryview, number: int) -> bool:
    """Whether this is exactly the piece with this number."""
    return memory.tobytes() == content(number)  # bytes objects compare 50 times faster than memory views


class Arrivals(msgspec.Struct, kw_only=True):
    """The receiver's log, as it is written to its file."""

    kind: str
    piece_bytes: int = PIECE
    wrong: int = 0  # invalid pieces
    sent: int = -1  # pieces, as announced by the sender at the end; -1: never announced
    nanoseconds: list[int] = []  # monotonic time of each piece
    facts: dict[str, Any] = {}  # statistics of the transport


@dataclass
class Log:
    """Arrivals during the run."""

    kind: str
    wrong: int = 0
    sent: int = -1
    times: list[int] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def take(self, memory: memoryview) -> None:
        """Check the next piece and record its time."""
        if not is_whole(memory, len(self.times)):
            self.wrong += 1
        self.times.append(time.monotonic_ns())

    def write(self, path: Path) -> None:
        """Write the log."""
        noted = Arrivals(kind=self.kind, wrong=self.wrong, sent=self.sent, nanoseconds=self.times, facts=self.facts)
        path.write_bytes(msgspec.json.encode(noted))


def read(path: Path) -> Arrivals:
    """Read a receiver's log."""
    return msgspec.json.decode(path.read_bytes(), type=Arrivals)


def longest_gap_ms(times: npt.NDArray[np.int64], begin: int, end: int) -> float:
    """Return the longest time without an arrival within begin..end (ns), in milliseconds."""
    inside = times[(times >= begin) & (times <= end)]
    return float(np.diff(np.concatenate([[begin], inside, [end]])).max()) / 1e6
