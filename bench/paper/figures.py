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

from bench.paper.drawings import Points, points
from bench.sim.published import completed, over_time, picture
from harness.page import put
from openmrc.report.svg import Chart, Curve
from openmrc.sim.scenario.description import Scenario, Transport, load
from openmrc.sim.simulate import simulate

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SCENARIOS = ROOT / "scenarios" / "paper" / "figures"
PAGE = ROOT / "docs" / "figures.md"
IMAGES = ROOT / "docs" / "images" / "figures"
ALLOWED = 0.10  # mean difference of the compared values
MOST_MB = 64


@dataclass(frozen=True)
class Compared:
    """One value of a figure: theirs and ours (Gb/s)."""

    what: str
    theirs: float
    ours: float

    @property
    def difference(self) -> float:
        """Our distance from theirs, as a share of theirs."""
        return self.ours / self.theirs - 1


@dataclass(frozen=True)
class Figure:
    """A figure of the paper with ours: what is compared, and the picture."""

    number: str
    about: Mapping[str, Any]
    values: Sequence[Compared]
    chart: Chart

    @property
    def difference(self) -> float:
        """The mean of the distances."""
        return float(np.mean([abs(value.difference) for value in self.values]))


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
    return Figure(number, about, values, Chart(about["title"], "doublings of 1 MB", "Gb/s", lines))


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
    work: Any = msgspec.structs.replace(scenario.workloads[0], size=round(size_mb * 1e6 * share))
    faults = at_receivers if loss != "0" else ()
    result = completed(msgspec.structs.replace(scenario, workloads=(work,), faults=faults))[1]
    hops = 2 * (fabric.hosts.count - 1) / fabric.hosts.count if about["collective"] == "ring" else 1
    return float(size_mb * 1e6 * hops * 8e-3 / result["last_finish_us"])


def figures(only: str, most: int) -> Iterator[Figure]:
    """Run what is wanted, in the paper's order."""
    for number, about in tomllib.loads((HERE / "figures.toml").read_text("utf-8")).items():
        if not number.startswith(only):
            continue
        if about["kind"] == "time":
            yield over_seconds(number, about)
        else:
            yield of_sizes(number, about, max(most, about.get("most", 0)))


def file_name(figure: Figure) -> str:
    return figure.number.replace(", ", "-").replace(" %", "")


def line(figure: Figure) -> str:
    """Return the row of the table."""
    values = "; ".join(f"{each.what}: {each.theirs:.0f}, {each.ours:.0f}" for each in figure.values)
    verdict = "yes" if figure.difference <= ALLOWED else "**no**"
    return f"| {figure.number} | {figure.about['title']} | {figure.difference:.1%} | {verdict} | {values} |"


def section(figure: Figure) -> Iterator[str]:
    """Yield the part of the page about one figure."""
    about = figure.about
    yield f"## Figure {figure.number}\n"
    yield f"![{about['title']}](images/figures/figure-{file_name(figure)}.svg)\n"
    files = dict.fromkeys(each["scenario"] for each in about.get("lines", [about]))
    commands = ", ".join(f"`mrc sim run paper/figures/{name}`" for name in files)
    yield f"{commands}. {about.get('why', '')}".rstrip() + "\n"


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
        print(line(figure), flush=True)
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
