"""What the table of timers says about one of them.

The table repeats the values of constants that other rooms define, so that `mrc doctor --timeouts` loads neither the
transport nor torch. A test compares each value with the constant that `source` names, and finds constants that have no
row.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TimerRow:
    """One timer: what it waits for, how long by default, and what happens when it fires."""

    name: str
    seconds: float  # by default; inf: never
    waits_for: str  # what has not happened when it fires
    effect: str  # what its firing does
    set_by: str  # option, field or variable; empty: fixed
    source: str  # "module:NAME" or "module:Class.field" of the package, or the public source of a foreign default
    unit: str = "s"  # of the constant: s, ms, us, ps, or t for 1.024 us x 2**t


@dataclass(frozen=True)
class TimerGroup:
    """Timers of one part of the system, the shortest first where they follow each other."""

    title: str
    rows: tuple[TimerRow, ...]


def in_words(seconds: float) -> str:
    """Return a time with a unit that suits it: 100 us, 16.8 ms, 20 s, 30 min."""
    if seconds == float("inf"):
        return "never"
    if seconds >= 120 and seconds % 60 == 0:
        return f"{seconds / 60:g} min" if seconds < 7200 else f"{seconds / 3600:g} h"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{float(f'{seconds / size:.3g}') if seconds < 1000 else round(seconds, 1):g} {unit}"
    return "at once" if seconds == 0 else f"{seconds * 1e9:.3g} ns"
