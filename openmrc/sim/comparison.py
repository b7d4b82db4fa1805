"""Compare scenarios, each with and without its faults: the cost of the faults in GPU time.

GPU time lost is the share of the time with faults by which the same steps take longer than without: every GPU waits for
the slowest, so it is the same for all. A job whose connections end in error does not finish its steps; it has no such
share, and the errors give the reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from openmrc.errors import ConfigError
from openmrc.fabric.model.description import Fabric
from openmrc.sim.scenario.description import Scenario, load
from openmrc.sim.sweep import Point, point_of
from openmrc.sim.workloads.training_step import TrainingStep

Summary = dict[str, Any]


def points_of(files: Sequence[Path]) -> list[Point]:
    """Return two points per scenario: with its faults, and without."""
    made = []
    for file in files:
        scenario = load(file)
        if not any(isinstance(workload, TrainingStep) for workload in scenario.workloads):
            raise ConfigError(
                f"{file}: workloads: no training_step; expected one, because the comparison is of step times"
            )
        if not scenario.faults:
            raise ConfigError(
                f"{file}: faults: none; expected at least one, because the comparison is with and without faults"
            )
        for broken in (True, False):
            wanted = scenario if broken else msgspec.structs.replace(scenario, faults=())
            made.append(point_of(wanted, {"file": str(file), "scenario": scenario.name, "faults": broken}))
    return made


def compared(points: list[Point], results: list[Summary]) -> Summary:
    """Return the comparison of results in the order of their points."""
    for summary in results:
        if "error" in summary:
            raise ConfigError(f"{summary['values']['file']}: {summary['error']}")
    pairs = list(zip(points[::2], results[::2], results[1::2], strict=True))
    rows = [_row(point, broken["summary"], healthy["summary"]) for point, broken, healthy in pairs]
    scenarios = [point.scenario for point, _, _ in pairs]
    return {
        "scenarios": rows,
        "differences": list(_differences(scenarios)),
        "unfinished": sum(row["steps"]["finished"] < row["steps"]["count"] for row in rows),
    }


def _row(point: Point, broken: Summary, healthy: Summary) -> Summary:
    steps, base = broken["step_us"], healthy["step_us"]
    took, needed = float(np.sum(steps["each"])), float(np.sum(base["each"]))
    whole = steps["finished"] == steps["count"] == base["finished"]
    return {
        "name": point.scenario.name,
        "transport": broken["transport"],
        "hosts": broken["hosts"],
        "planes": broken["planes"],
        "steps": {name: steps[name] for name in ("count", "finished", "mean", "p50", "p99", "max", "each")},
        "without_faults": {name: base[name] for name in ("count", "finished", "mean", "p50", "p99", "max")},
        "gpu_time_lost_percent": round(100 * (1 - needed / took), 3) if whole else None,
        "job": broken["job"],
        "lost_on_links": broken["packets"]["lost_on_links"],
        "retransmitted": broken["packets"]["retransmitted"],
        "errors": broken["errors"],
        "failed": broken["failed"],
        "wall_s": [broken["wall_s"], healthy["wall_s"]],
    }


def _differences(scenarios: list[Scenario]) -> Iterator[str]:
    """Yield the differences between scenarios that a comparison should not have."""
    fabrics = [scenario.fabric for scenario in scenarios if isinstance(scenario.fabric, Fabric)]
    alike: dict[str, list[Any]] = {
        "seed": [scenario.seed for scenario in scenarios],
        "NICs": [each.hosts.count * each.hosts.nics if each.hosts is not None else 0 for each in fabrics],
        "Gb/s of a NIC": [sum(plane.host_gbps for plane in each.planes_one_by_one()) for each in fabrics],
        "workloads": [msgspec.json.encode(scenario.workloads) for scenario in scenarios],
        "times of faults": [sorted({_times(step) for step in scenario.faults}) for scenario in scenarios],
        "cost of a restart": [scenario.restart for scenario in scenarios],
        "mtu": [scenario.transport.mtu for scenario in scenarios],
    }
    for what, values in alike.items():
        if any(value != values[0] for value in values):
            shown = [str(value) for value in values if isinstance(value, (int, float))]
            yield what + (f": {', '.join(shown)}" if shown else "")


def _times(step: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(step.get(word, "")) for word in ("at", "for", "every", "times"))
