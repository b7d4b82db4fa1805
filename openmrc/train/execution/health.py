"""Timers of a group: when to probe the awaited ranks, and when to report the state of a slow collective.

A rank that only waits sends nothing, so its transport would not detect that the peer is gone. A probe is an empty
write; it exhausts its retry budget if the peer does not respond, so every wait ends.
"""

from __future__ import annotations

from collections.abc import Iterable

PROBE_SECONDS = 1.0  # between probes of one rank
_SLOW_SECONDS = 5.0  # s after which a collective is slow


class Watchdog:
    """The timers of one group."""

    def __init__(self, timeout: float) -> None:
        """`timeout` (s) is the group's."""
        self._report_after = min(_SLOW_SECONDS, timeout / 3)
        self._probed_at: dict[int, float] = {}
        self._reported = 0  # sequence of the latest collective reported

    def ranks_to_probe(self, now: float, waited_for: Iterable[int]) -> list[int]:
        """Return the awaited ranks that were not probed recently; `now` in monotonic seconds."""
        due = [rank for rank in waited_for if now - self._probed_at.get(rank, 0.0) >= PROBE_SECONDS]
        self._probed_at.update(dict.fromkeys(due, now))
        return due

    def should_report(self, sequence: int, seconds: float) -> bool:
        """Whether to report a collective that has taken `seconds`; True once per collective."""
        if sequence == self._reported or seconds < self._report_after:
            return False
        self._reported = sequence
        return True
