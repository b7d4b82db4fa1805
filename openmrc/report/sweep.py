"""Run all points of a sweep, on this machine or on a Ray cluster, and gather them in one table and one plot."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from openmrc.errors import ConfigError
from openmrc.report import svg
from openmrc.report.page import card, folded, page, rows
from openmrc.report.simulation import figure, number
from openmrc.sim.sweep import Point, Sweep, flat, run_point, written

Told = dict[str, Any]
Notice = Callable[[int, int], None]  # points done, of


def run(points: list[Point], folder: Path, on: str, processes: int, notice: Notice) -> list[Told]:
    """Run the points that have no result yet; return the results of all, in their order."""
    (folder / "points").mkdir(parents=True, exist_ok=True)
    missing = [point for point in points if not point.result(folder).exists()]
    done = len(points) - len(missing)
    notice(done, len(points))
    spread: Iterator[Told] = _on_ray(missing, folder) if on == "ray" else _here(missing, folder, processes)
    for _ in spread:
        done += 1
        notice(done, len(points))
    return [json.loads(point.result(folder).read_text()) for point in points if point.result(folder).exists()]


def _arguments(point: Point, folder: Path) -> tuple[bytes, dict[str, Any], str]:
    return msgspec.json.encode(point.scenario), point.values, str(point.result(folder))


def _here(points: list[Point], folder: Path, processes: int) -> Iterator[Told]:
    # Spawned, not forked: a fork of a process with threads may hang. Few at a time, so that Ctrl-C loses little.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        waiting = list(points)
        running: set[Future[Told]] = set()
        while waiting or running:
            while waiting and len(running) < processes:
                running.add(pool.submit(run_point, *_arguments(waiting.pop(0), folder)))
            ready, running = wait(running, return_when=FIRST_COMPLETED)
            for one in ready:
                yield one.result()


def _on_ray(points: list[Point], folder: Path) -> Iterator[Told]:
    try:
        import ray  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise ConfigError("--on ray: ray is not installed; install openmrc[cluster]") from None
    ray.init(ignore_reinit_error=True, log_to_driver=False)
    remote = ray.remote(_on_worker)
    running = {}
    for point in points:
        encoded, values, target = _arguments(point, folder)
        running[remote.remote(encoded, values)] = target
    while running:
        (ready,), _ = ray.wait(list(running), num_returns=1)
        told = ray.get(ready)
        Path(running.pop(ready)).write_text(json.dumps(told))  # workers need not share our disk
        yield told


def _on_worker(encoded: bytes, values: dict[str, Any]) -> Told:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return run_point(encoded, values, f"{folder}/point.json")


def write(sweep: Sweep, results: list[Told], folder: Path) -> list[str]:
    """Write `results.json`, `results.parquet` and `report.html`; return what could not be, in words."""
    table = [flat(told) for told in results]
    (folder / "results.json").write_text(json.dumps(table, indent=1) + "\n")
    (folder / "report.html").write_text(_page(sweep, results))
    try:
        import polars
    except ImportError:
        return ["no Parquet file: it needs polars; install openmrc[data]"]
    polars.DataFrame(table, infer_schema_length=None).write_parquet(folder / "results.parquet")
    return []


def _page(sweep: Sweep, results: list[Told]) -> str:
    shown = ("fct_us.mean", "fct_us.p99", "last_finish_us", "goodput_gbps.total", "packets.retransmitted")
    header = (*sweep.vary, "finished", *shown)
    body = [_row(sweep, told, shown) for told in results]
    parts = [f"<h1>{len(results)} runs of {sweep.scenario}</h1>"]
    if sweep.plot is not None:
        parts.append(_plot(sweep, results))
    numeric = range(len(sweep.vary), len(header))
    parts += ["<h2>Runs</h2>" + rows(header, body, numeric), folded("The sweep", written(sweep))]
    return page(f"sweep of {sweep.scenario}", parts)


def _row(sweep: Sweep, told: Told, shown: tuple[str, ...]) -> list[str]:
    summary = told.get("summary")
    if summary is None:
        return [*(str(told["values"][name]) for name in sweep.vary), "refused", told["error"], *[""] * (len(shown) - 1)]
    finished = f"{summary['finished']:,} of {summary['flows']:,}"
    return [*(str(told["values"][name]) for name in sweep.vary), finished,
            *(number(figure(summary, name)) for name in shown)]  # fmt: skip


def _plot(sweep: Sweep, results: list[Told]) -> str:
    assert sweep.plot is not None
    plot = sweep.plot
    places, legend = _places(sweep.vary[plot.x])
    lines = []
    for group in sweep.vary[plot.by] if plot.by else [""]:
        mine = [told for told in results if "summary" in told and (not plot.by or told["values"][plot.by] == group)]
        found = [(places[_named(told["values"][plot.x])], figure(told["summary"], plot.y)) for told in mine]
        means = _means([(x, y) for x, y in found if y is not None])
        if len(means[0]):
            lines.append(svg.Line(f"{plot.by} {_named(group)}" if plot.by else plot.y, *means))
    title = f"{plot.y} over {plot.x}"
    note = f"The mean where several runs share x. {legend}".rstrip()
    return card(title, svg.draw(svg.Chart(title, plot.x, plot.y, lines)), note)


def _named(value: Any) -> str:
    """Return a value as a legend has it: words as they are, the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def _places(values: list[Any]) -> tuple[dict[str, float], str]:
    """Return where each value stands on the axis: at itself if all are numbers, else in their order, which is told."""
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return {_named(value): float(value) for value in values}, ""
    places = {_named(value): float(at) for at, value in enumerate(values)}
    return places, f"On the axis: {'; '.join(f'{at:.0f} is {name}' for name, at in places.items())}."


def _means(points: list[tuple[float, float]]) -> tuple[svg.Floats, svg.Floats]:
    xs = sorted({x for x, _ in points})
    return np.array(xs), np.array([np.mean([y for at, y in points if at == x]) for x in xs])


On = Literal["processes", "ray"]
