"""The paper's figures as curves, beside runs of the simulator: pictures, differences, and docs/figures.md.

"Resilient AI supercomputer networking using MRC and SRv6" (arXiv 2605.04333). Its curves were read from the drawings
(bench/paper/curves; each file says how exactly). `figures.toml` says what of ours is beside each; seconds of the
hardware are microseconds here, in proportion.

    python -m bench.paper.figures                 all, in minutes; prints a line a figure
    python -m bench.paper.figures --only 19       figures whose number begins so
    python -m bench.paper.figures --write         also into docs/figures.md and docs/images/figures
    python -m bench.paper.figures --only 16 --most 1024       rings and all-to-alls up to so many MB; 64 unless said
"""

from __future__ import annotations

import argparse
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bench.paper.drawings import Points, named, points, rows
from bench.sim.published import completed, curve, over_time, picture
from harness.page import put
from openmrc.base.amounts import ps_of
from openmrc.core.rows import column
from openmrc.fabric.model.parts import load_parts
from openmrc.report.svg import Chart, Curve
from openmrc.sim.loop import run as loop
from openmrc.sim.scenario.description import Scenario, Transport, load
from openmrc.sim.scenario.transport_options import transport_of
from openmrc.sim.simulate import prepare, simulate
from openmrc.units import PS_PER_US

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCENARIOS = ROOT / "scenarios" / "paper" / "figures"
PAGE = ROOT / "docs" / "figures.md"
IMAGES = ROOT / "docs" / "images" / "figures"
ALLOWED = 0.10  # mean difference of the compared values
MOST_MB = 64
LOOK_US = 10  # between looks at ports


@dataclass(frozen=True)
class Compared:
    """One value of a figure: theirs and ours, in the figure's unit."""

    what: str
    theirs: float
    ours: float

    @property
    def difference(self) -> float:
        """Our distance from theirs, as a share of theirs; of 100 % where theirs is none."""
        return self.ours / self.theirs - 1 if self.theirs else self.ours / 100


@dataclass(frozen=True)
class Figure:
    """A figure of the paper with ours: what is compared, and the picture."""

    number: str
    about: Mapping[str, Any]
    values: Sequence[Compared]
    chart: Chart
    tested: str = ""  # what a run says that has a cause of the difference in it

    @property
    def difference(self) -> float:
        """The mean of the distances."""
        return mean_difference(self.values)


def mean_difference(values: Sequence[Compared]) -> float:
    return float(np.mean([abs(value.difference) for value in values]))


def scenario_of(about: Mapping[str, Any]) -> Scenario:
    scenario = load(SCENARIOS / f"{about['scenario']}.yaml")
    if "transport" not in about:
        return scenario
    return msgspec.structs.replace(scenario, transport=msgspec.convert(about["transport"], Transport))


def drawn(label: str, found: Points) -> Curve:
    x, y = np.array(found, float).T
    return Curve(label, x, y)


def mean_within(x: Any, y: Any, begin: float, end: float) -> float:
    """Return the mean over time of a curve given by its points, drawn as straight lines."""
    moments = np.linspace(begin, end, 400)
    return float(np.interp(moments, x, y).mean())


def over_seconds(number: str, about: Mapping[str, Any]) -> Figure:
    """Compare the levels of a curve over time."""
    theirs = drawn("published", next(iter(points(about["curve"]).values())))
    run = simulate(scenario_of(about))
    line = over_time(run)
    ours = Curve("openmrc", line.x / about["us_per_s"], line.y)
    values = [
        Compared(
            f"{begin:g} to {end:g} s",
            mean_within(theirs.x, theirs.y, begin, end),
            mean_within(ours.x, ours.y, begin, end),
        )
        for begin, end in about["spans"]
    ]
    end = about["spans"][-1][1]
    shown = [Curve(each.label, each.x[each.x <= end], each.y[each.x <= end]) for each in (theirs, ours)]
    return Figure(number, about, values, Chart(about["title"], "s of the hardware", "Gb/s", shown))


def of_job(number: str, about: Mapping[str, Any]) -> Figure:
    """Compare the throughput of a job around a fault, as a share of that before it."""
    theirs = drawn("published", named(about["curve"])["throughput_Pbps" if number == "8" else "job_throughput_Pbps"])
    line = over_time(simulate(scenario_of(about)))
    ours = Curve("openmrc", line.x / about["us_per_minute"] + about["begins"], line.y)
    (begin, end), *spans = about["spans"]
    levels = [mean_within(each.x, each.y, begin, end) for each in (theirs, ours)]
    shares = [
        Curve(each.label, each.x, 100 * each.y / level) for each, level in zip((theirs, ours), levels, strict=True)
    ]
    values = [
        Compared(f"{begin:g} to {end:g} min, %", *(mean_within(each.x, each.y, begin, end) for each in shares))
        for begin, end in spans
    ]
    first, last = about["spans"][0][0], about["spans"][-1][1]
    shown = [
        Curve(each.label, each.x[inside], each.y[inside])
        for each in shares
        for inside in ((each.x >= first) & (each.x <= last),)
    ]
    return Figure(number, about, values, Chart(about["title"], "minutes of the hardware", "% of before", shown))


def of_owners(number: str, about: Mapping[str, Any]) -> Figure:
    """Compare which part of the losses counts at the nodes whose ports went down, and not at their senders."""
    lost = {curve[-1]: sum(y for _, y in line) for curve, line in named(about["curve"]).items() if "loss" in curve}
    theirs = 100 * sum(lost[node] for node in about["owners"]) / sum(lost.values())
    run = simulate(scenario_of(about))
    of_link = dict(zip(map(run.topology.link_name, range(run.topology.links)), run.results.links["lost"], strict=True))
    up, down = (
        sum(int(of_link[name.format(nic)]) for nic in about["nics"]) for name in ("h{}>p0-t0-00", "p0-t0-00>h{}")
    )
    values = [Compared("at the owners of the ports, %", theirs, 100 * up / (up + down))]
    lines = [curve([0, 1], [value, 100 - value], label) for label, value in
             (("published", theirs), ("openmrc", values[0].ours))]  # fmt: skip
    return Figure(
        number, about, values, Chart(about["title"], "0: owners of the ports, 1: others", "% of losses", lines)
    )


def of_flaps(number: str, about: Mapping[str, Any]) -> Figure:
    """Compare the flaps of a minute with those of as many independent cables as `mrc plan` assumes."""
    found = np.sort([y for _, y in points_of(about["curve"])])
    mean = about["cables"] / (60 * load_parts().failures.fabric_flap.mtbf_hours)
    drawn_flaps = np.sort(np.random.default_rng(1).poisson(mean, len(found)))
    values = [Compared("mean", float(found.mean()), mean)] + [
        Compared(f"{share} % of minutes at most", *(float(np.percentile(each, share)) for each in (found, drawn_flaps)))
        for share in (25, 50, 75, 90, 100)
    ]
    lines = [curve(np.linspace(0, 100, len(each)), each, label) for label, each in
             (("published", found), ("openmrc", drawn_flaps))]  # fmt: skip
    return Figure(number, about, values, Chart(about["title"], "% of the minutes", "flaps in a minute", lines))


def of_start(number: str, about: Mapping[str, Any]) -> Figure:
    """Compare which part of a job's first losses falls into its first moments."""
    theirs = np.array([(x, y) for x, y in points_of(about["curve"]) if x >= about["from"]])
    run = simulate(scenario_of(about))
    at, lost = run.samples.at / PS_PER_US, run.samples.total("lost").astype(float)
    shares = (100 * np.cumsum(theirs[:, 1]) / theirs[:, 1].sum(), 100 * lost / lost[-1])
    times = (theirs[:, 0] - about["from"], at / about["us_per_minute"])
    values = [
        Compared(
            f"after {minute:g} min, %", *(float(np.interp(minute, x, y)) for x, y in zip(times, shares, strict=True))
        )
        for minute in about["minutes"]
    ]
    lines = [curve(x, y, label) for label, x, y in zip(("published", "openmrc"), times, shares, strict=True)]
    return Figure(
        number, about, values, Chart(about["title"], "minutes of the hardware", "% of all losses so far", lines)
    )


def of_paths(number: str, about: Mapping[str, Any]) -> Figure:
    """Compare which part of a pair's packets takes the second of two paths."""
    line = named(about["curve"])[about["ev"]]  # markers of the same state follow
    last = next((at for at in range(1, len(line)) if line[at][0] < line[at - 1][0]), len(line))
    theirs = drawn("published", line[:last])
    at, counts = watched(scenario_of(about), about["links"], "data_packets")
    sent = np.diff(counts, axis=0)
    ours = curve(at[1:] / about["us_per_s"], 100 * sent[:, 1] / np.maximum(1, sent.sum(axis=1)), "openmrc")
    values = [
        Compared(f"{begin:g} to {end:g} s, %", 100 * mean_within(theirs.x, theirs.y, begin, end),
                 mean_within(ours.x, ours.y, begin, end))
        for begin, end in about["spans"]
    ]  # fmt: skip
    shown = [Curve(theirs.label, theirs.x, 100 * theirs.y), ours]
    return Figure(number, about, values, Chart(about["title"], "s of the hardware", "% of the pair's packets", shown))


def of_queue(number: str, about: Mapping[str, Any]) -> Figure:
    """Compare the longest queue of a last hop in intervals."""
    bounds = [(float(row[1]), float(row[2]), float(row[4])) for row in rows(about["curve"])[1]
              if row[0] == about["profile"]]  # fmt: skip
    at, waiting = watched(scenario_of(about), about["links"], "bytes")
    seconds, queue = at / about["us_per_s"], waiting[:, 0] / 1e6
    values = [
        Compared(f"{begin:g} to {end:g} s, MB", high, float(queue[(seconds > begin) & (seconds <= end)].max(initial=0)))
        for begin, end, high in bounds
    ]
    theirs = curve([x for begin, end, _ in bounds for x in (begin, end)], [high for *_, high in bounds for _ in "12"],
                   "published, upper bound")  # fmt: skip
    return Figure(number, about, values, Chart(about["title"], "s of the hardware", "MB in the queue",
                                               [theirs, curve(seconds, queue, "openmrc")]))  # fmt: skip


def points_of(name: str) -> Points:
    """Return the only curve of a file."""
    return [(float(x), float(y)) for x, y in rows(name)[1]]


def watched(scenario: Scenario, links: Sequence[str], what: str) -> tuple[Any, Any]:
    """Run a scenario; return when its links were looked at (us), and a column of their ports, or of lossless queues."""
    prepared = prepare(scenario)
    topology = prepared.topology
    numbers = {topology.link_name(link): link for link in range(topology.links)}
    at, found = [0.0], [[0] * len(links)]

    def look(world: loop.World) -> None:
        if world.now >= (at[-1] + LOOK_US) * PS_PER_US:
            at.append(world.now / PS_PER_US)
            ports: Any = world.network.queues if what == "bytes" else world.network.ports
            found.append([int(column(ports, what)[numbers[name]]) for name in links])

    loop.run(topology, prepared.work.traffic, transport_of(scenario.transport, topology), broken=prepared.faults,
             seed=scenario.seed, until=ps_of(scenario.until), observe=look)  # fmt: skip
    return np.array(at), np.array(found, float)


def of_sizes(number: str, about: Mapping[str, Any], most: int) -> Figure:
    """Compare a collective's rate by size, with packets lost at the receiving NICs."""
    curves, values, lines = points(about["curve"]), [], []
    for each in about["lines"]:
        theirs = sorted(curves[(*each["key"], *([about["loss"]] if "loss" in about else []))])
        ours = [(float(size), collective_gbps(about | each, size)) for size in about["sizes"] if size <= most]
        values += [Compared(f"{each['label']}, {size:g} MB", dict(theirs)[size], rate) for size, rate in ours]
        lines += [
            drawn(f"{each['label']}, published", doublings(theirs)),
            drawn(f"{each['label']}, openmrc", doublings(ours)),
        ]
    tested = with_cause(about, sorted(curves[first_key(about)]), most) if "cause" in about else ""
    return Figure(number, about, values, Chart(about["title"], "doublings of 1 MB", "Gb/s", lines), tested)


def first_key(about: Mapping[str, Any]) -> tuple[str, ...]:
    return (*about["lines"][0]["key"], *([about["loss"]] if "loss" in about else []))


def with_cause(about: Mapping[str, Any], theirs: Points, most: int) -> str:
    """Compare the first curve once more, with what is said to make ours better taken away."""
    first = about | about["lines"][0] | about["cause"]
    values = [
        Compared(f"{size:g} MB", dict(theirs)[size], collective_gbps(first, size))
        for size in about["sizes"]
        if size <= most
    ]
    shown = "; ".join(f"{each.what}: {each.theirs:.4g}, {each.ours:.4g}" for each in values)
    what = ", ".join(
        f"`{name}` {value}" for name, value in (about["cause"]["settings"] | about["cause"]["work"]).items()
    )
    return f"MRC with {what}: mean difference {mean_difference(values):.1%} ({shown})."


def doublings(found: Points) -> Points:
    return [(math.log2(size), rate) for size, rate in found]


def collective_gbps(about: Mapping[str, Any], size_mb: float) -> float:
    """Return the rate as nccl-tests counts it: of a ring's bus, or of an all-to-all with a rank's own share."""
    scenario, loss = scenario_of(about), about.get("loss", "0")
    fabric: Any = scenario.fabric
    share = {"ring": 1.0, "all_to_all": 1 / fabric.hosts.count, "sendrecv": 1.0}[about["collective"]]
    down = fabric.planes[0].t0.down
    at_receivers = tuple(
        {"loss": f"{loss}%", "on": f"p{plane}-t0-{nic // down:02d}>h{nic}"}
        for plane in range(fabric.planes[0].count)
        for nic in range(fabric.hosts.count)
    )
    work: Any = msgspec.structs.replace(
        scenario.workloads[0], size=round(size_mb * 1e6 * share), **about.get("work", {})
    )
    faults = at_receivers if loss != "0" else ()
    carried = scenario.transport
    carried = msgspec.structs.replace(carried, settings=carried.settings | about.get("settings", {}))
    result = completed(msgspec.structs.replace(scenario, transport=carried, workloads=(work,), faults=faults))[1]
    hops = 2 * (fabric.hosts.count - 1) / fabric.hosts.count if about["collective"] == "ring" else 1
    return float(size_mb * 1e6 * hops * 8e-3 / result["last_finish_us"])


def figures(only: str, most: int) -> Iterator[Figure]:
    """Run what is wanted, in the paper's order."""
    kinds = {
        "time": over_seconds, "job": of_job, "owners": of_owners, "flaps": of_flaps, "start": of_start,
        "paths": of_paths, "queue": of_queue,
    }  # fmt: skip
    for number, about in tomllib.loads((HERE / "figures.toml").read_text("utf-8")).items():
        if not number.startswith(only):
            continue
        if about["kind"] == "sizes":
            yield of_sizes(number, about, max(most, about.get("most", 0)))
        else:
            yield kinds[about["kind"]](number, about)


def file_name(figure: Figure) -> str:
    return figure.number.replace(", ", "-").replace(" %", "")


def line(figure: Figure) -> str:
    """Return the row of the table."""
    values = "; ".join(f"{each.what}: {each.theirs:.4g}, {each.ours:.4g}" for each in figure.values)
    verdict = "yes" if figure.difference <= ALLOWED else "**no**"
    return f"| {figure.number} | {figure.about['title']} | {figure.difference:.1%} | {verdict} | {values} |"


def section(figure: Figure) -> Iterator[str]:
    """Yield the part of the page about one figure."""
    about = figure.about
    yield f"## Figure {figure.number}\n"
    yield f"![{about['title']}](images/figures/figure-{file_name(figure)}.svg)\n"
    files = dict.fromkeys(each["scenario"] for each in about.get("lines", [about]) if "scenario" in each)
    names = [f"figures/{name}".replace("figures/../", "") for name in files]
    commands = ", ".join(f"`mrc sim run paper/{name}`" for name in names) + "." * bool(names)
    yield " ".join(filter(None, (commands, about.get("why", ""), figure.tested))) + "\n"


def main() -> None:
    """Print a line a figure; write page and pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="figures whose number begins so")
    parser.add_argument("--most", type=int, default=MOST_MB, help="the largest collective, MB")
    parser.add_argument("--write", action="store_true", help="write docs/figures.md and its pictures")
    given = parser.parse_args()
    found = []
    for figure in figures(given.only, given.most):
        found.append(figure)
        print(line(figure), figure.tested, flush=True)
        if given.write:
            IMAGES.mkdir(parents=True, exist_ok=True)
            (IMAGES / f"figure-{file_name(figure)}.svg").write_text(picture(figure.chart), encoding="utf-8")
    within = sum(figure.difference <= ALLOWED for figure in found)
    print(f"{within} of {len(found)} within {ALLOWED:.0%} in the mean")
    if given.write and not given.only:
        head = [
            "| figure | what | mean difference | within 10 % | published, openmrc (Gb/s) |",
            "|---|---|---|---|---|",
        ]
        put(PAGE, "table", "\n".join([*head, *map(line, found)]))
        put(PAGE, "figures", "\n".join(part for figure in found for part in section(figure)).rstrip())


if __name__ == "__main__":
    main()
