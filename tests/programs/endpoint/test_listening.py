"""Reports of rejected peers, with a clock and a timer of the test's own."""

from __future__ import annotations

from collections.abc import Callable

from openmrc.programs.endpoint.listening import OTHER_REASONS, REASONS_HELD, Refusals


class Reporting:
    """Lines that were reported, and what is due later."""

    def __init__(self) -> None:
        self.now = 100.0
        self.lines: list[str] = []
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.refusals = Refusals(self.lines.append, lambda: self.now, self._later)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self.due.append((seconds, call))

    def taken(self) -> list[str]:
        lines, self.lines[:] = self.lines[:], []
        return lines


def test_the_first_reason_is_reported_at_once_and_the_last_a_second_later() -> None:
    reporting = Reporting()
    reporting.refusals("a: no token")
    assert reporting.taken() == ["rejected a: no token"]
    reporting.now += 0.25
    reporting.refusals("b: another token")
    assert reporting.taken() == []
    ((seconds, flush),) = reporting.due
    assert seconds == 0.75
    flush()
    assert reporting.taken() == ["rejected b: another token"]


def test_reasons_of_a_flood_are_counted_not_lost_and_take_bounded_memory() -> None:
    reporting = Reporting()
    reporting.refusals("first")
    for number in range(50):
        reporting.refusals(f"peer {number}")
        reporting.refusals("a: no token")
    assert len(reporting.due) == 1
    reporting.taken()
    reporting.now += 1.5
    reporting.refusals("a: no token")
    lines = reporting.taken()
    assert "rejected a: no token (51 times)" in lines
    assert len(lines) == REASONS_HELD + 1
    assert lines[-1] == f"rejected {OTHER_REASONS} ({50 - REASONS_HELD + 1} times)"


def test_what_is_held_back_is_reported_at_the_end() -> None:
    reporting = Reporting()
    with reporting.refusals as refusals:
        refusals("a: no token")
        refusals("b: another token")
    assert reporting.taken() == ["rejected a: no token", "rejected b: another token"]
