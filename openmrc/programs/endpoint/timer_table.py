"""The table of all timers, `timers.toml`, with the time of each from the constant that acts, and its page."""

import ast
import importlib
import importlib.util
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

TABLE_FILE = Path(__file__).with_name("timers.toml")
SIZES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12}
ACK_TIMEOUT_UNIT_S = 1.024e-6  # of `t`: 1.024 us x 2**t


class TimerRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One timer: what it waits for, how long by default, and what happens when it fires."""

    name: str
    waits_for: str  # what has not happened when it fires
    effect: str  # what its firing does
    set_by: str = ""  # option, field or variable; empty: fixed
    constant: str = ""  # "module:NAME" or "module:Class.field" of the package
    unit: Literal["s", "ms", "us", "ns", "ps", "t"] = "s"  # of the constant
    time_s: float | None = msgspec.field(default=None, name="seconds")  # a foreign default; inf: never
    source: str = ""  # the public source of a foreign default

    def __post_init__(self) -> None:
        is_foreign = self.time_s is not None and bool(self.source)
        if bool(self.constant) == is_foreign:
            raise ValueError(f"{self.name}: give either `constant`, or `seconds` with their `source`")

    @property
    def seconds(self) -> float:
        """Return the time by default; inf: never."""
        if self.time_s is not None:
            return self.time_s
        value = constant(self.constant)
        if self.unit == "t":
            return float(ACK_TIMEOUT_UNIT_S * 2**value)
        return value.total_seconds() if isinstance(value, timedelta) else float(value * SIZES[self.unit])


class TimerGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Timers of one part of the system, the shortest first where they follow each other."""

    title: str
    timers: tuple[TimerRow, ...]


class _TimerTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    groups: tuple[TimerGroup, ...]


@cache
def groups() -> tuple[TimerGroup, ...]:
    """Read the table."""
    return msgspec.toml.decode(TABLE_FILE.read_bytes(), type=_TimerTable).groups


@cache
def seconds_of(name: str) -> float:
    """Return the time of a timer by its name."""
    return next(row.seconds for group in groups() for row in group.timers if row.name == name)


def constant(where: str) -> Any:
    """Return the value of "module:NAME", or the default of "module:Class.field".

    Of a module that needs a library which is not installed, such as torch, the sources are read instead.
    """
    name, _, path = where.partition(":")
    try:
        found: Any = importlib.import_module(name)
    except ImportError:
        return _written(name, path)
    owner, _, field = path.partition(".")
    found = getattr(found, owner)
    if not field:
        return found
    fields = msgspec.structs.fields(found) if issubclass(found, msgspec.Struct) else found.__dataclass_fields__.values()
    return next(each.default for each in fields if each.name == field)


def _written(module: str, name: str) -> Any:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return ast.literal_eval(node.value)
    raise LookupError(f"{module} assigns nothing to {name}")


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


def as_markdown() -> str:
    """Return the table for the documentation, a section for each group."""
    return "\n\n".join(_section(group) for group in groups())


def _section(group: TimerGroup) -> str:
    lines = [f"### {group.title}", "", "| timer | time | waits for | then | set by |", "|---|---|---|---|---|"]
    for row in group.timers:
        lines.append(f"| {row.name} | {in_words(row.seconds)} | {row.waits_for} | {row.effect} | {row.set_by} |")
    return "\n".join(lines)
