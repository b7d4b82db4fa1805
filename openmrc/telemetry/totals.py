"""Counters of queue pairs that do not fall when one ends.

A queue pair's counters begin again with every RESET, and vanish with it. Here the differences between two looks are
added up; a number that fell began again from 0. Ask `take` before a queue pair ends, so that nothing is missed.
"""

from typing import Any

from openmrc.telemetry.snapshots import TransportTotals

FIELDS = TransportTotals.__struct_fields__


class CounterTotals:
    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, ...]] = {}  # by row of the queue pair
        self._sums = [0] * len(FIELDS)

    def take(self, row: int, queue_pair: Any) -> int:
        """Add what a queue pair counted since the last look at its row; return new retransmission timeouts."""
        now = tuple(int(getattr(queue_pair, name)) for name in FIELDS)
        before = self._seen.get(row, (0,) * len(FIELDS))
        added = [value - old if value >= old else value for value, old in zip(now, before, strict=True)]
        self._sums = [total + each for total, each in zip(self._sums, added, strict=True)]
        self._seen[row] = now
        return added[0]

    def forget(self, row: int) -> None:
        """Let a row begin again from 0."""
        self._seen.pop(row, None)

    def totals(self) -> TransportTotals:
        return TransportTotals(**dict(zip(FIELDS, self._sums, strict=True)))
