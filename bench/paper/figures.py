"""The paper's figures as curves, beside runs of the simulator: pictures, differences, and docs/figures.md.

"Resilient AI supercomputer networking using MRC and SRv6" (arXiv 2605.04333). Its curves were read from the drawings
(bench/paper/curves; each file says how exactly). `figures.toml` says what of ours is beside each; seconds of the
hardware are microseconds here, in proportion.

    python -m bench.paper.figures                 all, in minutes; prints a line a figure
    python -m bench.paper.figures --only 19       figures whose number begins so
    python -m bench.paper.figures --write         also into docs/figures.md and docs/images/figures, one or all
    python -m bench.paper.figures --only 16 --whole 256    nothing of collectives up to so many MB is left out
"""

from __future__ import annotations

import argparse
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bench.paper.drawings import Points, named, points, rows
from bench.sim.published import completed, curve, over_time, picture
from harness import simulated_runs
from harness.page import put
from openmrc.base.amounts import ps_of
from openmrc.core.rows import column
from openmrc.fabric.model.parts import load_parts
from openmrc.fabric.model.topology import Topology
from openmrc.report.svg import Chart, Curve
from openmrc.sim.loop import run as loop
from openmrc.sim.results.summary import SimulationRun
from openmrc.sim.scenario.description import Scenario, Transport, load
from openmrc.sim.scenario.transport_options import transport_of
from openmrc.sim.simulate import prepare, simulate
from openmrc.sim.workloads.collectives.all_to_all import AllToAll
from openmrc.units import PS_PER_US

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCENARIOS = ROOT / "scenarios" / "paper" / "figures"
PAGE = ROOT / "docs" / "figures.md"
IMAGES = ROOT / "docs" / "images" / "figures"
ALLOWED = 0.10  # mean difference of the compared values
LOOK_US = 10  # between looks at ports
RING_STEPS, RING_MB = 8, 2048  # of a ring that is too large to be run whole: steps at least, and MB of them all
Look = Callable[[loop.World, Topology], list[float]]


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
    inside = (shares[0].x >= first) & (shares[0].x <= last)
    begins = np.arange(first, last, about["every"])
    means = [mean_within(shares[1].x, shares[1].y, begin, begin + about["every"]) for begin in begins]
    shown = [Curve("published", shares[0].x[inside], shares[0].y[inside]), curve(begins, means, "openmrc")]
    return Figure(number, about, values, Chart(about["title"], "minutes of the hardware", "% of before", shown))


def of_owners(number: str, about: Mapping[str, Any]) -> Figure:
    """Compare which part of the losses counts at the nodes whose ports went down, and not at their senders."""
    lost = {curve[-1]: sum(y for _, y in line) for curve, line in named(about["curve"]).items() if "loss" in curve}
    theirs = 100 * sum(lost[node] for node in about["owners"]) / sum(lost.values())
    scenario = scenario_of(about)
    values = [Compared("at the owners of the ports, %", theirs, owners_share(scenario, about["nics"]))]
    others = [(each["what"], owners_share(with_collective(scenario, each), about["nics"])) for each in about["tests"]]
    tested = [f"{what} {share:.0f} %" for what, share in others]
    lines = [
        curve([1, 7], [theirs] * 2, "published"),
        curve([each["group"] - 1 for each in about["tests"]], [share for _, share in others], "openmrc, all-to-all"),
        curve([1, 1.2], [values[0].ours] * 2, "openmrc, ring"),
    ]
    chart = Chart(about["title"], "NICs that send to an owner of a port", "% of losses at the owners", lines)
    return Figure(number, about, values, chart, f"The same with {'; '.join(tested)}.")


def owners_share(scenario: Scenario, nics: Sequence[int]) -> float:
    """Return which part (%) of what dead ports lost, their owners had sent."""
    run = simulate(scenario)
    of_link = dict(zip(map(run.topology.link_name, range(run.topology.links)), run.results.links["lost"], strict=True))
    up, down = (sum(int(of_link[name.format(nic)]) for nic in nics) for name in ("h{}>p0-t0-00", "p0-t0-00>h{}"))
    return 100 * up / (up + down)


def with_collective(scenario: Scenario, about: Mapping[str, Any]) -> Scenario:
    """Return a job whose steps are of an all-to-all in groups, as large as the ring's."""
    job: Any = scenario.workloads[0]
    step = AllToAll(size=about["size"], group=about["group"], placement="strided")
    return msgspec.structs.replace(scenario, workloads=(msgspec.structs.replace(job, collectives=(step,)),))


def of_flaps(number: str, about: Mapping[str, Any]) -> Figure:
    """Compare the flaps of a minute with those of as many independent cables as `mrc plan` assumes."""
    found = np.sort([y for _, y in points_of(about["curve"])])
    mean = about["cables"] / (60 * load_parts().failures.fabric_flap.mtbf_hours)
    drawn_flaps = np.sort(np.random.default_rng(1).poisson(mean, len(found)))
    values = [Compared("mean", float(found.mean()), mean)] + [
        Compared(f"{share} % of minutes at most", *(float(np.percentile(each, share)) for each in (found, drawn_flaps)))
        for share in (25, 50, 75, 90, 100)
    ]
    lines = [
        curve(np.linspace(0, 100, len(each)), each, label)
        for label, each in (("published", found), ("openmrc", drawn_flaps))
    ]
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
    at, counts = watched(scenario_of(about), of_ports(about["links"], "data_packets"))
    sent = np.diff(counts, axis=0)
    ours = curve(at[1:] / about["us_per_s"], 100 * sent[:, 1] / np.maximum(1, sent.sum(axis=1)), "openmrc")
    values = [
        Compared(
            f"{begin:g} to {end:g} s, %",
            100 * mean_within(theirs.x, theirs.y, begin, end),
            mean_within(ours.x, ours.y, begin, end),
        )
        for begin, end in about["spans"]
    ]
    shown = [Curve(theirs.label, theirs.x, 100 * theirs.y), ours]
    return Figure(number, about, values, Chart(about["title"], "s of the hardware", "% of the pair's packets", shown))


def of_states(number: str, about: Mapping[str, Any]) -> Figure:
    """Compare whether the EV that a pair has in reserve is active."""
    theirs = drawn("published", named(about["curve"])[about["ev"]])

    def look(world: loop.World, topology: Topology) -> list[float]:
        engine: Any = world.state
        pairs = [engine.engine.qps[int(pair)] for pair in column(world.network.flows, "handle")]
        first = engine.engine.rotations[pairs[0].rotation_base].ev_base
        return [float(engine.engine.slots[first].ev != 0), *(float(pair.sent_bytes) for pair in pairs)]

    at, found = watched(scenario_of(about), look)
    at, (active, *sent) = at / about["us_per_s"], found.T
    lines = (theirs, curve(at, active, "openmrc"))
    values = [
        Compared(f"{begin:g} to {end:g} s", *(mean_within(each.x, each.y, begin, end) for each in lines))
        for begin, end in about["spans"]
    ]
    begin, end = about["both"]
    rates = [np.diff(np.interp((begin, end), at, line))[0] * 8e-3 / (end - begin) / about["us_per_s"] for line in sent]
    tested = f"From {begin} to {end} s the pairs have {' and '.join(f'{rate:.0f}' for rate in rates)} Gb/s."
    return Figure(number, about, values, Chart(about["title"], "s of the hardware", "1: active", [
        theirs, curve(at, active, "openmrc"),
    ]), tested)  # fmt: skip


def of_queue(number: str, about: Mapping[str, Any]) -> Figure:
    """Compare the longest queue of a last hop in intervals."""
    bounds = [
        (float(row[1]), float(row[2]), float(row[4])) for row in rows(about["curve"])[1] if row[0] == about["profile"]
    ]
    scenario = scenario_of(about)
    at, waiting = watched(scenario, of_ports(about["links"], "bytes"))
    seconds, queue = at / about["us_per_s"], waiting[:, 0] / 1e6
    longest = [f"{flows} flows {queue_of(scenario, about, flows):.1f} MB" for flows in about["flows"]]
    values = [
        Compared(f"{begin:g} to {end:g} s, MB", high, float(queue[(seconds > begin) & (seconds <= end)].max(initial=0)))
        for begin, end, high in bounds
    ]
    theirs = curve(
        [x for begin, end, _ in bounds for x in (begin, end)],
        [high for *_, high in bounds for _ in "12"],
        "published, upper bound",
    )
    return Figure(number, about, values, Chart(about["title"], "s of the hardware", "MB in the queue",
                                               [theirs, curve(seconds, queue, "openmrc")]),
                  f"With a CNP each {about['cnp_us']} us for all flows together: {', '.join(longest)}.")  # fmt: skip


def queue_of(scenario: Scenario, about: Mapping[str, Any], flows: int) -> float:
    """Return the longest queue (MB) with so many flows whose receiver sends CNPs at a rate for all of them together."""
    before = ps_of(scenario.workloads[flows - 1].start) / PS_PER_US
    settings = scenario.transport.settings | {"cnp_interval_us": float(flows * about["cnp_us"])}
    few = msgspec.structs.replace(
        scenario,
        workloads=scenario.workloads[:flows],
        until=f"{before + 2000:g}us",
        transport=msgspec.structs.replace(scenario.transport, settings=settings),
    )
    at, waiting = watched(few, of_ports(about["links"], "bytes"))
    return float(waiting[at > before].max() / 1e6)


def points_of(name: str) -> Points:
    """Return the only curve of a file."""
    return [(float(x), float(y)) for x, y in rows(name)[1]]


def of_ports(links: Sequence[str], what: str) -> Look:
    """Return what reads a column of ports by their links' names, or of the lossless queues."""

    def look(world: loop.World, topology: Topology) -> list[float]:
        numbers = {topology.link_name(link): link for link in range(topology.links)}
        ports: Any = world.network.queues if what == "bytes" else world.network.ports
        return [float(column(ports, what)[numbers[name]]) for name in links]

    return look


def watched(scenario: Scenario, read: Look) -> tuple[Any, Any]:
    """Run a scenario; return when it was looked at (us), and what was read."""
    prepared = prepare(scenario)
    topology = prepared.topology
    at: list[float] = []
    found: list[list[float]] = []

    def look(world: loop.World) -> None:
        if not at or world.now >= (at[-1] + LOOK_US) * PS_PER_US:
            at.append(world.now / PS_PER_US)
            found.append(read(world, topology))

    transport = transport_of(scenario.transport, topology)
    simulated_runs.run(
        topology, prepared.work.traffic, transport, prepared.faults, scenario.seed, until=ps_of(scenario.until),
        observe=look,
    )  # fmt: skip
    return np.array(at), np.array(found, float)


def of_sizes(number: str, about: Mapping[str, Any], whole: int) -> Figure:
    """Compare a collective's rate by size, with packets lost at the receiving NICs; again with what hosts add."""
    curves, values, lines, tested = points(about["curve"]), [], [], []
    for each in about["lines"]:
        mine = about | each
        theirs = sorted(curves[(*each["key"], *([about["loss"]] if "loss" in about else []))])
        ours = rates(mine, whole)
        values += compared(f"{each['label']}, ", theirs, ours)
        lines.append(drawn(f"{each['label']}, published", doublings(theirs)))
        lines.append(drawn(f"{each['label']}, openmrc", doublings(ours)))
        for what, settings in causes(mine):
            slower = rates(mine | {"added": settings}, whole)
            again = compared("", theirs, slower)
            lines.append(drawn(f"{each['label']}, openmrc with {what}", doublings(slower)))
            tested.append(f"{each['label']} with {said(settings)}: {mean_difference(again):.1%} ({listed(again)}).")
    return Figure(number, about, values, Chart(about["title"], "doublings of 1 MB", "Gb/s", lines), " ".join(tested))


def compared(label: str, theirs: Points, ours: Points) -> list[Compared]:
    return [Compared(f"{label}{size:g} MB", dict(theirs)[size], rate) for size, rate in ours]


def causes(about: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a name and settings, a run each: what hosts add to a step and repairs to a loss, then more beside it."""
    if "hosts" in about:
        is_lossy = about.get("loss", "0") != "0"
        settings = {"step_time": about["hosts"]} | (about["repair"] if is_lossy else {})
        yield "host time", settings
        also = about.get("also" if is_lossy else "also_lossless", {})
        if also:
            name, value = next(iter(also.items()))
            yield f"{name} {value}", settings | also


def said(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}` {value}" for name, value in settings.items())


def doublings(found: Points) -> Points:
    return [(math.log2(size), rate) for size, rate in found]


def rates(about: Mapping[str, Any], whole: int) -> Points:
    """Return the rate by size as nccl-tests counts it: of a ring's bus, or of an all-to-all with a rank's own share."""
    times: Points = []
    is_lossy = about.get("loss", "0") != "0"
    whole = max(whole, about["whole_lost"] if is_lossy else about["whole"])
    for size in about["sizes"]:
        if size <= whole or (about["collective"] == "ring" and not (is_lossy and "transport" in about)):
            times.append((size, took_us(about, size, whole)))
        elif not is_lossy:  # messages are so long that each MB more takes as long as the one before
            (less, before), (more, last) = [each for each in times if each[0] <= whole][-2:]
            times.append((size, last + (last - before) * (size - more) / (more - less)))
    return [(size, moved(about, size) / took) for size, took in times]


def moved(about: Mapping[str, Any], size_mb: float) -> float:
    """Return what a rank moves, kbit."""
    ranks = 64
    return size_mb * 8e3 * (2 * (ranks - 1) / ranks if about["collective"] == "ring" else 1)


def took_us(about: Mapping[str, Any], size_mb: float, whole: int) -> float:
    """Return how long a collective takes; of a ring that is larger than `whole`, from its first steps."""
    scenario, loss = scenario_of(about), about.get("loss", "0")
    fabric: Any = scenario.fabric
    ranks, plane = fabric.hosts.count, fabric.planes[0]
    at_receivers = tuple(
        {"loss": f"{loss}%", "on": f"p{number}-t0-{nic // plane.t0.down:02d}>h{nic}"}
        for number in range(plane.count)
        for nic in range(ranks)
    )
    settings = dict(about.get("added", {}))
    work: dict[str, Any] = {name: settings.pop(name) for name in ("step_time", "window") if name in settings}
    share = ranks if about["collective"] == "all_to_all" else 1
    steps = 2 * (ranks - 1)
    if about["collective"] == "ring" and size_mb > whole:
        work["steps"] = min(steps, max(RING_STEPS, RING_MB // size_mb))
    carried = msgspec.structs.replace(scenario.transport, settings=scenario.transport.settings | settings)
    run, result = completed(
        msgspec.structs.replace(
            scenario,
            transport=carried,
            faults=at_receivers if loss != "0" else (),
            workloads=(msgspec.structs.replace(scenario.workloads[0], size=round(size_mb * 1e6 / share), **work),),
        )
    )
    return whole_ring_us(run, steps) if "steps" in work else float(result["last_finish_us"])


def whole_ring_us(run: SimulationRun, steps: int) -> float:
    """Return how long `steps` steps take of which the first were run: each of the rest as long as the second half's."""
    source, finished = run.work.traffic.source[run.work.moving], run.results.finished[run.work.moving]
    ended = finished[np.lexsort((finished, source))].reshape(len(np.unique(source)), -1).max(axis=0) / PS_PER_US
    half, last = len(ended) // 2, len(ended)
    return float(ended[-1] + (ended[-1] - ended[half - 1]) * (steps - last) / (last - half))


def described() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield number and description of each figure; one with several shares of lost packets is several."""
    for number, about in tomllib.loads((HERE / "figures.toml").read_text("utf-8")).items():
        if "losses" not in about:
            yield number, about
        for loss in about.get("losses", ()):
            title = about["title"] + f", {loss} % of packets lost at the receiving NICs" * (loss != "0")
            yield f"{number}, {loss} %", about | {"loss": loss, "title": title}


def figures(only: str, whole: int) -> Iterator[Figure]:
    """Run what is wanted, in the paper's order."""
    kinds = {
        "time": over_seconds, "job": of_job, "owners": of_owners, "flaps": of_flaps, "start": of_start,
        "paths": of_paths, "states": of_states, "queue": of_queue,
    }  # fmt: skip
    for number, about in described():
        if not number.startswith(only):
            continue
        if about["kind"] == "sizes":
            yield of_sizes(number, about, whole)
        else:
            yield kinds[about["kind"]](number, about)


def file_name(figure: Figure) -> str:
    return figure.number.replace(", ", "-").replace(" %", "")


def line(figure: Figure) -> str:
    """Return the row of the table."""
    verdict = "yes" if figure.difference <= ALLOWED else "**no**"
    cells = (figure.number, figure.about["title"], f"{figure.difference:.1%}", verdict, listed(figure.values))
    return f"| {' | '.join(cells)} |"


def listed(values: Sequence[Compared]) -> str:
    return "; ".join(f"{each.what}: {each.theirs:.4g}, {each.ours:.4g}" for each in values)


def section(figure: Figure) -> Iterator[str]:
    """Yield the part of the page about one figure."""
    about = figure.about
    yield f"## Figure {figure.number}\n"
    yield f"![{about['title']}](images/figures/figure-{file_name(figure)}.svg)\n"
    files = dict.fromkeys(each["scenario"] for each in about.get("lines", [about]) if "scenario" in each)
    names = [f"figures/{name}".replace("figures/../", "") for name in files]
    commands = ", ".join(f"`mrc sim run paper/{name}`" for name in names) + "." * bool(names)
    yield " ".join(filter(None, (commands, about.get("why", ""), figure.tested))) + "\n"


def renew(figure: Figure) -> None:
    """Write one figure's row and section over those that the page has."""
    page = PAGE.read_text("utf-8")
    number = re.escape(figure.number)
    page = re.sub(rf"(?m)^\| {number} \|.*$", lambda _: line(figure), page, count=1)
    page = re.sub(rf"(?s)## Figure {number}\n.*?(?=\n## |\n<!-- end)", lambda _: "\n".join(section(figure)), page)
    PAGE.write_text(page, "utf-8")


def main() -> None:
    """Print a line a figure; write page and pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="figures whose number begins so")
    parser.add_argument("--whole", type=int, default=0, help="run collectives whole up to so many MB")
    parser.add_argument("--write", action="store_true", help="write docs/figures.md and its pictures")
    given = parser.parse_args()
    found = []
    for figure in figures(given.only, given.whole):
        found.append(figure)
        print(line(figure), figure.tested, flush=True)
        if given.write:
            IMAGES.mkdir(parents=True, exist_ok=True)
            (IMAGES / f"figure-{file_name(figure)}.svg").write_text(picture(figure.chart), encoding="utf-8")
            if given.only:
                renew(figure)
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
