"""The one-file HTML report of a simulated run."""

import json
from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

from openmrc.report import curves, svg
from openmrc.report.links import closeups, link_maps
from openmrc.report.page import card, contents, folded, page, rows, section, tile
from openmrc.report.svg import Band, Chart, Curve, Mark
from openmrc.sim.results.job import describe
from openmrc.sim.results.summary import SimulationRun
from openmrc.sim.sweep import leaves
from openmrc.units import NEVER, PS_PER_US

MOST_STEPS = 20  # rows of the table of waits
MOST_EVENTS = 40  # rows of the table; a flapping link has thousands of events

_TIME = "simulated time, us"


def report(run: SimulationRun, summary: dict[str, Any], manifest: dict[str, Any]) -> str:
    return page(run.name, _body(run, summary, manifest))


def first_screen(run: SimulationRun, summary: dict[str, Any]) -> str:
    """Return a page of what the report shows first: figures, warnings, and two charts."""
    return page(run.name, [_head(summary, ""), *_overview(run, summary)])


def _body(run: SimulationRun, summary: dict[str, Any], manifest: dict[str, Any]) -> Iterator[str]:
    sections = list(_sections(run, summary, manifest))
    yield _head(summary, manifest.get("scenario", {}).get("description", ""))
    yield contents(name for name, _, _ in sections)
    yield from _overview(run, summary)
    for name, note, inside in sections:
        yield section(name, inside, note)
    yield f"<footer>openmrc {escape(summary['version'])}, seed {summary['seed']}. Runs are reproducible.</footer>"


def _head(summary: dict[str, Any], what: str) -> str:
    planes = f"{summary['planes']} plane{'s' if summary['planes'] != 1 else ''}"
    lead = f"{what + ' ' if what else ''}{summary['hosts']:,} NICs, {planes}, transport {summary['transport']}."
    return f'<h1>{escape(summary["name"])}</h1><p class="lead">{escape(lead)}</p>'


def _overview(run: SimulationRun, summary: dict[str, Any]) -> Iterator[str]:
    yield f'<div class="tiles">{"".join(_tiles(summary))}</div>'
    for warning in summary["warnings"]:
        yield f'<p class="bad">{escape(warning)}</p>'
    yield f'<div class="charts glance">{"".join(_glance(run, summary))}</div>'


def _glance(run: SimulationRun, summary: dict[str, Any]) -> Iterator[str]:
    """Yield the two charts of the first screen: the goodput over time, and steps or flows."""
    yield next(_over_time(run))
    distributions = list(_distributions(run, summary))
    yield distributions[-1] if "step_us" in summary else distributions[0]


def _sections(run: SimulationRun, summary: dict[str, Any], manifest: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the parts below the first screen: title, note, content."""
    if manifest.get("published"):
        yield "Comparison with published figures", "", _published(summary, manifest["published"])
    if run.events:
        yield "Faults", f"{len(run.events):,} events", _events(summary)
    if close := list(closeups(run)):
        yield "Around the faults", f"finer samples around {len(close)} of them", "".join(close)
    yield "Over time", "", f'<div class="charts">{"".join(_over_time(run))}</div>'
    yield "Flows and steps", "", f'<div class="charts">{"".join(_distributions(run, summary))}</div>'
    yield "Workloads", "", _workloads(summary)
    if waits := summary.get("waited_for"):
        yield "What each step waited for", "", _waits(waits)
    yield "Links", "", f'<div class="charts">{"".join(link_maps(run))}</div>'
    if summary["errors"]["queue_pairs"]:
        yield "Connections in error", "", _errors(summary)
    yield "Packets and paths", "", _counters(summary)
    yield "Slowest flows", "", _slowest(summary)
    record = folded("Manifest: seed, versions and the full input", json.dumps(manifest, indent=1))
    yield "Input", "", record + folded("Summary", json.dumps(summary, indent=1))


def _tiles(summary: dict[str, Any]) -> Iterator[str]:
    flows, finished = summary["flows"], summary["finished"]
    yield tile("flows finished", f"{finished:,} of {flows:,}", "", "good" if flows == finished else "bad")
    for name, key, beside in (("completion time", "fct_us", "mean"), ("step time", "step_us", "p50")):
        if took := summary.get(key):
            note = f"{beside} {number(took[beside])}, max {number(took['max'])}"
            yield tile(f"{name}, p99", number(took["p99"], " us"), note)
    if job := summary.get("job"):
        word = "stopped" if job["stopped"] else "finished" if job["finished"] else "unfinished"
        about = describe(job)
        yield tile("job", word, about if about != word else "", "good" if word == "finished" else "bad")
    yield tile("goodput", number(summary["goodput_gbps"]["total"], " Gb/s"), "all finished flows together")
    counts = summary["packets"]
    yield tile("retransmitted", f"{counts['retransmitted']:,}", f"of {counts['new']:,} packets")
    yield tile("trimmed", f"{counts['trimmed']:,}", f"{counts['ecn_marked']:,} marked with ECN")
    yield tile("lost", f"{counts['dropped']:,}", f"{counts['lost_on_links']:,} of them on broken links")
    yield tile("simulated", number(summary["simulated_us"], " us"), f"in {summary['wall_s']:.2f} s of wall time")


def number(value: float | None, unit: str = "") -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}{unit}" if abs(value) >= 10_000 else f"{value:,.4g}{unit}"


def _over_time(run: SimulationRun) -> Iterator[str]:
    marks = [Mark(event.at / PS_PER_US, event.text) for event in run.events[:MOST_EVENTS]]
    shades = curves.outages(run)
    samples = run.samples.overview
    changes = curves.transitions(samples)

    def chart(
        title: str, unit: str, lines: list[Curve], note: str = "", steps: bool = False, band: Band | None = None
    ) -> str:
        legend = band is not None or lines[:1] == changes[:1]
        drawn = svg.draw(Chart(title, _TIME, unit, lines, marks, shades, steps=steps, legend=legend, band=band))
        return card(title, drawn, note)

    planes, band = curves.of_planes(curves.goodput(run, samples))
    note = "Payload that reached NICs, duplicates included."
    if band is not None:
        note += f" Planes below {curves.APART:.0%} of the median are drawn individually, lowest first."
    yield chart("Goodput of each plane", "Gb/s into all NICs", planes, note, band=band)
    note = "Of all ports in the same direction, at each sample."
    yield chart("Longest queue", "us to drain", curves.queues(samples), note)
    yield chart("Trims, drops, losses and marks", "packets per us", curves.rates(samples))
    ends = np.sort(run.results.finished[run.work.moving])
    ends_us = ends[ends < NEVER] / PS_PER_US
    finished = Curve("finished", np.concatenate([[0.0], ends_us]), np.arange(len(ends_us) + 1.0))
    yield chart("Flows finished", "flows", [finished], steps=True)
    for each in curves.WATCHED:
        if lines := curves.watched(run, samples, each):
            yield chart(each.title, each.unit, lines, f"{each.note}; {len(samples.flows)} are in windows.parquet.")
    if changes:
        note = "Entropy values of all queue pairs, cumulative, by the cause of the change."
        yield chart("Paths taken out of use and restored", "changes", changes, note, steps=True)
    out = curves.out_of_use(samples)
    if any(line.y.any() for line in out):
        note = "EVs in ASSUMED_BAD at each sample, of all queue pairs."
        yield chart("Paths out of use", "EVs", out, note, steps=True)


def _distributions(run: SimulationRun, summary: dict[str, Any]) -> Iterator[str]:
    chart = Chart("Flow completion times", "completion time, us", "share of flows", _fct_lines(run), steps=True)
    yield card("Flow completion times", svg.draw(chart), "Finished flows; start to last acknowledgement.")
    planes = [(f"plane {plane}", rate) for plane, rate in enumerate(summary["goodput_gbps"]["plane"])]
    yield card("Goodput by plane", svg.bars("Goodput by plane", "Gb/s", planes, "Gb/s"), "Over the whole run.")
    if "step_us" in summary:
        each = np.array(summary["step_us"]["each"])
        line = Curve("step", np.arange(1.0, len(each) + 1), each)
        drawn = svg.draw(Chart("Step times", "step number", "step time, us", [line], dots=len(each) <= 50))
        yield card("Step times", drawn, "A step ends with its slowest host.")


def _fct_lines(run: SimulationRun) -> list[Curve]:
    lines = []
    for workload, name in enumerate(run.work.names):
        mine = run.work.moving[run.work.workload[run.work.moving] == workload]
        done = mine[run.results.finished[mine] < NEVER]
        times = np.sort(run.results.finished[done] - run.results.started[done]) / PS_PER_US
        if len(times):
            x = np.concatenate([times[:1], times])  # rises from 0, so that a single flow is visible
            lines.append(Curve(name, x, np.arange(len(times) + 1) / len(mine)))
    return lines


def _workloads(summary: dict[str, Any]) -> str:
    header = ("workload", "flows", "finished", "bytes", "FCT mean us", "p50", "p99", "max", "last finish us")
    body = [
        (
            each["name"], f"{each['flows']:,}", f"{each['finished']:,}", f"{each['bytes']:,}",
            *(number(each["fct_us"][name]) for name in ("mean", "p50", "p99", "max")), number(each["last_finish_us"]),
        )
        for each in summary["workloads"]
    ]  # fmt: skip
    return rows(header, body, numeric=range(1, 9))


def _waits(waits: list[dict[str, Any]]) -> str:
    """Return the last flow of each step, the slowest steps first."""
    header = ("step", "duration us", "last host", "behind the median host, us", "last flow", "from", "to", "part",
              "flow duration us", "packets lost, dropped or trimmed on its links", "worst link")  # fmt: skip
    slowest = sorted(waits, key=lambda each: -each["took_us"])[:MOST_STEPS]
    body = [
        (
            str(each["step"]), number(each["took_us"]), each["host"], number(each["behind_us"]), str(each["flow"]),
            each["source"], each["destination"], each["part"], number(each["flow_us"]), f"{each['packets_lost']:,}",
            each["link"] if each["packets_lost"] else "-",
        )
        for each in slowest
    ]  # fmt: skip
    more = f"<p class='lead'>The {MOST_STEPS} slowest of {len(waits):,}.</p>" if len(waits) > MOST_STEPS else ""
    return rows(header, body, numeric=(0, 1, 3, 4, 8, 9)) + more


def _events(summary: dict[str, Any]) -> str:
    shown = summary["events"][:MOST_EVENTS]
    body = [(str(at), number(event["at_us"]), event["what"]) for at, event in enumerate(shown, 1)]
    more = len(summary["events"]) - len(shown)
    note = f"<p class='lead'>and {more:,} more</p>" if more else ""
    return rows(("no.", "at us", "what"), body, numeric=(0, 1)) + note


def _errors(summary: dict[str, Any]) -> str:
    errors = summary["errors"]
    causes = ", ".join(f"{count:,} {cause}" for cause, count in errors["by_cause"].items())
    connections = f"{errors['queue_pairs']:,} connections: {escape(causes)}"
    note = f"<p class='bad'>{connections}; {summary['failed']:,} flows failed</p>"
    body = [
        (
            one["nic"], one["peer"], "" if one["flow"] is None else str(one["flow"]), one["cause"],
            number(one["at_us"]), "" if one["plane"] is None else f"{one['plane']}, {one['ev']}",
            "never" if one["last_progress_us"] is None else number(one["last_progress_us"]),
        )
        for one in errors["first"]
    ]  # fmt: skip
    header = ("at", "peer", "flow", "cause", "at us", "plane, EV of the oldest packet", "peer last heard, us")
    return note + rows(header, body, numeric=(2, 4, 6))


def _counters(summary: dict[str, Any]) -> str:
    body = [(name.replace("_", " "), f"{value:,}") for name, value in summary["packets"].items()]
    body += [(f"longest queue, {tier} links", f"{value:.4g} us") for tier, value in summary["queue_us"].items()]
    body += [
        (f"goodput down {tier} links", f"{rate:.4g} Gb/s") for tier, rate in summary["goodput_gbps"]["tier"].items()
    ]
    more = (
        *leaves("inside scale-up domains: ", summary.get("scale_up", {})),
        *leaves("", summary["transport_counters"]),
    )
    for name, value in more:
        if value is not None:
            text = name.replace("_", " ").replace(".", " ")
            body.append((text, f"{value:,}" if isinstance(value, int) else str(value)))
    return rows(("what", "count"), body, numeric=(1,))


def _slowest(summary: dict[str, Any]) -> str:
    body = [
        (
            str(flow["flow"]), flow["source"], flow["destination"], f"{flow['bytes']:,}", number(flow["start_us"]),
            number(flow["fct_us"]) if flow["fct_us"] is not None else "unfinished",
        )
        for flow in summary["slowest"]
    ]  # fmt: skip
    return rows(("flow", "from", "to", "bytes", "start us", "FCT us"), body, numeric=(0, 3, 4, 5))


def figure(summary: dict[str, Any], path: str) -> float | None:
    """Return the number at a dotted path of the summary, or None."""
    found: Any = summary
    for step in path.split(".") if path else []:
        if isinstance(found, list) and step.isdigit() and int(step) < len(found):
            found = found[int(step)]
        elif isinstance(found, dict) and step in found:
            found = found[step]
        else:
            return None
    return float(found) if isinstance(found, (int, float)) else None


def _published(summary: dict[str, Any], published: list[dict[str, Any]]) -> str:
    body = []
    for each in published:
        ours = figure(summary, each.get("of", ""))
        theirs = each.get("value")
        off = _off(ours, theirs, each.get("within_percent")) if ours is not None and theirs else ""
        text = each.get("words", "")
        body.append((each["what"], number(theirs, f" {each.get('unit', '')}") if theirs is not None else text,
                     number(ours, f" {each.get('unit', '')}"), off, each["source"]))  # fmt: skip
    return rows(("what", "published", "simulated", "difference", "source"), body, numeric=(1, 2, 3))


def _off(ours: float, theirs: float, allowed: float | None) -> str:
    """Return the difference of two figures, and whether it is within the tolerance."""
    percent = 100 * (ours - theirs) / theirs
    verdict = "" if allowed is None else f" (within {allowed:g} %: {'yes' if abs(percent) <= allowed else 'no'})"
    return f"{percent:+.1f} %{verdict}"
