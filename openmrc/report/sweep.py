"""The results of a sweep as a table, a plot and a page; the page of a comparison: scenarios with and without faults."""

import itertools
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from openmrc.core.arrays import Floats
from openmrc.report import svg
from openmrc.report.page import card, folded, page, rows, tile
from openmrc.report.simulation import figure, number
from openmrc.report.svg import Chart, Curve
from openmrc.report.terminal import compared, errors
from openmrc.sim.sweep import Sweep, flat, unknown_names, written

_KNOWN: dict[str, str] = tomllib.loads(Path(__file__).with_name("figures.toml").read_text("utf-8"))
_UNITS = {"us": "us", "ms": "ms", "s": "s", "gbps": "Gb/s", "mb": "MB", "percent": "%", "bdp": "BDP", "bytes": "bytes",
          "kb": "kB", "ns": "ns"}  # fmt: skip
_PERCENTILE = re.compile(r"p\d+|mean|max|min")
_OF_STEPS = ("step_us.mean", "step_us.p99", "packets.retransmitted", "packets.trimmed", "packets.dropped")
_USUAL = ("fct_us.mean", "fct_us.p99", "last_finish_us", "goodput_gbps.total", "packets.retransmitted")
Summary = dict[str, Any]
FEW_STEPS = 50  # steps of a comparison; fewer are drawn as dots
POWER = 1.8  # from here on the ratio of varied values makes an axis of powers


def of_path(path: str, names: Mapping[str, str] | None = None) -> str:
    """Return the display name of a dotted path: `fct_us.p99` is "completion time, p99 (us)"."""
    if names and path in names:
        return names[path]
    for length in range(len(path), 0, -1):
        known = _KNOWN.get(path[:length])
        if known is not None and path[length : length + 1] in ("", "."):
            return _joined(known, path[length + 1 :])
    part, _, rest = path.partition(".")
    index, _, below = rest.partition(".")
    if part in ("workloads", "faults", "marks_us") and index.isdigit():
        return f"{part.rstrip('s')} {int(index) + 1}" + (f": {of_path(below)}" if below else "")
    return _plain(path.removeprefix("transport.settings.").removeprefix("transport."))


def _joined(known: str, rest: str) -> str:
    if not rest:
        return known
    name, found, unit = known.partition(" (")
    words = rest.replace(".", " ").replace("_", " ")
    separator = ", " if _PERCENTILE.fullmatch(rest) else " "
    return f"{name}{separator}{words}{found}{unit}"


def _plain(path: str) -> str:
    words = path.replace(".", " ").split("_")
    unit = _UNITS.get(words[-1].split(" ")[0]) if len(words) > 1 else None
    if unit is None:
        return " ".join(words)
    tail = words[-1].split(" ")[1:]
    return " ".join([*words[:-1], *tail]) + f" ({unit})"


def of_value(value: Any) -> str:
    """Return a value as text for a table or legend: `roce, qps 8` for a transport, `none` for no faults."""
    if value is None or value == [] or value == {}:
        return "none"
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(_pair(key, inner) for key, inner in value.items())
    if isinstance(value, list):
        return "; ".join(of_value(each) for each in value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else json.dumps(value)


def _pair(key: str, value: Any) -> str:
    if key in ("name", "kind"):
        return str(value)
    if isinstance(value, Mapping):
        return of_value(value)
    return f"{key.replace('_', ' ')} {of_value(value)}"


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
    header = [of_path(name, sweep.names) or "scenario" for name in (*varied, "finished", *shown)]
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
    values = [of_value(point["values"][name]) for name in varied]
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
        parts.append(card(*_drawn(sweep, results)))
    first = header.index(of_path("finished"))
    parts += ["<h2>Runs</h2>" + rows(header, body, range(first, len(header)))]
    parts += [folded("The sweep", written(sweep))]
    return page(title, parts)


def _drawn(sweep: Sweep, results: list[Summary]) -> tuple[str, str, str]:
    """Return the title of the chart, the chart and a note: bars for names alone, else lines."""
    assert sweep.plot is not None
    plot, tried = sweep.plot, sweep.fields
    places, names = _axis(tried[plot.x])
    x_label, y_label = (of_path(name, sweep.names) or "scenario" for name in (plot.x, plot.y))
    lines = []
    for group in tried[plot.by] if plot.by else [""]:
        mine = [point for point in results if "summary" in point and (not plot.by or point["values"][plot.by] == group)]
        found = [(places[_key(point["values"][plot.x])], figure(point["summary"], plot.y)) for point in mine]
        means = _means([(x, y) for x, y in found if y is not None])
        if len(means[0]):
            label = f"{of_path(plot.by, sweep.names)} {of_value(group)}".strip() if plot.by else y_label
            lines.append(svg.Curve(label, *means))
    title = f"{y_label} over {x_label}"
    shared = len({_key(point["values"][plot.x]) for point in results}) < len(results) // max(1, len(lines))
    note = "Each point is the mean of the runs with the same values." if shared else ""
    if names and not plot.by and not _are_numbers(tried[plot.x]) and lines:
        values = [(names[at], float(value)) for at, value in zip(lines[0].x, lines[0].y, strict=True)]
        return title, svg.bars(title, y_label, values, ""), note
    drawn = svg.draw(svg.Chart(title, x_label, y_label, lines, legend=bool(plot.by), dots=True, names=names))
    return title, drawn, note


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _are_numbers(values: list[Any]) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _are_powers(values: list[Any]) -> bool:
    """Return whether each number is at least POWER times the one before, as in 8, 16, 32."""
    return len(values) > 2 and values[0] > 0 and all(b >= POWER * a for a, b in itertools.pairwise(values))


def _axis(values: list[Any]) -> tuple[dict[str, float], dict[float, str]]:
    """Return the position of each value on the axis: numbers at themselves, others at their index, with labels.

    Powers such as 8, 16, 32 are equally far apart, or the first would collide.
    """
    if _are_numbers(values) and not _are_powers(values):
        return {_key(value): float(value) for value in values}, {}
    indices = {float(at): value for at, value in enumerate(values)}
    return {_key(value): at for at, value in indices.items()}, {at: of_value(each) for at, each in indices.items()}


def _means(points: list[tuple[float, float]]) -> tuple[Floats, Floats]:
    xs = sorted({x for x, _ in points})
    return np.array(xs), np.array([np.mean([y for at, y in points if at == x]) for x in xs])


def comparison_page(result: Summary) -> str:
    names = [row["name"] for row in result["scenarios"]]
    return page(" and ".join(names), _compared(result, names))


def _compared(result: Summary, names: list[str]) -> Iterator[str]:
    scenarios = result["scenarios"]
    yield f"<h1>{escape(' and '.join(names))}</h1>"
    yield '<p class="lead">Each scenario with its faults and without them.</p>'
    yield f'<div class="tiles">{"".join(_tile(row) for row in scenarios)}</div>'
    for difference in result["differences"]:
        yield f'<p class="bad">differs: {escape(difference)}</p>'
    yield f'<div class="charts">{"".join(_charts(scenarios))}</div>'
    cells = [(name, *values) for name, values in compared(scenarios)]
    yield "<h2>Side by side</h2>" + rows(("", *names), cells, range(1, 1 + len(names)))
    for row in scenarios:
        for problem in errors(row):
            yield f'<p class="bad">{escape(row["name"])}: {escape(problem)}</p>'


def _tile(row: Summary) -> str:
    lost = row["gpu_time_lost_percent"]
    value = f"{lost:.2f} %" if lost is not None else "job not finished"
    note = f"{row['transport']}, {row['planes']} plane{'s' * (row['planes'] != 1)}, {row['hosts']:,} NICs"
    return tile(f"GPU time lost: {row['name']}", value, note, "" if lost is not None else "bad")


def _charts(scenarios: list[Summary]) -> Iterator[str]:
    each = [np.array(row["steps"]["each"], np.float64) for row in scenarios]
    lines = [
        Curve(row["name"], np.arange(1.0, len(times) + 1), times) for row, times in zip(scenarios, each, strict=True)
    ]
    few = all(len(times) <= FEW_STEPS for times in each)
    chart = Chart("Step times", "step number", "step time with faults, us", lines, legend=True, dots=few)
    yield card("Step times with faults", svg.draw(chart), "A step ends with its slowest host.")
    spread = [_spread(row["name"], times) for row, times in zip(scenarios, each, strict=True) if len(times)]
    drawn = svg.draw(Chart("Spread", "step time, us", "share of steps", spread, steps=True, legend=True))
    yield card("Distribution of step times", drawn, "Share of steps that took at most this time.")
    means = [
        (f"{row['name']}{way}", float(values["mean"]))
        for row in scenarios
        for way, values in ((", faults", row["steps"]), (", none", row["without_faults"]))
        if values["mean"] is not None
    ]
    yield card("Mean step time", svg.bars("Mean step time", "us", means, "us"), _shares(scenarios))


def _spread(name: str, times: Floats) -> Curve:
    ordered = np.sort(times)
    return Curve(name, np.concatenate([ordered[:1], ordered]), np.arange(len(ordered) + 1) / len(ordered))


def _shares(scenarios: list[Summary]) -> str:
    return "; ".join(
        f"{row['name']}: {number(row['steps']['mean'])} us with faults, {number(row['without_faults']['mean'])} without"
        for row in scenarios
    )
