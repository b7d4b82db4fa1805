"""Sweeps: many runs of one scenario with varied fields.

A sweep file names a scenario and, for dotted paths into it (`transport.name`, `workloads.0.size`, `seed`), the values
to try; every combination is a point. Fields under one item of `together` vary together. The result of a point is a file
named by a digest of its whole input, so an interrupted sweep can be resumed, and results of a changed scenario are not
reused.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Meta, Struct

from openmrc.base.documents import read_text
from openmrc.base.shipped import find
from openmrc.base.yaml_file import decode_placed
from openmrc.base.yaml_words import explained
from openmrc.errors import ConfigError, FieldError
from openmrc.fabric.model.build import load as load_fabric
from openmrc.sim.results.summary import summary
from openmrc.sim.scenario.description import Scenario, completed, load
from openmrc.sim.simulate import OnProgress, simulate
from openmrc.version import __version__

MOST_POINTS = 1_000_000


class Plot(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The summary plot: x and by are varied paths, y is a path of the summary."""

    x: str
    y: str = "fct_us.p99"
    by: str = ""  # one line per value


Values = Annotated[list[Any], Meta(min_length=1)]
Varied = dict[str, Values]


class Sweep(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A sweep file."""

    scenario: str  # path relative to the sweep's folder
    vary: Varied = {}
    together: tuple[
        Annotated[Varied, Meta(min_length=1)], ...
    ] = ()  # all fields of an item take their n-th values together
    names: dict[str, str] = {}  # display names of fields and figures
    plot: Plot | None = None

    @property
    def fields(self) -> dict[str, list[Any]]:
        """Return the varied paths and the values they take."""
        return {**self.vary, **{name: values for group in self.together for name, values in group.items()}}


@dataclass(frozen=True)
class Point:
    values: dict[str, Any]
    scenario: Scenario
    digest: str

    def result(self, folder: Path) -> Path:
        """Return the path of its result file, which may not exist yet."""
        return folder / "points" / f"{self.digest}.json"


def read(path: Path) -> tuple[Sweep, list[Point]]:
    """Read a sweep file and return its points; all of them are checked before any is run."""
    path = find(path)
    sweep, where = decode_placed(read_text(path), Sweep, str(path))
    try:
        return sweep, points_of(sweep, load(path.parent / sweep.scenario), path)
    except FieldError as error:
        raise ConfigError(f"{where(error.place, str(error))}: {error}") from None


def points_of(sweep: Sweep, base: Scenario, path: Path) -> list[Point]:
    """Return the points of a sweep over a scenario; file names are relative to `path`. FieldError names the field."""
    _check(sweep)
    whole = json.loads(msgspec.json.encode(base))
    axes = [[{name: value} for value in tried] for name, tried in sweep.vary.items()]
    for group in sweep.together:
        axes.append([dict(zip(group, values, strict=True)) for values in zip(*group.values(), strict=True)])
    combinations = itertools.product(*axes)
    made = []
    for parts in combinations:
        values = {name: value for part in parts for name, value in part.items()}
        try:
            made.append(_point(whole, values, path))
        except _ValueError as error:
            raise FieldError(_place(sweep, error.name), f"{error.name}: {error}") from None
    return made


def _place(sweep: Sweep, name: str) -> str:
    return next((f"$.together[{at}]" for at, group in enumerate(sweep.together) if name in group), "$.vary")


class _ValueError(ConfigError):
    """A value of the field `name` cannot be."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


def _check(sweep: Sweep) -> None:
    varied = [*sweep.vary, *(name for group in sweep.together for name in group)]
    if not varied:
        raise FieldError("$", "vary: empty; expected fields of the scenario with the values to try")
    twice = next((name for name in varied if varied.count(name) > 1), None)
    if twice is not None:
        raise FieldError(_place(sweep, twice), f"{twice}: varied twice; write its values in one place")
    count = 1
    for at, group in enumerate(sweep.together):
        lengths = {name: len(values) for name, values in group.items()}
        if len(set(lengths.values())) > 1:
            raise FieldError(
                f"$.together[{at}]", f"together: lists of different lengths: {lengths}; write as many values"
            )
        count *= len(next(iter(group.values())))
    for tried in sweep.vary.values():
        count *= len(tried)
    if count > MOST_POINTS:
        raise FieldError("$", f"vary: {count:,} combinations, at most {MOST_POINTS:,}; try fewer values")
    for name in (sweep.plot.x, sweep.plot.by) if sweep.plot else ():
        if name and name not in varied:
            raise FieldError("$", f"plot: {name!r} is not varied; varied fields: {', '.join(varied)}")


def _point(whole: dict[str, Any], values: dict[str, Any], path: Path) -> Point:
    changed = json.loads(json.dumps(whole))
    for name in sorted(values, key=lambda each: each.count(".")):  # a complete fabric before one of its fields
        if name.startswith("fabric.") and isinstance(changed["fabric"], str):
            changed["fabric"] = json.loads(msgspec.json.encode(load_fabric(path.parent / changed["fabric"])))
        _set(changed, name, values[name])
    try:
        return point_of(completed(msgspec.convert(changed, Scenario), path), values)
    except msgspec.ValidationError as error:
        reason = explained(str(error), changed, Scenario)
        place = str(error).rpartition(" - at `$")[2]
    except ConfigError as error:
        reason, place = str(error).removeprefix(f"{path}: "), getattr(error, "place", "")
    raise _ValueError(_varied_at(place, values), f"{reason}; this point has {values}")


def _varied_at(place: str, values: Collection[str]) -> str:
    """Return which of the varied fields is at a place of the scenario, below or above it; else the first."""
    steps = re.findall(r"\w+", place)

    def in_common(name: str) -> int:
        return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(name.split("."), steps, strict=False))))

    return max(values, key=in_common)


def point_of(scenario: Scenario, values: dict[str, Any]) -> Point:
    """Return a point; its digest covers everything that determines the result."""
    text = __version__ + json.dumps(msgspec.to_builtins(scenario), sort_keys=True)
    return Point(values, scenario, hashlib.sha256(text.encode()).hexdigest()[:16])


def _set(tree: Any, name: str, value: Any) -> None:
    """Set the field at a dotted path; its parents must exist, or be optional parts of the scenario."""
    *parents, last = name.split(".")
    for step in parents:
        if isinstance(tree, dict) and step not in tree:
            tree[step] = {}  # a part that has its defaults
        tree = _child(tree, step, name)
    if isinstance(tree, dict):
        tree[last] = value
    else:
        _child(tree, last, name)
        tree[int(last)] = value


def _child(tree: Any, step: str, name: str) -> Any:
    if isinstance(tree, Mapping):
        return tree[step]
    if isinstance(tree, list) and step.isdigit() and int(step) < len(tree):
        return tree[int(step)]
    known = f"; it has 0 to {len(tree) - 1}" if isinstance(tree, list) and tree else ""
    raise _ValueError(name, f"the scenario has no field {step!r} there{known}")


def run_point(encoded: bytes, values: dict[str, Any], on_progress: OnProgress | None = None) -> dict[str, Any]:
    """Run one point in the current process and return its result."""
    scenario = msgspec.json.decode(encoded, type=Scenario)
    reported: dict[str, Any] = {"values": values}
    try:
        done = simulate(scenario, on_progress=on_progress)
        reported["summary"] = summary(done)
    except ConfigError as error:  # this point is invalid; others may be valid
        reported["error"] = str(error)
    return reported


def keep(reported: Mapping[str, Any], path: Path) -> None:
    """Write a result to a temporary file and rename it, so that a result file is always complete."""
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(reported))
    draft.replace(path)


def flat(reported: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as one row: the varied values, and every number of the summary by its dotted path."""
    row: dict[str, Any] = {
        name: value if isinstance(value, (int, float, str)) else json.dumps(value)
        for name, value in reported["values"].items()
    }
    row["error"] = reported.get("error")
    return row | dict(leaves("", reported.get("summary", {})))


def leaves(prefix: str, tree: Mapping[str, Any], lists: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield what is not a mapping or, with `lists`, a list: its dotted path, and the value."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(f"{prefix}{name}.", value, lists)
        elif lists and isinstance(value, list):
            yield from leaves(f"{prefix}{name}.", {str(at): each for at, each in enumerate(value)}, lists)
        elif isinstance(value, (int, float, str, bool)) or value is None:
            yield f"{prefix}{name}", value


def figures(summary: Mapping[str, Any]) -> list[str]:
    """Return the dotted paths of all numbers of a summary, including those that are None in this run."""
    return [name for name, value in leaves("", summary, lists=True) if value is None or isinstance(value, (int, float))]


def similar(figure: str, known: Collection[str]) -> str:
    """Return the figures that resemble a wrong one, for an error."""
    near = get_close_matches(figure, known, 3, 0.4)
    return f"; similar: {', '.join(near)}" if near else ""


def refuse_plot(sweep: Sweep, summary: Mapping[str, Any]) -> None:
    """Refuse a plot of a figure that the summary does not have; the error suggests similar ones."""
    known = figures(summary) if sweep.plot is not None else []
    if sweep.plot is not None and sweep.plot.y not in known:
        raise ConfigError(f"plot: y: {sweep.plot.y!r} is not a number of the summary{similar(sweep.plot.y, known)}")


def unknown_names(sweep: Sweep, summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a warning for each of `names` that is neither a varied field nor a number of any summary."""
    known = list(dict.fromkeys([*sweep.fields, *(figure for summary in summaries for figure in figures(summary))]))
    wrong = "is neither a varied field nor a number of a summary"
    return [f"names: {name!r} {wrong}{similar(name, known)}" for name in sweep.names if name not in known]


def written(sweep: Sweep) -> str:
    """Return a sweep as YAML, to store with its results."""
    return yaml.safe_dump(msgspec.to_builtins(sweep), sort_keys=False)
