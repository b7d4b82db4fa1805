"""The results folder of a run: summary, manifest, samples and flows as Parquet, and the HTML report.

Each file is written to a temporary name and renamed, so that an existing file is always complete.
"""

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from openmrc.fabric.addressing.usid import identity
from openmrc.report.simulation import report
from openmrc.sim.network.network_tables import Routing
from openmrc.sim.results.captures import Writer
from openmrc.sim.results.summary import SimulationRun
from openmrc.sim.scenario.description import Scenario
from openmrc.sim.sweep import figures, similar
from openmrc.units import NEVER, PS_PER_US
from openmrc.version import __version__
from openmrc.wire.pcapng import PcapngWriter


def write(run: SimulationRun, scenario: Scenario, summary: dict[str, Any], folder: Path) -> list[str]:
    """Write all files; return messages about those that could not be written."""
    folder.mkdir(parents=True, exist_ok=True)
    result = manifest(scenario, run.threads)
    _put(folder / "summary.json", json.dumps(summary, indent=1) + "\n")
    _put(folder / "manifest.json", json.dumps(result, indent=1) + "\n")
    _put(folder / "report.html", report(run, summary, result))
    return _unknown_figures(scenario, summary) + write_tables(run, folder) + write_captures(run, scenario, folder)


def _unknown_figures(scenario: Scenario, summary: dict[str, Any]) -> list[str]:
    """Return a message for each published figure whose simulated counterpart does not exist."""
    known = set(figures(summary))
    return [
        f"published: of: {each.of!r} is not a number of the summary{similar(each.of, known)}"
        for each in scenario.published
        if each.of and each.of not in known
    ]


def manifest(scenario: Scenario, threads: int) -> dict[str, Any]:
    """Return the data that reproduces the run: versions, seed, and the complete input."""
    whole = json.loads(msgspec.json.encode(scenario))
    return {
        "openmrc": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "command": sys.argv,
        "seed": scenario.seed,
        "threads": threads,
        "scenario": whole,
        "published": whole.get("published", []),
    }


def write_tables(run: SimulationRun, folder: Path) -> list[str]:
    """Write samples and flows as Parquet."""
    try:
        import polars
    except ImportError:
        return ["no Parquet files: polars is not installed: pip install polars"]
    polars.DataFrame(sample_columns(run)).write_parquet(folder / "samples.parquet")
    polars.DataFrame(flow_columns(run)).write_parquet(folder / "flows.parquet")
    if run.samples.series:
        polars.DataFrame(path_columns(run)).write_parquet(folder / "paths.parquet")
    if run.samples.windows:
        polars.DataFrame(window_columns(run)).write_parquet(folder / "windows.parquet")
    return []


def write_captures(run: SimulationRun, scenario: Scenario, folder: Path) -> list[str]:
    """Write a capture file for each captured host, one interface per plane; report where a limit was reached."""
    if run.captured is None or scenario.capture is None:
        return []
    notes = []
    by_tables = run.network.routing == Routing.ENTROPY
    made = Writer(run.topology, run.captured, scenario.capture.snaplen, by_tables=by_tables)
    for nic in run.capture.nics:
        name = run.topology.name(nic)
        path = folder / f"{name}.pcapng"
        draft = path.with_name(path.name + ".part")
        with draft.open("wb") as file:
            planes = range(int(run.topology.link_plane.max()) + 1)
            writer = PcapngWriter(file, [f"plane {plane} {identity(plane, nic)}" for plane in planes])
            for frame in made.frames(nic):
                writer.write(frame.plane, frame.time_ns, frame.data, original_length=frame.original_length)
        draft.replace(path)
        beyond = run.captured.taps[nic].passed
        if beyond:
            limit = run.capture.limit
            notes.append(f"{path.name} ends at its limit of {limit:,} packets; {beyond:,} later ones are missing")
    return notes


def sample_columns(run: SimulationRun) -> dict[str, Any]:
    """Return the samples as columns: a row per time, plane and kind of link."""
    samples, groups = run.samples, run.samples.groups
    moments = len(samples.at)
    columns: dict[str, Any] = {
        "at_us": np.repeat(samples.at / PS_PER_US, len(groups)),
        "plane": np.tile(np.array([group.plane for group in groups], np.int32), moments),
        "links": [group.name for group in groups] * moments,
    }
    return columns | {name: values.ravel() for name, values in samples.values.items()}


def path_columns(run: SimulationRun) -> dict[str, Any]:
    """Return the transport's time series over all paths: a row per time."""
    return {"at_us": run.samples.at / PS_PER_US} | run.samples.series


def window_columns(run: SimulationRun) -> dict[str, Any]:
    """Return the windows of the recorded connections: a row per sample and connection."""
    samples, traffic = run.samples, run.work.traffic
    moments, watched = len(samples.at), samples.flows
    columns: dict[str, Any] = {"at_us": np.repeat(samples.at / PS_PER_US, len(watched))}
    for side in ("source", "destination"):
        columns[side] = np.tile(getattr(traffic, side)[watched], moments)
    return columns | {name: values.ravel() for name, values in samples.windows.items()}


def flow_columns(run: SimulationRun) -> dict[str, Any]:
    """Return the flows as columns; a missing time is NaN."""
    flows, traffic, results = run.work.moving, run.work.traffic, run.results
    start, finish = (_us(values[flows]) for values in (results.started, results.finished))
    return {
        "flow": flows,
        "workload": np.array(run.work.names)[run.work.workload[flows]].tolist(),
        "source": traffic.source[flows],
        "destination": traffic.destination[flows],
        "bytes": traffic.size[flows],
        "start_us": start,
        "finish_us": finish,
        "fct_us": finish - start,
    }


def _us(ps: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.where(ps < NEVER, ps / PS_PER_US, np.nan)


def _put(path: Path, text: str) -> None:
    draft = path.with_name(path.name + ".part")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
