"""Many runs of one scenario with some of its fields varied: what the points are, and how one is run.

A sweep file names a scenario and, for dotted paths into it (`transport.name`, `workloads.0.size`, `seed`), the values
to try; every combination is a point. A point's result is a file named by a digest of its whole input, so an
interrupted sweep goes on where it was, and a changed scenario is not taken for an old one.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Meta, Struct

from openmrc import __version__
from openmrc.errors import ConfigError
from openmrc.fabric.yaml_file import decode
from openmrc.sim.results.results import summary
from openmrc.sim.scenario.scenario import Scenario, load
from openmrc.sim.simulate import simulate

Value = str | int | float | bool | None
MOST_POINTS = 1_000_000


class Plot(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Say what the summary plot shows; x and by are varied paths, y a path of the summary."""

    x: str
    y: str = "fct_us.p99"
    by: str = ""  # a line for each of its values


class Sweep(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Hold what a sweep file says."""

    scenario: str  # from the sweep's folder
    vary: Annotated[dict[str, Annotated[list[Any], Meta(min_length=1)]], Meta(min_length=1)]
    plot: Plot | None = None


@dataclass(frozen=True)
class Point:
    """One combination of values."""

    values: dict[str, Any]
    scenario: Scenario
    digest: str

    def result(self, folder: Path) -> Path:
        """Return the file its result lies in, or will."""
        return folder / "points" / f"{self.digest}.json"


def read(path: Path) -> tuple[Sweep, list[Point]]:
    """Read a sweep file and work out its points; every one is checked before any is run."""
    sweep = decode(path, Sweep)
    for name in (sweep.plot.x, sweep.plot.by) if sweep.plot else ():
        if name and name not in sweep.vary:
            raise ConfigError(f"{path}: plot: {name!r} is not varied; varied are {', '.join(sweep.vary)}")
    return sweep, list(_points(sweep, path))


def _points(sweep: Sweep, path: Path) -> Iterator[Point]:
    base = load(path.parent / sweep.scenario)
    whole = json.loads(msgspec.json.encode(base))
    count = 1
    for tried in sweep.vary.values():
        count *= len(tried)
    if count > MOST_POINTS:
        raise ConfigError(f"{path}: vary: {count} combinations, at most {MOST_POINTS}")
    for combination in itertools.product(*sweep.vary.values()):
        values = dict(zip(sweep.vary, combination, strict=True))
        yield _point(whole, values, path)


def _point(whole: dict[str, Any], values: dict[str, Any], path: Path) -> Point:
    changed = json.loads(json.dumps(whole))
    for name, value in values.items():
        _set(changed, name, value, path)
    try:
        scenario = msgspec.convert(changed, Scenario)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: vary: {values}: {error}") from None
    return point_of(scenario, values)


def point_of(scenario: Scenario, values: dict[str, Any]) -> Point:
    """Return a point, named by what determines its result."""
    text = __version__ + json.dumps(msgspec.to_builtins(scenario), sort_keys=True)
    return Point(values, scenario, hashlib.sha256(text.encode()).hexdigest()[:16])


def _set(tree: Any, name: str, value: Any, path: Path) -> None:
    """Set the field at a dotted path; what lies above it must be there."""
    *above, last = name.split(".")
    for step in above:
        if isinstance(tree, dict) and step not in tree:
            tree[step] = {}  # a part that the scenario leaves at its defaults
        tree = _below(tree, step, name, path)
    if isinstance(tree, dict):
        tree[last] = value
    else:
        _below(tree, last, name, path)
        tree[int(last)] = value


def _below(tree: Any, step: str, name: str, path: Path) -> Any:
    if isinstance(tree, Mapping):
        return tree[step]
    if isinstance(tree, list) and step.isdigit() and int(step) < len(tree):
        return tree[int(step)]
    raise ConfigError(f"{path}: vary: {name!r}: the scenario has nothing at {step!r}")


def run_point(encoded: bytes, values: dict[str, Any]) -> dict[str, Any]:
    """Run one point in whatever process this is, and return its result."""
    scenario = msgspec.json.decode(encoded, type=Scenario)
    reported: dict[str, Any] = {"values": values}
    try:
        done = simulate(scenario)
        reported["summary"] = summary(done)
    except ConfigError as error:  # this point cannot be; the others can
        reported["error"] = str(error)
    return reported


def keep(reported: Mapping[str, Any], path: Path) -> None:
    """Write a result under another name, then rename it, so that a file that exists is whole."""
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(reported))
    draft.replace(path)


def flat(reported: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as one row: values varied, and every plain number of the summary by its dotted path."""
    row: dict[str, Any] = {name: value if isinstance(value, (int, float, str)) else json.dumps(value) for name, value in
           reported["values"].items()}  # fmt: skip
    row["error"] = reported.get("error")
    return row | dict(_leaves("", reported.get("summary", {})))


def _leaves(prefix: str, tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(f"{prefix}{name}.", value)
        elif isinstance(value, (int, float, str, bool)) or value is None:
            yield f"{prefix}{name}", value


def written(sweep: Sweep) -> str:
    """Return a sweep as YAML, for a result to name its input."""
    return yaml.safe_dump(msgspec.to_builtins(sweep), sort_keys=False)
