"""Run all points of a sweep, on this machine or on a Ray cluster, and collect the results in a table and a plot."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from html import escape
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from openmrc.base import cluster
from openmrc.core.arrays import Floats
from openmrc.errors import MrcError
from openmrc.report import svg, words
from openmrc.report.page import card, folded, page, rows
from openmrc.report.simulation import figure, number
from openmrc.sim.simulate import Status
from openmrc.sim.sweep import Point, Sweep, flat, keep, refuse_plot, run_point, unknown_names, warm, written

_OF_STEPS = ("step_us.mean", "step_us.p99", "packets.retransmitted", "packets.trimmed", "packets.dropped")
_USUAL = ("fct_us.mean", "fct_us.p99", "last_finish_us", "goodput_gbps.total", "packets.retransmitted")
Summary = dict[str, Any]
Done = tuple[Point, Summary]
OnPoint = Callable[[int, int, list[float]], None]  # points done, points, shares done of those that run

POWER = 1.8  # from here on the ratio of varied values makes an axis of powers
PROGRESS_S = 10.0  # wall time between two reports of points that run
_shares: Any = None  # in a worker: the share done of each point of this call


def run(
    points: list[Point], folder: Path, on: str, processes: int, on_point: OnPoint, sweep: Sweep | None = None
) -> list[Summary]:
    """Run the points without a result; return the results of all points, in their order.

    KeyboardInterrupt keeps complete results for the next call. If `sweep` plots a figure that summaries do not have,
    the first result raises ConfigError.
    """
    (folder / "points").mkdir(parents=True, exist_ok=True)
    missing = [point for point in points if not point.result(folder).exists()]
    done = len(points) - len(missing)
    on_point(done, len(points), [])
    finished = _results(missing, on, processes, lambda shares: on_point(done, len(points), shares))
    with closing(finished):  # an early end terminates the runs in progress
        for point, result in finished:
            if result.get("summary", {}).get("interrupted"):
                raise KeyboardInterrupt  # in the worker; the point has no result yet
            keep(result, point.result(folder))
            if sweep is not None and "summary" in result:
                refuse_plot(sweep, result["summary"])
            done += 1
            on_point(done, len(points), [])
    return [json.loads(point.result(folder).read_text()) for point in points]


def count_done(points: list[Point], folder: Path) -> int:
    """Return the number of points that have a result."""
    return sum(point.result(folder).exists() for point in points)


def _arguments(point: Point) -> tuple[bytes, dict[str, Any]]:
    return msgspec.json.encode(point.scenario), point.values


def _results(
    points: list[Point], on: str, processes: int, on_shares: Callable[[list[float]], None]
) -> Generator[Done, None, None]:
    """Yield results from a Ray cluster, from local processes, or from this process ("inline")."""
    if on == "ray":
        return _on_ray(points, on_shares)
    return _in_processes(points, processes, on_shares) if on == "processes" else _inline(points)


def _inline(points: list[Point]) -> Generator[Done, None, None]:
    for point in points:
        yield point, run_point(*_arguments(point))


def _in_processes(
    points: list[Point], processes: int, on_shares: Callable[[list[float]], None]
) -> Generator[Done, None, None]:
    # Spawned, not forked: a fork of a process with threads may hang. Submitted one by one, so that few are lost.
    context = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    shares = context.Array("d", len(points), lock=False)
    with ProcessPoolExecutor(processes, context, initializer=_prepare_worker, initargs=(shares,)) as pool:
        waiting = list(enumerate(points))
        running: dict[Future[Summary], int] = {}
        try:
            _compile(pool, points)
            while waiting or running:
                while waiting and len(running) < processes:
                    number, point = waiting.pop(0)
                    running[pool.submit(_run_point, number, *_arguments(point))] = number
                ended = wait(running, timeout=PROGRESS_S, return_when=FIRST_COMPLETED).done
                for one in ended:
                    yield points[running.pop(one)], one.result()
                if not ended:
                    on_shares([shares[number] for number in running.values()])
        except BrokenProcessPool:
            raise MrcError(
                "a worker process was killed, probably for lack of memory; the points done are kept, and the same "
                "command runs the others (--processes 1 runs one at a time)"
            ) from None
        except BaseException:
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()  # leaving the pool would wait for results that are discarded
            raise


def _compile(pool: ProcessPoolExecutor, points: list[Point]) -> None:
    """Compile each transport in one process before all of them need it; cached code takes no time."""
    names = dict.fromkeys(point.scenario.transport.name for point in points)
    for made in [pool.submit(warm, name) for name in names]:
        made.result()


def _prepare_worker(shares: Any) -> None:
    """Ignore Ctrl-C, which a terminal sends to every process: the parent ends the workers. Keep the table of shares."""
    global _shares
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _shares = shares


def _run_point(number: int, encoded: bytes, values: dict[str, Any]) -> Summary:
    """Run one point in a worker, and write the share done where the parent reads it."""

    def publish(status: Status) -> None:
        _shares[number] = min(1.0, max(status.share, status.finished / max(1, status.of)))

    return run_point(encoded, values, publish)


def _on_ray(points: list[Point], on_shares: Callable[[list[float]], None]) -> Generator[Done, None, None]:
    ray = cluster.connect()
    try:
        for name in dict.fromkeys(point.scenario.transport.name for point in points):
            ray.get(ray.remote(warm).remote(name))  # compiled first, at least on this node
        remote = ray.remote(run_point)
        running = {remote.remote(*_arguments(point)): point for point in points}
        while running:
            ready, _ = ray.wait(list(running), num_returns=1, timeout=PROGRESS_S)
            for one in ready:
                yield running.pop(one), ray.get(one)
            if not ready:
                on_shares([])
    except ray.exceptions.RayError as error:  # Ray has run the task again three times before
        raise cluster.given_up(error, "the points done are kept, and the same command runs the others") from None


def write(sweep: Sweep, results: list[Summary], folder: Path, title: str = "", lead: str = "") -> list[str]:
    """Write `results.json`, `results.parquet` and `report.html`; return warnings: unknown names, files not written."""
    table = [flat(point) for point in results]
    (folder / "results.json").write_text(json.dumps(table, indent=1) + "\n")
    (folder / "report.html").write_text(_page(sweep, results, title, lead))
    if sweep.plot is not None:
        name, drawn, _ = _drawn(sweep, results)
        (folder / "chart.svg").write_text(svg.standalone(drawn, title or name))
    warnings = unknown_names(sweep, [point["summary"] for point in results if "summary" in point])
    try:
        import polars
    except ImportError:
        return [*warnings, "no Parquet file: polars is not installed: pip install polars"]
    polars.DataFrame(table, infer_schema_length=None).write_parquet(folder / "results.parquet")
    return warnings


def table(sweep: Sweep, results: list[Summary]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the results: varied fields, then figures."""
    hidden = {name for group in sweep.together if "name" in group for name in group} - {"name"}
    varied = [name for name, values in sweep.fields.items() if len(values) > 1 and name not in hidden]
    varied = varied or list(sweep.fields)
    shown = _figures(sweep, results)
    header = [words.of_path(name, sweep.names) or "scenario" for name in (*varied, "finished", *shown)]
    return header, [_row(point, varied, shown) for point in results]


def refusals(results: list[Summary]) -> dict[str, int]:
    """Return the number of refused points by reason."""
    return dict(Counter(point["error"] for point in results if "error" in point))


def _figures(sweep: Sweep, results: list[Summary]) -> list[str]:
    """Return the figures of a table: the plotted one, and the usual ones that the runs have."""
    first = [sweep.plot.y] if sweep.plot is not None else []
    summaries = [point["summary"] for point in results if "summary" in point]
    usual = _OF_STEPS if any("step_us" in summary for summary in summaries) else _USUAL
    had = [name for name in usual if any(figure(summary, name) is not None for summary in summaries)]
    return list(dict.fromkeys([*first, *had]))


def _row(point: Summary, varied: list[str], shown: list[str]) -> list[str]:
    values = [words.of_value(point["values"][name]) for name in varied]
    summary = point.get("summary")
    if summary is None:
        return [*values, "refused", *[""] * len(shown)]
    finished = f"{summary['finished']:,} of {summary['flows']:,}"
    return [*values, finished, *(number(figure(summary, name)) for name in shown)]


def _page(sweep: Sweep, results: list[Summary], title: str, lead: str) -> str:
    header, body = table(sweep, results)
    title = title or f"{Path(sweep.scenario).stem}: {len(results)} runs"
    parts = [f"<h1>{escape(title)}</h1>"]
    parts += [f"<p class='lead'>{escape(lead)}</p>"] if lead else []
    parts += [f"<p class='bad'>{count:,} refused: {escape(why)}</p>" for why, count in refusals(results).items()]
    if sweep.plot is not None:
        parts.append(_plot(sweep, results))
    first = header.index(words.of_path("finished"))
    parts += ["<h2>Runs</h2>" + rows(header, body, range(first, len(header)))]
    parts += [folded("The sweep", written(sweep))]
    return page(title, parts)


def _plot(sweep: Sweep, results: list[Summary]) -> str:
    """Return the framed chart."""
    return card(*_drawn(sweep, results))


def _drawn(sweep: Sweep, results: list[Summary]) -> tuple[str, str, str]:
    """Return the title of the chart, the chart and a note: bars for names alone, else lines."""
    assert sweep.plot is not None
    plot, tried = sweep.plot, sweep.fields
    places = _places(tried[plot.x])
    x_label, y_label = (words.of_path(name, sweep.names) or "scenario" for name in (plot.x, plot.y))
    lines = []
    for group in tried[plot.by] if plot.by else [""]:
        mine = [point for point in results if "summary" in point and (not plot.by or point["values"][plot.by] == group)]
        found = [(places[_key(point["values"][plot.x])], figure(point["summary"], plot.y)) for point in mine]
        means = _means([(x, y) for x, y in found if y is not None])
        if len(means[0]):
            label = f"{words.of_path(plot.by, sweep.names)} {words.of_value(group)}".strip() if plot.by else y_label
            lines.append(svg.Curve(label, *means))
    title = f"{y_label} over {x_label}"
    shared = len({_key(point["values"][plot.x]) for point in results}) < len(results) // max(1, len(lines))
    names = _names(tried[plot.x])
    note = "Each point is the mean of the runs with the same values." if shared else ""
    if names and not plot.by and not _are_numbers(tried[plot.x]) and lines:
        values = [(names[at], float(value)) for at, value in zip(lines[0].x, lines[0].y, strict=True)]
        return title, svg.bars(title, y_label, values, ""), note
    drawn = svg.draw(svg.Chart(title, x_label, y_label, lines, legend=bool(plot.by), dots=True, names=names))
    return title, drawn, note


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _names(values: list[Any]) -> dict[float, str]:
    """Return the labels of an axis whose values are not numbers, or are powers."""
    if _are_numbers(values) and not _are_powers(values):
        return {}
    return {float(at): words.of_value(value) for at, value in enumerate(values)}


def _are_numbers(values: list[Any]) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _are_powers(values: list[Any]) -> bool:
    """Return whether each number is at least POWER times the one before, as in 8, 16, 32."""
    return len(values) > 2 and values[0] > 0 and all(b >= POWER * a for a, b in itertools.pairwise(values))


def _places(values: list[Any]) -> dict[str, float]:
    """Return the position of each value on the axis: the value if all are numbers, else its index.

    Powers such as 8, 16, 32 are equally far apart, or the first would collide.
    """
    if _are_numbers(values) and not _are_powers(values):
        return {_key(value): float(value) for value in values}
    return {_key(value): float(at) for at, value in enumerate(values)}


def _means(points: list[tuple[float, float]]) -> tuple[Floats, Floats]:
    xs = sorted({x for x, _ in points})
    return np.array(xs), np.array([np.mean([y for at, y in points if at == x]) for x in xs])
