"""The responder's record of arrivals as a set."""

from __future__ import annotations


class Arrivals:
    """Which PSNs arrived beyond the left edge, with what matters about each."""

    def __init__(self) -> None:
        self.facts: dict[int, int] = {}

    def has(self, psn: int) -> bool:
        return psn in self.facts

    def add(self, psn: int, facts: int) -> None:
        self.facts[psn] = facts

    def remove(self, psn: int) -> int:
        return self.facts.pop(psn)

    def bitmap(self, base: int) -> int:
        pattern = sum(1 << bit for bit in range(64) if base + bit in self.facts)
        return pattern - (1 << 64) if pattern >> 63 else pattern
