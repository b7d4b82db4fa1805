"""Which hosts are late: told once when it begins, and once when it is over, however often they are seen to be."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

CALM_S = 5.0  # without lateness: then it is over


@dataclass
class _Lateness:
    began: float
    last: float


class LateHosts:
    """The hosts (NICs) that were late within the last `CALM_S`; times are seconds of the caller's clock."""

    def __init__(self) -> None:
        self._late: dict[int, _Lateness] = {}

    def look(self, now: float, late: Collection[int]) -> tuple[list[int], list[tuple[int, float]]]:
        """Take in who is late now; return who has begun to be, and who no longer is, with how long it lasted (s)."""
        new = [nic for nic in late if nic not in self._late]
        for nic in late:
            self._late.setdefault(nic, _Lateness(now, now)).last = now
        over = [(nic, each.last - each.began) for nic, each in self._late.items() if now - each.last >= CALM_S]
        for nic, _ in over:
            del self._late[nic]
        return new, over
