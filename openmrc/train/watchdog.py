"""When to probe the ranks that are waited for, and when to tell what this rank is at. No wait is without end.

A rank that waits sends nothing, so its transport would never notice that the other is gone: a probe is a write of
nothing, whose retry budget then runs out. What a rank is at goes to all once a collective takes long.
"""

from __future__ import annotations

from collections.abc import Iterable

PROBE_SECONDS = 1.0  # between probes of one rank
_TELL_SECONDS = 5.0  # s after which a collective is slow


class Watchdog:
    """The timers of one group."""

    def __init__(self, timeout: float) -> None:
        """`timeout` (s) is the group's."""
        self._tell_after = min(_TELL_SECONDS, timeout / 3)
        self._probed_at: dict[int, float] = {}
        self._told = 0  # the latest collective that was reported

    def ranks_to_probe(self, now: float, waited_for: Iterable[int]) -> list[int]:
        """Return the awaited ranks that were not probed recently; `now` in monotonic seconds."""
        due = [rank for rank in waited_for if now - self._probed_at.get(rank, 0.0) >= PROBE_SECONDS]
        self._probed_at.update(dict.fromkeys(due, now))
        return due

    def shall_tell(self, sequence: int, seconds: float) -> bool:
        """Whether to report a collective that has taken this long; True once per collective."""
        if sequence == self._told or seconds < self._tell_after:
            return False
        self._told = sequence
        return True
