"""What was published about MRC, beside what the simulator says: every row, a picture for each, and docs/published.md.

The rows are those of "Resilient AI supercomputer networking using MRC and SRv6" (arXiv 2605.04333); each runs files of
scenarios/paper, with changes where a parameter was never published and its effect is shown.

    python -m bench.sim.published                    all rows, in minutes; prints the table
    python -m bench.sim.published --only incast      rows whose name contains this
    python -m bench.sim.published --write            also into docs/published.md and docs/images/published
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from bench.paper import drawings
from harness import simulated_runs
from harness.finished import all_finished
from harness.page import put
from openmrc.base.amounts import bytes_of
from openmrc.core.rows import column
from openmrc.report import curves, svg
from openmrc.report.svg import Chart, Curve
from openmrc.sim.loop import run as loop
from openmrc.sim.loop.fault_events import FaultKind
from openmrc.sim.results.summary import SimulationRun, summary
from openmrc.sim.scenario.description import Scenario, Transport, load
from openmrc.sim.scenario.transport_options import transport_of
from openmrc.sim.simulate import prepare, simulate, world_of
from openmrc.units import PS_PER_US

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "scenarios" / "paper"
PAGE = ROOT / "docs" / "published.md"
IMAGES = ROOT / "docs" / "images" / "published"

DEEP: dict[str, bool | int | float | str] = {  # shares of 250 KB, the bandwidth-delay product of cluster D
    "ecn_low_bdp": 4,
    "ecn_high_bdp": 20,
    "pause_packets": 2000,
    "resume_packets": 1900,
}
DRAWS = 12  # of ECMP
FLAPS_A_MINUTE = 4.2  # the mean of figure 5
LOOK_US = 50  # between looks at a flow's bytes
LEVEL_US = 8000  # of scenarios/paper/uplinks-down.yaml


@dataclass(frozen=True)
class Rule:
    """What a row's verdict follows from: every value lies between two limits."""

    of: str  # what is judged, as the page names it
    values: Sequence[float]
    low: float = -inf
    high: float = inf

    @property
    def holds(self) -> bool:
        """Whether every value lies within the limits, these included."""
        return all(self.low <= value <= self.high for value in self.values)

    def __str__(self) -> str:
        if self.high == inf:
            return f"{self.of} at least {self.low:g}"
        if self.low == -inf:
            return f"{self.of} at most {self.high:g}"
        return f"{self.of} {self.low:g} to {self.high:g}"


@dataclass
class Row:
    """One line of the table; its verdict is that of its rules."""

    number: str  # of the experiment, in the order of the paper
    what: str
    published: str
    simulated: str
    rules: tuple[Rule, ...]
    why: str = ""
    ratio: float | None = None
    charts: dict[str, Chart] = field(default_factory=dict)  # by file name


def of_file(name: str) -> Scenario:
    """Return a file of scenarios/paper."""
    return load(PAPER / f"{name}.yaml")


def run(name: str, **changes: Any) -> tuple[SimulationRun, dict[str, Any]]:
    """Simulate a file of scenarios/paper, with fields of the scenario changed."""
    return completed(msgspec.structs.replace(of_file(name), **changes))


def completed(scenario: Scenario) -> tuple[SimulationRun, dict[str, Any]]:
    """Simulate a scenario whose flows must all finish."""
    done = simulate(scenario)
    if not done.is_complete:
        raise SystemExit(f"{scenario.name}: not every flow finished")
    return done, summary(done)


def figure(result: dict[str, Any], path: str) -> float:
    """Return a figure of a summary by its dotted path."""
    below: Any = result
    for step in path.split("."):
        below = below[int(step)] if isinstance(below, list) else below[step]
    return float(below)


def workloads(name: str, **changes: Any) -> tuple[Any, ...]:
    """Return the workloads of a file with fields of all of them changed."""
    return tuple(msgspec.structs.replace(work, **changes) for work in of_file(name).workloads)


def fabric(name: str, **changes: dict[str, Any]) -> Any:
    """Return the fabric of a file with fields of the tiers of its one kind of plane changed."""
    whole: Any = of_file(name).fabric
    plane = whole.planes[0]
    tiers = {tier: msgspec.structs.replace(getattr(plane, tier), **fields) for tier, fields in changes.items()}
    return msgspec.structs.replace(whole, planes=(msgspec.structs.replace(plane, **tiers),))


def over_time(done: SimulationRun, label: str = "") -> Curve:
    """Return what all NICs together received (Gb/s) over time (us), duplicates included."""
    planes = curves.goodput(done, done.samples.overview)
    return Curve(label, planes[0].x, np.sum([plane.y for plane in planes], axis=0))


def between(line: Curve, start: float, end: float) -> float:
    """Return the mean of a curve between two moments (us)."""
    return float(line.y[(line.x > start) & (line.x <= end)].mean())


def curve(x: Iterable[float], y: Iterable[float], label: str = "") -> Curve:
    return Curve(label, np.array(list(x), float), np.array(list(y), float))


def listed(values: Iterable[float], places: Iterable[Any], unit: str, digits: int = 0) -> str:
    """Return such as `5 at 1 MiB, 7 at 4 MiB`."""
    return ", ".join(f"{value:.{digits}f} at {place} {unit}" for value, place in zip(values, places, strict=True))


# The experiments. Each yields its rows.


def point_to_point() -> Iterator[Row]:
    sizes, qps = (1, 2, 4, 8, 16, 32), 4
    result = [run("point-to-point", workloads=workloads("point-to-point", size=f"{size}MiB"))[1] for size in sizes]
    names = ("T0-local", "cross-T1")
    ends = [
        [max(each["last_finish_us"] for each in one["workloads"][qps * at : qps * (at + 1)]) for one in result]
        for at in range(2)
    ]
    kbits = [8 * qps * size * 2**20 / 1e3 for size in sizes]
    lines = [
        curve((qps * size for size in sizes), (amount / end for amount, end in zip(kbits, mine, strict=True)), name)
        for mine, name in zip(ends, names, strict=True)
    ]
    chart = Chart("One pair alone", "MiB written", "Gb/s", lines)
    for at, name in enumerate(names):
        rate = (kbits[-1] - kbits[-2]) / (ends[at][-1] - ends[at][-2])
        why = "32 KiB writes back to back, four queue pairs: the second half of 128 MiB; 769 remain without headers"
        yield Row(str(at + 1), f"rate, {name}", "about 770 Gb/s", f"{rate:.0f} Gb/s",
              (Rule("ratio", [rate / 770], 0.98, 1.02),), why,
                  rate / 770, {} if at else {"point-to-point": chart})  # fmt: skip


def latency() -> Iterator[Row]:
    def added(result: dict[str, Any]) -> float:
        return (figure(result, "workloads.1.fct_us.mean") - figure(result, "workloads.0.fct_us.mean")) / 2

    tried = (0, 300, 600, 900)
    found = [
        added(run("latency", fabric=fabric("latency", t0={"switch_ns": at}, t1={"switch_ns": at}))[1]) for at in tried
    ]
    ours = added(run("latency")[1])
    lines = [curve(tried, found, "simulated"), curve(tried, [1.45] * 4, "published")]
    chart = Chart("What T1 adds to 2 bytes, one way", "forwarding latency of a switch, ns (default 600)", "us", lines)
    why = (
        "hosts add no delay in the model, so only the difference is comparable. It is the latency of switches and "
        f"cables, which was not published: {listed(found, tried, 'ns a switch', 2)}"
    )
    yield Row("1-2", "what T1 adds to 2 bytes, one way", "1.45 us (6.54 - 5.09)", f"{ours:.2f} us",
              (Rule("ratio", [ours / 1.45], 0.9, 1.1),), why, ours / 1.45, {"latency": chart})  # fmt: skip


def cold_start() -> Iterator[Row]:
    def lost(**changes: Any) -> float:
        return figure(run("cold-start", **changes)[1], "packets.retransmitted_per_flow")

    def silent(cables: int) -> tuple[Any, ...]:
        planes = [cables // 4 + (plane < cables % 4) for plane in range(4)]
        return tuple(
            {"loss": "100%", "on": f"{many} random links of plane {plane}"} for plane, many in enumerate(planes) if many
        )

    cables = (1, 2, 4, 8, 16)
    found = [lost(faults=silent(many)) for many in cables]
    ours = lost()
    shares = [round(100 * many / 512, 1) for many in cables]
    lines = [curve(shares, found, "simulated"), curve(shares, [5] * 5, "published: fewer than")]
    chart = Chart("Cold start", "silent T0-T1 cables, % of all", "data packets lost a queue pair", lines)
    why = (
        "with 0.4 % of the T0-T1 cables losing everything. That share was not published, and the figure depends on it: "
        f"{listed(found, shares, '%', 1)}. One loss retires an EV, but some two more packets are on it by then"
    )
    yield Row("4", "data packets lost a queue pair", "fewer than 5", f"{ours:.1f}",
              (Rule("packets", [ours], high=5),), why,
              charts={"cold-start": chart})  # fmt: skip


def link_flaps() -> Iterator[Row]:
    whole = of_file("link-flaps")
    usual, _ = flapping(msgspec.structs.replace(whole, faults=()))
    took, lost = flapping(whole)
    tried = ("500us", "1ms", "2ms")
    steps = [
        took
        if long == "1ms"
        else flapping(msgspec.structs.replace(whole, faults=tuple(fault | {"for": long} for fault in whole.faults)))[0]
        for long in tried
    ]
    job: Any = whole.workloads[0]
    costs = [job.steps * (step - usual) / len(lost) for step in steps]  # us a flap
    longer = 100 * max(costs) / (60e6 / FLAPS_A_MINUTE)
    some = lost[lost > 0]
    counts = np.arange(1, 1 + int(some.max()))
    shares = [100 * float((some == count).mean()) for count in counts]
    chart = Chart("Flaps of cables between T0 and T1", "data packets lost a queue pair and flap",
                  "% of the queue pairs that lose any", [curve(counts, shares, "simulated")])  # fmt: skip
    why = (
        f"{len(lost)} flaps, by each of which {100 * float((lost > 0).mean()):.1f} % of the queue pairs lose any: "
        f"{shares[0]:.0f} % of these one packet, {100 * float((some <= 5).mean()):.0f} % at most five. How fast they "
        "sent was not published; faster ones send more over the cable before the first report of a loss"
    )
    yield Row("5, text", "data packets that a queue pair loses by a flap, if any", "a few, often one",
              f"{np.median(some):g} in the median, {some.mean():.1f} in the mean",
              (Rule("median", [float(np.median(some))], high=1), Rule("mean", [float(some.mean())], high=5)), why,
              charts={"link-flaps": chart})  # fmt: skip
    yield Row("5, text", "how much longer a job takes while cables flap", "almost no effect", f"{longer:.4f} %",
              (Rule("longer, %,", [longer], high=1),),
              f"at {FLAPS_A_MINUTE} flaps a minute (figure 5), each of which costs the job at most {max(costs):.0f} us "
              f"here, in steps of {usual:.0f} us: {listed(costs, tried, 'of outage')}. Here one comes each ms, and a "
              f"step takes {100 * (took / usual - 1):.1f} % longer")  # fmt: skip


def flapping(scenario: Scenario) -> tuple[float, NDArray[np.int64]]:
    """Return a step's mean length (us) and, from one outage's begin to the next's, the packets that QPs sent again."""
    prepared = prepare(scenario)
    faults = prepared.faults
    begins = np.unique(faults.at[(faults.kind == FaultKind.LINK_DOWN) & (faults.value == 1)])
    again: list[NDArray[np.int64]] = []
    transport = transport_of(scenario.transport, prepared.topology)
    world = world_of(scenario, prepared, transport)

    def look(world: loop.World) -> None:
        if len(again) < len(begins) and world.now >= begins[len(again)]:
            again.append(column(world.state.engine.qps, "retransmitted").copy())

    done = loop.finish(world, transport, observe=look)
    all_finished(scenario.name, done.finished)
    again.append(column(world.state.engine.qps, "retransmitted").copy())
    job: Any = scenario.workloads[0]
    return int(done.finished.max()) / PS_PER_US / job.steps, np.diff(again, axis=0)


def links_down() -> Iterator[Row]:
    line = over_time(run("t0-t1-links-down")[0])
    paper = published_line("fig09c_t0t1_links_down")
    steady = paper.y[(paper.x > 1) & (paper.x < paper.x.max() - 1)]
    steps = np.array([between(line, 100 * at + 10, 100 * at + 100) for at in range(21)])
    chart = Chart("Figure 9c: twenty of a T0's T0-T1 cables down, one by one", "share of the experiment", "Gb/s", [
        Curve("arXiv 2605.04333", paper.x / paper.x.max(), paper.y), Curve("simulated", line.x / line.x.max(), line.y),
    ])  # fmt: skip
    yield Row("9c", "two-way pair while 20 T0-T1 cables go down",
              f"{steady.mean():.0f} Gb/s, at least {steady.min():.0f}",
              f"{steps.mean():.0f} Gb/s, at least {steps.min():.0f}",
              (Rule("ratio", [float(steps.mean() / steady.mean())], 0.9, 1.1),
               Rule("least step of the first, %,", [float(100 * steps.min() / steps[0])], 97)),
              "32 uplinks a plane: nothing falls, because MRC leaves each cable at its first loss. A cable each 100 us "
              "here, each second there", float(steps.mean() / steady.mean()), {"links-down": chart})  # fmt: skip


def incast() -> Iterator[Row]:
    cases = (
        ("18a", "RoCEv2 with DCQCN, 1 queue pair", Transport(name="roce", qps=1), 1),
        ("18b", "RoCEv2 with DCQCN, 8 queue pairs", Transport(name="roce", qps=8), 1),
        ("18c", "MRC, 1 queue pair", Transport(), 1),
        ("21a", "MRC, 8 queue pairs", Transport(), 8),
        ("21b", "RoCEv2 with PFC alone, 1 queue pair", Transport(name="roce", qps=1, settings={"dcqcn": False}), 1),
        ("21c", "RoCEv2 with PFC alone, 8 queue pairs", Transport(name="roce", qps=8, settings={"dcqcn": False}), 1),
    )
    for number, label, transport, pairs in cases:
        paper = published_flows(number)
        seeds = range(1, 1 + (DRAWS if transport.name == "roce" else 3))
        found = np.array([incast_rates(transport, seed, pairs) for seed in seeds])  # the sum, seven flows, the victim
        mean, theirs = float(found[:, -1].mean()), paper["victim"]
        others = [rate for flow, rate in paper.items() if flow != "victim"]
        chart = Chart(f"Figure {number}: {label}", "flows, slowest first, the victim last", "Gb/s", [
            curve(range(1, 9), [*sorted(others), theirs], "arXiv 2605.04333"),
            curve(range(1, 9), [*np.sort(found[:, 1:-1]).mean(axis=0), mean], f"simulated, mean of {len(seeds)} seeds"),
        ])  # fmt: skip
        why = f"the seven share {found[:, 0].mean():.0f} Gb/s (published {sum(others):.0f})"
        if transport.name == "roce":
            near = int((np.abs(found[:, -1] / theirs - 1) <= 0.1).sum())
            low, high = found[:, -1].min(), found[:, -1].max()
            why += (
                ". ECMP draws the uplinks on which the victim meets the incast, and the published run is one draw: "
                f"{near} of {len(seeds)} here are within 10 % of it, and it lies "
                f"{'inside' if low <= theirs <= high else 'outside'} their range"
            )
        yield Row(number, f"victim of a 7-to-1 incast, {label}", f"{theirs:.0f} Gb/s",
                  f"{mean:.0f} Gb/s ({', '.join(f'{rate:.0f}' for rate in np.sort(found[:, -1]))})",
                  (Rule("ratio", [mean / theirs], 0.9, 1.1),), why, mean / theirs,
                  {f"figure-{number}": chart})  # fmt: skip


def permutation() -> Iterator[Row]:
    pfc: dict[str, bool | int | float | str] = {"dcqcn": False}
    cases = (
        ("20a", "RoCEv2 with PFC alone, 1 queue pair", Transport(name="roce", qps=1, settings=pfc)),
        ("20b", "RoCEv2 with PFC alone, 8 queue pairs", Transport(name="roce", qps=8, settings=pfc)),
        ("20c", "RoCEv2 with DCQCN, 8 queue pairs", Transport(name="roce", qps=8)),
        ("20c", "the same, ECN from 1 to 5 MB", Transport(name="roce", qps=8, settings=DEEP)),
        ("20, text", "MRC, 1 queue pair", Transport()),
    )
    seeds = range(1, 7)
    for number, label, transport in cases:
        paper = list(published_flows(number).values()) or [390.0] * 8
        found = np.sort([full_load_rates(transport, seed) for seed in seeds])
        mean, theirs = float(found.mean()), float(np.mean(paper))
        chart = Chart(f"Figure {number}: {label}", "flows, slowest first", "Gb/s", [
            curve(range(1, 9), sorted(paper), "arXiv 2605.04333"),
            curve(range(1, 9), found.mean(axis=0), "simulated, mean of six seeds"),
        ])  # fmt: skip
        why = f"means of the seeds: {', '.join(f'{rate:.0f}' for rate in np.sort(found.mean(axis=1)))}"
        if "ECN" in label:
            why += (
                ". Where figure 22a has the queue of the default profile; otherwise marks begin at 0.05 MB, as in UEC"
            )
        rules = (Rule("ratio", [mean / theirs], 0.9, 1.1),)
        if number == "20a":
            shares = [float(min(abs(392 / many - rate) / rate for many in range(1, 9))) for rate in found.ravel()]
            rules = (Rule("distance from a whole part of the line, %,", [100 * max(shares)], high=5),)
            why += ". A flow alone on its uplink has the line, two or three on one a half or a third: which, ECMP draws"
        charts = {} if "ECN" in label else {f"figure-{number[:3].strip(',')}": chart}
        yield Row(number, f"mean of eight flows over all uplinks, {label}", f"{theirs:.0f} Gb/s", f"{mean:.0f} Gb/s",
                  rules, why, mean / theirs, charts)  # fmt: skip


def uplinks() -> Iterator[Row]:
    whole: Any = of_file("uplinks-down")
    slow = fabric("uplinks-down", t0={"up_gbps": 100})
    cases: tuple[tuple[str, str, str, str, dict[str, Any], tuple[float, ...]], ...] = (
        ("19a", "three of four uplinks of 400G gone, one by one", "fig19a_thor_links_down_400", "1440MiB",
         {"faults": whole.faults[:3]}, (384, 384, 384, 384)),
        ("19b", "uplinks of 100G, three gone and back", "fig19b_thor_links_down_100", "1640MiB",
         {"fabric": slow}, (384, 286, 191, 96, 191, 286, 382)),
    )  # fmt: skip
    for number, what, name, size, changes, levels in cases:
        done = run("uplinks-down", workloads=workloads("uplinks-down", size=size), **changes)[0]
        line = over_time(done)
        found = [between(line, LEVEL_US * at + LEVEL_US / 2, LEVEL_US * (at + 1)) for at in range(len(levels))]
        paper = published_line(name)
        ends = (paper.x[paper.y > 90].max(), LEVEL_US * len(levels))
        chart = Chart(f"Figure {number}: {what}", "share of the experiment", "Gb/s", [
            Curve("arXiv 2605.04333", paper.x / ends[0], paper.y),
            Curve("simulated", line.x / ends[1], line.y),
        ])  # fmt: skip
        ratios = [ours / theirs for ours, theirs in zip(found, levels, strict=True)]
        yield Row(number, what, ", ".join(map(str, levels)) + " Gb/s",
                  ", ".join(f"{rate:.0f}" for rate in found) + " Gb/s",
                  (Rule("ratio of each level", ratios, 0.9, 1.1),),
                  "the second half of each level, which lasts 8 ms here and 14 s there; probes are scaled with it",
                  float(np.mean(ratios)), {f"figure-{number}": chart})  # fmt: skip


@dataclass(frozen=True)
class Watched:
    """A run of flows, with what crossed the last link of each flow's NIC over time."""

    took: NDArray[np.int64]  # ps, by flow
    size: NDArray[np.int64]  # bytes
    at: NDArray[np.int64]  # ps
    payload: NDArray[np.float64]  # bytes of a flow, by look and flow; of flows to one NIC the sum

    def rates(self, begin: float, end: float) -> NDArray[np.float64]:
        """Return the rate to each flow's NIC (Gb/s) between two moments (ps)."""
        first, last = np.searchsorted(self.at, [begin, end])
        found: NDArray[np.float64] = (self.payload[last] - self.payload[first]) * 8e3 / (self.at[last] - self.at[first])
        return found


def watched(name: str, transport: Transport, seed: int, pairs: int = 1) -> Watched:
    """Run a file of scenarios/paper over a transport, and look at its flows each `LOOK_US`; `pairs` share each flow."""
    works: Any = of_file(name).workloads
    shared = tuple(
        msgspec.structs.replace(work, size=bytes_of(work.size) // pairs) for work in works for _ in range(pairs)
    )
    made = msgspec.structs.replace(of_file(name), workloads=tuple(shared), transport=transport, seed=seed)
    prepared = prepare(made)
    topology, flows = prepared.topology, prepared.work.traffic
    links = [int(np.flatnonzero(topology.link_destination == nic)[0]) for nic in flows.destination]
    at, crossed = [0], [[0] * len(links)]

    def look(world: loop.World) -> None:
        if world.now >= at[-1] + LOOK_US * PS_PER_US:
            at.append(world.now)
            crossed.append([int(world.network.ports[link].data_bytes) for link in links])

    carried = transport_of(transport, topology)
    done = simulated_runs.run(topology, flows, carried, seed=seed, observe=look)
    all_finished(made.name, done.finished)
    network = carried.network
    share = network.mtu / (network.mtu + network.header)
    return Watched(done.finished - done.started, flows.size, np.array(at), np.array(crossed) * share)


def incast_rates(transport: Transport, seed: int, pairs: int) -> NDArray[np.float64]:
    """Return rates of an incast: its receiver's while all flows run, seven senders' over their own times, the victim's.

    Each sender has so many queue pairs of MRC; those of RoCE are an option of its transport.
    """
    seen = watched("incast-victim", transport, seed, pairs)
    incast = slice(0, 7 * pairs)
    until = seen.at[seen.at <= seen.took.min()][-1]
    to_nic = seen.rates(0, until)
    own = (seen.size * 8e3 / seen.took)[incast].reshape(pairs, 7).sum(axis=0)
    return np.array([to_nic[0], *own, to_nic[-1]])


def full_load_rates(transport: Transport, seed: int) -> NDArray[np.float64]:
    """Return the rates of flows over all uplinks while all their queue pairs send, as perftest's do to the end.

    A message is split over its queue pairs; the first ones have sent their part after a third of the first message.
    """
    seen = watched("full-load", transport, seed)
    return seen.rates(seen.took.min() / 10, seen.took.min() / 3)


def published_flows(number: str) -> dict[str, float]:
    """Return the mean rate of each flow of a figure (Gb/s)."""
    return {flow: float(gbps) for figure_, flow, gbps in drawings.rows("cluster_d_flows")[1] if figure_ == number}


def published_line(name: str) -> Curve:
    """Return the curve of a figure: seconds, Gb/s."""
    x, y = np.array(drawings.points(name)[()]).T
    return Curve("arXiv 2605.04333", x, y)


EXPERIMENTS: tuple[Callable[[], Iterator[Row]], ...] = (
    point_to_point, latency, cold_start, link_flaps, links_down, incast, permutation, uplinks,
)  # fmt: skip


def picture(chart: Chart) -> str:
    """Return a chart as a file of its own: colours, title and legend drawn in; light or dark as the reader prefers."""
    drawn, legend = svg.draw(chart).split("</svg>")
    entries = [_entry(line.label, at) for at, line in enumerate(chart.lines) if 'class="legend"' in legend]
    opening, inside = svg.coloured(drawn).split(">", 1)
    height = svg.HEIGHT + 24 + 18 * len(entries)
    frame = f'viewBox="0 -24 {svg.WIDTH} {height}" width="{svg.WIDTH}" height="{height}"'
    opening = opening.replace(f'viewBox="0 0 {svg.WIDTH} {svg.HEIGHT}"', frame)
    paper = f'<rect class="paper" y="-24" width="{svg.WIDTH}" height="{height}"/>'
    title = f'<text class="title" x="64" y="-6">{escape(chart.title)}</text>'
    return f"{opening}><style>{svg.PICTURE_STYLE}</style>{paper}{title}{inside}{''.join(entries)}</svg>\n"


def _entry(label: str, at: int) -> str:
    y = svg.HEIGHT + 8 + 18 * at
    colour = svg.PICTURE_COLOURS[at % len(svg.PICTURE_COLOURS)]
    line = f'<line x1="64" x2="84" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3"{svg.dashes(at)}/>'
    return f'{line}<text x="92" y="{y + 4}">{escape(label)}</text>'


def table(rows: list[Row]) -> Iterator[str]:
    """Yield the table as Markdown."""
    yield "| row | what | published | simulated | ratio | rule | within | what it depends on |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        ratio = f"{row.ratio:.2f}" if row.ratio is not None else ""
        holds = "yes" if all(rule.holds for rule in row.rules) else "**no**"
        cells = (row.number, row.what, row.published, row.simulated, ratio, "; ".join(map(str, row.rules)), holds)
        yield f"| {' | '.join(cells)} | {row.why} |"


def write(name: str, rows: list[Row]) -> None:
    """Put one experiment's pictures and table where the docs have them."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    charts = {title: chart for row in rows for title, chart in row.charts.items()}
    for title, chart in charts.items():
        (IMAGES / f"{title}.svg").write_text(picture(chart))
    shown = [f"![{chart.title}](images/published/{title}.svg)" for title, chart in charts.items()]
    put(PAGE, name, "\n\n".join(["\n".join(table(rows)), *shown]))


def main() -> None:
    """Run, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="experiments whose name contains this")
    parser.add_argument("--write", action="store_true", help="put tables and pictures into docs")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for experiment in EXPERIMENTS:
        if options.only not in experiment.__name__:
            continue
        rows = list(experiment())
        if options.json:
            names = ("number", "what", "published", "simulated", "why", "ratio")
            found = [
                {name: getattr(row, name) for name in names} | {"rules": {str(each): each.holds for each in row.rules}}
                for row in rows
            ]
            print(json.dumps(found, default=np.generic.item), flush=True)
        else:
            print("\n".join(table(rows)), flush=True)
        if options.write:
            write(experiment.__name__, rows)


if __name__ == "__main__":
    main()
