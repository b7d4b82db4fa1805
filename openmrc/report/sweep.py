"""Run all points of a sweep, on this machine or on a Ray cluster, and gather them in one table and one plot."""

from __future__ import annotations

import json
import multiprocessing
import signal
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from openmrc.errors import ConfigError
from openmrc.report import svg
from openmrc.report.page import card, folded, page, rows
from openmrc.report.simulation import figure, number
from openmrc.sim.sweep import Point, Sweep, flat, keep, run_point, written

Told = dict[str, Any]
Done = tuple[Point, Told]
Notice = Callable[[int, int], None]  # points done, of


def run(points: list[Point], folder: Path, on: str, processes: int, notice: Notice) -> list[Told]:
    """Run the points that have no result yet; return the results of all, in their order.

    KeyboardInterrupt leaves what is done, whole, for the next time.
    """
    (folder / "points").mkdir(parents=True, exist_ok=True)
    missing = [point for point in points if not point.result(folder).exists()]
    done = len(points) - len(missing)
    notice(done, len(points))
    spread = _on_ray(missing) if on == "ray" else _here(missing, processes)
    with closing(spread):  # whatever ends this early ends the runs under way
        for point, result in spread:
            if result.get("summary", {}).get("interrupted"):
                raise KeyboardInterrupt  # where it ran; it is still to be done
            keep(result, point.result(folder))
            done += 1
            notice(done, len(points))
    return [json.loads(point.result(folder).read_text()) for point in points]


def count_done(points: list[Point], folder: Path) -> int:
    """Return how many points have a result."""
    return sum(point.result(folder).exists() for point in points)


def _arguments(point: Point) -> tuple[bytes, dict[str, Any]]:
    return msgspec.json.encode(point.scenario), point.values


def _here(points: list[Point], processes: int) -> Generator[Done, None, None]:
    # Spawned, not forked: a fork of a process with threads may hang. Given out one by one, so that few are lost.
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_leave_signals_to_parent) as pool:
        waiting = list(points)
        running: dict[Future[Told], Point] = {}
        try:
            while waiting or running:
                while waiting and len(running) < processes:
                    point = waiting.pop(0)
                    running[pool.submit(run_point, *_arguments(point))] = point
                for one in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(one), one.result()
        except BaseException:
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()  # leaving the pool would wait for what nobody will keep
            raise


def _leave_signals_to_parent() -> None:
    """Ignore Ctrl-C, which a terminal sends to every process: the one that began the workers ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _on_ray(points: list[Point]) -> Generator[Done, None, None]:
    try:
        import ray  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise ConfigError("--on ray: ray is not installed; install openmrc[cluster]") from None
    ray.init(ignore_reinit_error=True, log_to_driver=False)
    remote = ray.remote(run_point)
    running = {remote.remote(*_arguments(point)): point for point in points}
    while running:
        (ready,), _ = ray.wait(list(running), num_returns=1)
        yield running.pop(ready), ray.get(ready)


def write(sweep: Sweep, results: list[Told], folder: Path) -> list[str]:
    """Write `results.json`, `results.parquet` and `report.html`; return what could not be, in words."""
    table = [flat(point) for point in results]
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
    body = [_row(sweep, point, shown) for point in results]
    parts = [f"<h1>{len(results)} runs of {sweep.scenario}</h1>"]
    if sweep.plot is not None:
        parts.append(_plot(sweep, results))
    numeric = range(len(sweep.vary), len(header))
    parts += ["<h2>Runs</h2>" + rows(header, body, numeric), folded("The sweep", written(sweep))]
    return page(f"sweep of {sweep.scenario}", parts)


def _row(sweep: Sweep, point: Told, shown: tuple[str, ...]) -> list[str]:
    summary = point.get("summary")
    if summary is None:
        return [
            *(str(point["values"][name]) for name in sweep.vary),
            "refused",
            point["error"],
            *[""] * (len(shown) - 1),
        ]
    finished = f"{summary['finished']:,} of {summary['flows']:,}"
    return [*(str(point["values"][name]) for name in sweep.vary), finished,
            *(number(figure(summary, name)) for name in shown)]  # fmt: skip


def _plot(sweep: Sweep, results: list[Told]) -> str:
    assert sweep.plot is not None
    plot = sweep.plot
    places, legend = _places(sweep.vary[plot.x])
    lines = []
    for group in sweep.vary[plot.by] if plot.by else [""]:
        mine = [point for point in results if "summary" in point and (not plot.by or point["values"][plot.by] == group)]
        found = [(places[_named(point["values"][plot.x])], figure(point["summary"], plot.y)) for point in mine]
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
