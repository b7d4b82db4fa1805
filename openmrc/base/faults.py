"""The words for what may go wrong, the same for live impairments, for the simulator and for the lab.

A schedule is a list of steps. A step says when, what, and where:

    - {at: 2s, down: plane 1}
    - {at: 4s, up: plane 1}
    - {loss: 1%, delay: 200us, jitter: 50us}          # at once, everywhere
    - {at: 5s, for: 500ms, rate: 1Gbps, on: plane 0}  # and as before after half a second
    - {at: 1s, for: 50ms, every: 3s, times: 10, down: plane 2}  # ten flaps

or the same in one line, steps separated by semicolons: "at: 2s, down: plane 1; at: 4s, up: plane 1".
Planes count from 0. This file reads words and refuses wrong ones; what they do to a packet is told
where packets are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Any

import yaml

from openmrc.base.documents import composed, constructed, read_text
from openmrc.errors import ConfigError
from openmrc.units import PS_PER_MS, PS_PER_NS, PS_PER_S, PS_PER_US

EVERYWHERE = "all"
MOST_TIMES = 100_000  # repetitions of a step; each takes some 100 us to lay out
MOST_TIME = 10**6 * PS_PER_S  # so that times fit into 64 bits, also added up
OVERTAKEN = PS_PER_MS  # how late a packet is that others shall overtake: the word `reorder`, in every world
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # every word a string: YAML 1.1 takes `on` for a truth value
_TIMES = {"ps": 1, "ns": PS_PER_NS, "us": PS_PER_US, "ms": PS_PER_MS, "s": PS_PER_S, "min": 60 * PS_PER_S}
_RATES = {"bps": 1, "kbps": 10**3, "Mbps": 10**6, "Gbps": 10**9, "Tbps": 10**12}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?(?:[eE]-\d+)?|\.\d+)\s*([a-zA-Z%/]*)\s*")
_PLANE = re.compile(r"plane\s+(\d+)")


@dataclass(frozen=True)
class Impairment:
    """What happens to packets somewhere, until told otherwise; all zero: nothing."""

    down: bool = False
    delay: int = 0  # ps, one way
    jitter: int = 0  # ps, added to the delay, uniform from 0
    loss: float = 0.0  # shares of packets, 0..1
    corruption: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0  # overtaken by those behind
    trim: float = 0.0  # cut to their headers
    rate: int = 0  # bits per second; 0: no limit
    bit_errors: float = 0.0  # share of bits turned; a packet with one is lost
    data_loss: float = 0.0  # share of packets of the data classes
    mtu: int = 0  # bytes above which packets are lost and nobody is told; 0: no limit


@dataclass(frozen=True)
class Step:
    """A change of impairments at a time and a place."""

    at: int  # ps after the schedule began
    where: str  # "plane 1", "all", or a name that the world knows
    change: Mapping[str, Any] = field(default_factory=dict)  # fields of Impairment with their new values
    lasts: int = 0  # ps; 0: until another step
    source: str = ""  # for errors: where it was written
    spell: int = 0  # a step that lasts and the one that ends it have the same number above 0, unique in a schedule
    ends: bool = False  # this step ends a spell: what held before holds again

    def planes(self, count: int) -> range:
        """Return the planes meant, of `count`; ConfigError if it names something else."""
        if self.where == EVERYWHERE:
            return range(count)
        match = _PLANE.fullmatch(self.where)
        if match is None or int(match[1]) >= count:
            raise ConfigError(f"{self.source}: {self.where!r} is not 'all' or 'plane 0' to 'plane {count - 1}'")
        return range(int(match[1]), int(match[1]) + 1)


class OverlappingImpairments:
    """The impairment of one place while steps overlap, as the simulator has it for all its links at once.

    A step without an end sets the base and ends every spell of the words it names. A spell - a step that lasts - lies
    above the base until it ends; of several that name a word, the one that began last counts.
    """

    def __init__(self, base: Impairment = Impairment()) -> None:
        self._base = base
        self._spells: dict[int, dict[str, Any]] = {}  # by number, in order of their beginnings

    def apply(self, step: Step) -> None:
        """Carry out a step that is about this place."""
        if step.ends:
            self._spells.pop(step.spell, None)
        elif step.spell:
            self._spells[step.spell] = dict(step.change)
        else:
            self._base = replace(self._base, **step.change)
            for spell in self._spells.values():
                for word in step.change:
                    spell.pop(word, None)

    @property
    def now(self) -> Impairment:
        """What counts now."""
        found = self._base
        for change in self._spells.values():
            found = replace(found, **change)
        return found


@dataclass(frozen=True)
class Schedule:
    """Steps in order of time."""

    steps: tuple[Step, ...] = ()

    def spans(
        self, plane: int, planes: int, text_of: Callable[[Impairment], str]
    ) -> Iterator[tuple[float, float, str]]:
        """Yield begin and end (s) of each fault of a plane, of `planes`, and its text; one without text is none."""
        layers, text, begun = OverlappingImpairments(), "", 0.0
        for step in self.steps:
            if plane not in step.planes(planes):
                continue
            layers.apply(step)
            if (then := text_of(layers.now)) != text:
                at = step.at / PS_PER_S
                if text and begun < at:
                    yield begun, at, text
                text, begun = then, at
        if text:
            yield begun, inf, text

    @staticmethod
    def parse(text: str, source: str = "faults") -> Schedule:
        """Read steps from one line ("at: 2s, down: plane 1; ...") or from a YAML list."""
        document = _as_yaml(text)
        root = composed(document, source if "\n" in text else f"{source}: {text[:100]!r}", _LOADER)
        loaded = constructed(root, document, source, _LOADER)
        return Schedule.of(loaded if loaded is not None else [], source)

    @staticmethod
    def read(path: str | Path) -> Schedule:
        """Read a YAML file of steps."""
        return Schedule.parse(read_text(path), str(path))

    @staticmethod
    def of(items: Any, source: str = "faults", places: Sequence[str] = ()) -> Schedule:
        """Build from what a YAML reader returned: a list of mappings; `places` say where each was written."""
        if isinstance(items, Mapping):
            items = [items]
        if not isinstance(items, Sequence) or isinstance(items, str):
            raise ConfigError(f"{source}: {items!r} is not a list of steps")
        names = [f"{place or source}, step {number}" for number, place in enumerate(places or [source] * len(items), 1)]
        steps = [step for item, name in zip(items, names, strict=True) for step in _steps(item, name)]
        return Schedule(tuple(sorted(_with_spells(steps), key=lambda step: step.at)))


def not_empty(schedule: Schedule, source: str) -> Schedule:
    """Return a schedule that was asked for; ConfigError if it has no step, and so would do nothing."""
    if not schedule.steps:
        raise ConfigError(f"{source}: no step, so nothing would happen; give one such as 'at: 2s, down: plane 1'")
    return schedule


def _with_spells(steps: Sequence[Step]) -> list[Step]:
    """Number the steps that last; the one that ends a spell follows the one that begins it."""
    made: list[Step] = []
    for step in steps:
        if step.ends:
            made.append(replace(step, spell=made[-1].spell))
        else:
            made.append(replace(step, spell=len(made) + 1 if step.lasts else 0))
    return made


def _as_yaml(text: str) -> str:
    """Return a one-line schedule as YAML; text that is YAML already stays."""
    stripped = text.strip()
    if not stripped or "\n" in stripped or stripped[0] in "[{-#":
        return text
    return "[" + ", ".join("{" + part.strip() + "}" for part in stripped.split(";") if part.strip()) + "]"


def time_ps(value: Any, source: str) -> int:
    """Return "200us" as picoseconds."""
    time = _quantity(value, _TIMES, source, "a time such as 200us or 2s")
    if time > MOST_TIME:
        raise ConfigError(f"{source}: {value!r} is more than {MOST_TIME / PS_PER_S:,.0f}s")
    return round(time)


def rate_bps(value: Any, source: str) -> int:
    """Return "1Gbps" as bits per second."""
    text = value.replace("b/s", "bps").replace("bit/s", "bps") if isinstance(value, str) else value
    rate = round(_quantity(text, _RATES, source, "a rate such as 500Mbps or 1Gbps"))
    if rate == 0:
        raise ConfigError(
            f"{source}: {value!r} would be no limit; write `down` for a dead link, `clear` to end a fault"
        )
    return rate


def share(value: Any, source: str) -> float:
    """Return "1%" or 0.01 as 0.01; a bare 1 is refused, as it may be meant as either."""
    if str(value).strip() in ("1", "1.0"):
        raise ConfigError(f"{source}: {value!r} would be all packets; write 100%, or 1%")
    number = _quantity(value, {"%": 0.01, "": 1.0}, source, "a share such as 1% or 0.01")
    if not 0 <= number <= 1:
        raise ConfigError(f"{source}: {value!r} is not between 0 and 100%")
    return number


def ratio(value: Any, source: str) -> float:
    """Return "1e-12" as a number in 0..1."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number <= 1:
        raise ConfigError(f"{source}: {value!r} is not a ratio such as 1e-12")
    return number


def length(value: Any, source: str) -> int:
    """Return "1500" or "1500B" as bytes."""
    number = _quantity(value, {"": 1, "B": 1, "KB": 1000}, source, "a number of bytes such as 1500B")
    if not 1 <= number <= 65535:
        raise ConfigError(f"{source}: {value!r} is not between 1 and 65535 bytes")
    return round(number)


def _quantity(value: Any, units: Mapping[str, float], source: str, wanted: str) -> float:
    match = _QUANTITY.fullmatch(str(value)) if not isinstance(value, bool) else None
    if match is None or (match[2] not in units and float(match[1]) != 0):
        raise ConfigError(f"{source}: {value!r} is not {wanted}")
    return float(match[1]) * units.get(match[2], 1)


WORDS: dict[str, Callable[[Any, str], Any]] = {
    "delay": time_ps,
    "jitter": time_ps,
    "loss": share,
    "corruption": share,
    "duplicate": share,
    "reorder": share,
    "trim": share,
    "rate": rate_bps,
    "bit_errors": ratio,
    "data_loss": share,
    "mtu": length,
}
_OTHERS = ("at", "for", "every", "times", "on", "down", "up", "clear")
_TEXT: dict[Callable[[Any, str], Any], Callable[[Any], str]] = {
    time_ps: lambda value: _in_units(value, _TIMES),
    share: lambda value: f"{100 * value:g}%",
    rate_bps: lambda value: _in_units(value, _RATES),
    ratio: lambda value: f"{value:g}",
    length: lambda value: f"{value:g}B",
}


def change_text(change: Mapping[str, Any]) -> str:
    """Return a change of impairments in the words that make it, such as `loss 1%, delay 200us`; `clear` ends faults."""
    if change.get("down"):
        return "down"
    resting = Impairment()
    changed = [
        f"{word} {_TEXT[WORDS[word]](value)}" for word, value in change.items() if value != getattr(resting, word)
    ]
    return ", ".join(changed) or ("up" if set(change) == {"down"} else "clear")


def _in_units(value: float, units: Mapping[str, float]) -> str:
    """Return a quantity in the largest unit of which it is at least one, or in the smallest."""
    fitting = [unit for unit, size in units.items() if value >= size]
    unit = max(fitting, key=lambda each: units[each]) if fitting else min(units, key=lambda each: units[each])
    return f"{value / units[unit]:g}{unit}"


def _remedy(unknown: str) -> str:
    """Return what to write instead of an unknown word of a step."""
    known = (*_OTHERS, *WORDS)
    word, space, value = unknown.partition(" ")
    if space and word in known:
        return f"it has no colon: write {word}: {value.strip()}"
    near = get_close_matches(unknown, known, 1)
    return (f"did you mean {near[0]!r}? " if near else "") + f"known are {', '.join(known)}"


def _steps(item: Any, source: str) -> list[Step]:
    """Return the step that a mapping says, and the one that ends it, if it says how long it lasts."""
    if not isinstance(item, Mapping) or not item:
        raise ConfigError(f"{source}: {item!r} is not a step such as 'at: 2s, down: plane 1'")
    item = {"on" if key is True else key: value for key, value in item.items()}
    unknown = [str(key) for key in item if key not in WORDS and key not in _OTHERS]
    if unknown:
        raise ConfigError(f"{source}: unknown word {unknown[0]!r}; {_remedy(unknown[0])}")
    change = {word: read(item[word], f"{source}, {word}") for word, read in WORDS.items() if word in item}
    where = _place(item, source)
    if "down" in item or "up" in item:
        change["down"] = "down" in item
    if "clear" in item:
        change = {**_untouched(change, source)}
    if not change:
        raise ConfigError(f"{source}: says no word of down, up, clear, {', '.join(WORDS)}")
    at = time_ps(item.get("at", "0s"), f"{source}, at")
    lasts = time_ps(item["for"], f"{source}, for") if "for" in item else 0
    if "for" in item and not lasts:
        raise ConfigError(f"{source}, for: {item['for']!r}: expected a time above 0")
    steps = [Step(at, where, change, lasts, source)]
    if lasts:
        undone = {word: getattr(Impairment(), word) for word in change}
        steps.append(Step(at + lasts, where, undone, 0, source, ends=True))
    return _repeated(steps, item, source)


def _repeated(steps: list[Step], item: Mapping[str, Any], source: str) -> list[Step]:
    """Return the steps again every so often: a link that flaps."""
    if "every" not in item and "times" not in item:
        return steps
    if "every" not in item or "times" not in item:
        raise ConfigError(f"{source}: every and times stand together, such as 'every: 3s, times: 10'")
    period, times = time_ps(item["every"], f"{source}, every"), str(item["times"])
    if not times.isdigit() or not 1 <= int(times) <= MOST_TIMES:
        raise ConfigError(f"{source}, times: {times!r} is not a number in 1..{MOST_TIMES}")
    if period <= steps[0].lasts:
        raise ConfigError(f"{source}, every: {item['every']!r} is not longer than what it repeats")
    return [replace(step, at=step.at + turn * period) for turn in range(int(times)) for step in steps]


def _untouched(change: Mapping[str, Any], source: str) -> dict[str, Any]:
    if change:
        raise ConfigError(f"{source}: clear stands alone, without {', '.join(change)}")
    return {name: getattr(Impairment(), name) for name in Impairment.__dataclass_fields__}


def _place(item: Mapping[str, Any], source: str) -> str:
    places = [str(item[word]).strip() for word in ("on", "down", "up", "clear") if word in item]
    if len(places) > 1:
        raise ConfigError(f"{source}: names {len(places)} places ({', '.join(places)}), one is allowed")
    return " ".join(places[0].split()) if places else EVERYWHERE
