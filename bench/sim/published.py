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
from harness.finished import all_finished
from harness.page import put
from openmrc.report import curves, svg
from openmrc.report.svg import Chart, Curve
from openmrc.sim.loop import run as loop
from openmrc.sim.results.summary import SimulationRun, summary
from openmrc.sim.scenario.description import Sampling, Scenario, Transport, load
from openmrc.sim.scenario.transport_options import transport_of
from openmrc.sim.simulate import prepare, simulate
from openmrc.units import PS_PER_US

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "scenarios" / "paper"
PAGE = ROOT / "docs" / "published.md"
IMAGES = ROOT / "docs" / "images" / "published"

SMALL_LOSS, GREAT_LOSS = ({"loss": "0.1%"},), ({"loss": "1%"},)
SEEDS = range(1, 5)  # where single ones differ by more than a row's rule allows
DEEP: dict[str, bool | int | float | str] = {  # shares of 250 KB, the bandwidth-delay product of cluster D
    "ecn_low_bdp": 4, "ecn_high_bdp": 20, "pause_packets": 2000, "resume_packets": 1900,
}  # fmt: skip
LOOK_US = 50  # between looks at a flow's bytes
LEVEL_US = 8000  # of scenarios/paper/uplinks-down.yaml
TIME, RATE = "simulated time, us", "Gb/s into all NICs"


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
    sizes = (1, 4, 16, 32)
    result = [run("point-to-point", workloads=workloads("point-to-point", size=f"{size}MiB"))[1] for size in sizes]
    names = ("T0-local", "cross-T1")
    rates = [[figure(one, f"workloads.{at}.flow_gbps.mean") for one in result] for at in range(2)]
    lines = [curve(sizes, mine, name) for mine, name in zip(rates, names, strict=True)]
    chart = Chart("One pair alone", "MiB written", "Gb/s", lines)
    for at, name in enumerate(names):
        rate = rates[at][-1]
        why = "769 without headers; the rest is the first round trip of a transfer of 32 MiB"
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


def t1_reboot() -> Iterator[Row]:
    def worst(result: dict[str, Any]) -> tuple[float, float]:
        steps = np.sort(result["step_us"]["each"]) / np.median(result["step_us"]["each"])
        return 100 * (steps[-1] - 1), 100 * (steps[-2] - 1)

    done, result = run("t1-reboot")
    sizes = (4, 16, 64)
    work: Any = of_file("t1-reboot").workloads[0]
    longer = []
    for size in sizes:
        ring = msgspec.structs.replace(work.collectives[0], size=f"{size}MiB")
        longer.append(worst(run("t1-reboot", workloads=workloads("t1-reboot", steps=4, collectives=(ring,)))[1])[0])
    first, second = worst(result)
    charts = {
        "t1-reboot": Chart(
            "A T1 is gone from 300 to 600 us", TIME, RATE, [over_time(done)], shades=curves.outages(done)
        ),
        "t1-reboot-size": Chart("The step it happens in", "MiB reduced in a step", "% longer", [curve(sizes, longer)]),
    }
    why = (
        f"the loss at that moment costs time once ({result['packets']['retransmitted']} packets retransmitted), "
        f"whatever the length of the step, which in training is seconds: {listed(longer, sizes, 'MiB', 1)} % longer"
    )
    yield Row("6", "step in which a T1 dies, and the others", "throughput largely unaffected",
              f"{first:.0f} % longer, the others at most {second:.1f} %", (Rule("others, %,", [second], high=2),), why,
              charts=charts)  # fmt: skip


def transceiver() -> Iterator[Row]:
    def lower(**changes: Any) -> float:
        steps = np.array(run("transceiver-glitch", **changes)[1]["step_us"]["each"])
        return 100 * float(1 - steps[:2].mean() / steps[2:9].mean())

    def flaps(share: int) -> tuple[Any, ...]:
        when = {"for": "1400us"} if share == 100 else {"for": f"{share}us", "every": "100us", "times": 10}
        return ({"at": "300us", **when, "down": "4 host links of p1-t0-01"},)

    def slower(size: int, *down: Any) -> float:
        """Return by how much two steps go slower with the faults than without, %."""
        work: Any = of_file("transceiver-glitch").workloads[0]
        ring = msgspec.structs.replace(work.collectives[0], size=f"{size}MiB")
        works = workloads("transceiver-glitch", steps=2, collectives=(ring,))
        steps = [run("transceiver-glitch", workloads=works, faults=each)[1]["step_us"]["each"] for each in ((), down)]
        return 100 * (1 - sum(steps[0]) / sum(steps[1]))

    done, result = run("transceiver-glitch")
    place, sizes = "4 host links of p1-t0-01", (4, 16, 64)
    half = [
        slower(size, {"at": "10us", "for": "50us", "every": "100us", "times": 100, "down": place}) for size in sizes
    ]
    gone = [slower(size, {"at": "10us", "down": place}) for size in sizes]
    shares = (25, 50, 75, 95, 100)
    found = [lower(faults=flaps(share)) for share in shares]
    last = 100 * (result["step_us"]["each"][-1] / result["step_us"]["each"][0] - 1)
    charts = {
        "transceiver-glitch": Chart(
            "Four cables of a T0 flap, from 300 to 1300 us", TIME, RATE, [over_time(done)], shades=curves.outages(done)
        ),
        "transceiver-share": Chart("Throughput while it lasts", "% of the time that the four cables are down",
                                   "% lower", [curve(shares, found)]),
        "transceiver-size": Chart("Throughput by how much is reduced in a step", "MiB reduced in a step", "% lower",
                                  [curve(sizes, half, "down half of the time"), curve(sizes, gone, "down")]),
    }  # fmt: skip
    why = (
        f"two steps of {sizes[-1]} MiB. A NIC without one of its four ports has lost 25 %, and all NICs run at the "
        "slowest one's rate; but short messages wait for round trips more than for bandwidth. Down half of the time: "
        f"{listed(half, sizes, 'MiB')}; all the time: {listed(gone, sizes, 'MiB')}. The published share of down "
        f"time is unknown; ten steps of 4 MiB: {listed(found, shares, '% of the time')}"
    )
    yield Row("7", "throughput while four cables flap, % lower", "about 25 %, full recovery",
              f"{half[-1]:.0f} (down all the time: {gone[-1]:.0f}), last step of the file {last:+.1f} %",
              (Rule("down all the time, %,", [gone[-1]], 15, 35),
              Rule("last step, %,", [last], high=3)), why, charts=charts)  # fmt: skip


def nic_link_down() -> Iterator[Row]:
    done = run("nic-link-down", sampling=Sampling(every="10us"))[0]
    line = over_time(done)
    before, during, after = between(line, 50, 190), between(line, 250, 590), between(line, 650, 790)
    chart = Chart(
        "One of eight ports down from 200 to 600 us, four flap from 800 us",
        TIME,
        RATE,
        [line],
        shades=curves.outages(done),
    )
    ratio = during / before / (7 / 8)
    yield Row("8", "both directions, a port down", "drops at once to what the other ports carry; recovers",
              f"{before:.0f}, then {during:.0f}, then {after:.0f} Gb/s", (Rule("ratio", [ratio], 0.95, 1.05),),
              "ratio to seven eighths", ratio, {"nic-link-down": chart})  # fmt: skip


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


def t0_failure() -> Iterator[Row]:
    done, result = run("t0-failure")
    rate = figure(result, "workloads.0.flow_gbps.mean")
    chart = Chart("A T0 of eight dies at 20 us", TIME, RATE, [over_time(done)], shades=curves.outages(done))
    yield Row("10", "one T0 of eight dead", "in proportion: 7/8 of 770 = 673 Gb/s", f"{rate:.0f} Gb/s",
              (Rule("ratio", [rate / 673], 0.97, 1.03),), "", rate / 673, {"t0-failure": chart})  # fmt: skip


def same_ev() -> Iterator[Row]:
    path, evs = "goodput_gbps.flow.mean", (1, 2, 4, 8, 16, 64)
    found = [figure(run("same-ev", transport=Transport(settings={"evs": many}))[1], path) for many in evs]
    rate = figure(run("same-ev")[1], path)
    chart = Chart("Two pairs between the same T0s", "EVs of a queue pair", "Gb/s of a pair", [curve(evs, found)])
    yield Row("12", "each of two pairs on one plane of 400G", "no loss of performance", f"{rate:.0f} Gb/s",
              (Rule("ratio", [rate / 394], 0.95),),
              f"ratio to the rate without headers, 394; {listed(found, evs, 'EVs')}", rate / 394,
              {"same-ev": chart})  # fmt: skip


def ring() -> Iterator[Row]:
    qps, few, sizes = (1, 2, 4, 8, 16), (1, 4, 16), (4, 16, 64)
    clean, small, great = ([_ring_mrc(size, loss) for size in sizes] for loss in ((), SMALL_LOSS, GREAT_LOSS))
    roce = {many: _ring_roce(many, 16, ()) for many in qps}
    split = [_ring_roce(16, 4, ()), roce[16], _ring_roce(16, 64, ())]
    lossy = [_ring_roce(many, 16, SMALL_LOSS) for many in few]
    bad = _ring_roce(4, 4, GREAT_LOSS)
    best = max(roce.values())
    over_qps = [curve(qps, roce.values(), "RoCEv2"), curve(few, lossy, "RoCEv2, 0.1 % loss"),
                curve(qps, [clean[1]] * 5, "MRC, one queue pair")]  # fmt: skip
    over_sizes = [curve(sizes, clean, "no loss"), curve(sizes, small, "0.1 %"), curve(sizes, great, "1 %")]
    charts = {
        "ring-qps": Chart("Ring all-reduce of 64, 16 MiB", "queue pairs", "Gb/s a NIC sends", over_qps),
        "ring-sizes": Chart("Ring all-reduce of 64, MRC, loss on all planes", "MiB", "Gb/s a NIC sends", over_sizes),
        "ring-both": Chart(
            "Ring all-reduce of 64 without loss",
            "MiB",
            "Gb/s a NIC sends",
            [curve(sizes, clean, "MRC, one queue pair"), curve(sizes, split, "RoCEv2, 16 queue pairs")],
        ),
    }
    yield Row("13", "RoCEv2, one queue pair, of its best", "about half", f"{100 * roce[1] / best:.0f} %",
              (Rule("share, %,", [100 * roce[1] / best], 35, 65),),
              "16 MiB; by queue pairs: " + listed(roce.values(), qps, "QPs") + " Gb/s",
              roce[1] / best / 0.5, charts)  # fmt: skip
    yield Row("13", "RoCEv2, 16 queue pairs against 8", "little gain", f"{100 * (roce[16] / roce[8] - 1):+.0f} %",
              (Rule("gain, %,", [100 * (roce[16] / roce[8] - 1)], high=15),))  # fmt: skip
    ahead = [100 * (a / b - 1) for a, b in zip(clean, split, strict=True)]
    yield Row("13", "MRC, one queue pair, against RoCEv2 with 16, %", "better",
              listed(ahead, sizes, "MiB"), (Rule("each size", ahead, 0),),
              f"MRC {listed(clean, sizes, 'MiB')}, RoCEv2 {listed(split, sizes, 'MiB')} Gb/s. Published sizes reach 16 "
              "GiB. A message is a 64th of the vector, and the small ones wait for latency: a packet takes four times "
              "as long to leave a port of 100G as one of 400G, at every hop")  # fmt: skip
    kept = [[100 * a / b for a, b in zip(mine, clean, strict=True)] for mine in (small, great)]
    why = (
        "of the same without loss. Published sizes reach 16 GiB; a simulated step is short compared with the repair of "
        "a loss"
    )
    yield Row("14", "MRC at 0.1 % loss on all planes, %", "little impact on large messages, more on small",
              listed(kept[0], sizes, "MiB"),
              (Rule("largest", kept[0][2:], 80),
              Rule("smallest less largest", [kept[0][0] - kept[0][2]], high=0)), why)  # fmt: skip
    result = [100 * a / roce[many] for a, many in zip(lossy, few, strict=True)]
    yield Row("14", "RoCEv2 at 0.1 % loss, %", "collapses", listed(result, few, "QPs"),
              (Rule("each", result, high=50),),
              "of the same without loss; go-back-N, retransmission timeout 1 ms")  # fmt: skip
    bad_why = (
        "of the same without loss; every link loses 1 %, so a packet across T1 meets four chances. Small messages, "
        "which wait for each repair, keep the least; larger ones repair losses while they send further data. "
        "Reproduced at the smallest size only: losses are repaired sooner here; the next row tests that assumption"
    )
    yield Row("15", "MRC at 1 % loss on all planes, %", "about one third of the intended",
              listed(kept[1], sizes, "MiB"),
              (Rule("each size", kept[1], 20, 50),), bad_why, kept[1][2] / 33)  # fmt: skip
    floors = (20, 40, 80)
    slow = [100 * _ring_mrc(16, GREAT_LOSS, floor) / _ring_mrc(16, (), floor) for floor in floors]
    yield Row("15", "the same at 16 MiB, if a loss takes at least so long to notice, %", "about one third",
              listed(slow, floors, "us"),
              (Rule("distance of the nearest from 33", [min(abs(kept - 33) for kept in slow)], high=12),),
              "how fast hardware notices and repairs a loss was not published; `loss_delay_floor_us`")  # fmt: skip
    yield Row("15", "RoCEv2 at 1 % loss, 4 queue pairs", "unusable", f"{bad:.1f} Gb/s",
              (Rule("of its rate without loss, %,", [100 * bad / roce[4]], high=10),),
              f"4 MiB; MRC {great[0]:.0f} Gb/s")  # fmt: skip


def _ring_mrc(size: int, loss: tuple[Any, ...], floor_us: float = 0) -> float:
    work = workloads("ring-all-reduce", size=f"{size}MiB")
    given = of_file("ring-all-reduce").transport
    settings = {**given.settings, "loss_delay_floor_us": floor_us} if floor_us else given.settings
    carried = msgspec.structs.replace(given, settings=settings)
    return _sent_gbps(run("ring-all-reduce", workloads=work, faults=loss, transport=carried)[1])


def _ring_roce(qps: int, size: int, loss: tuple[Any, ...]) -> float:
    work = workloads("ring-all-reduce-roce", size=f"{size}MiB")
    carried = Transport(name="roce", qps=qps)
    return _sent_gbps(run("ring-all-reduce-roce", workloads=work, faults=loss, transport=carried)[1])


def _sent_gbps(result: dict[str, Any]) -> float:
    """Return what each NIC sends over the time until all have finished."""
    return figure(result, "bytes") / figure(result, "hosts") * 8e-3 / figure(result, "last_finish_us")


def all_to_all() -> Iterator[Row]:
    single = of_file("ring-all-reduce-roce").fabric
    one = {"fabric": single, "transport": Transport(name="roce", qps=1)}
    few = "8 messages at a time"
    cases: dict[str, dict[str, Any]] = {
        "MRC": {},
        "RoCEv2, 1 queue pair": one,
        "RoCEv2, 16 queue pairs": one | {"transport": Transport(name="roce", qps=16)},
        "MRC, 0.1 % loss": {"faults": SMALL_LOSS},
        "RoCEv2, 1 queue pair, 0.1 % loss": one | {"faults": SMALL_LOSS},
        f"MRC, {few}": {},
        f"RoCEv2, 1 queue pair, {few}": one,
        "MRC, MTU of 1,024": {"transport": Transport(mtu=1024)},
        "RoCEv2, 1 queue pair, MTU of 1,024": one | {"transport": Transport(name="roce", mtu=1024)},
    }
    sizes = (16, 64, 256)

    def rate(label: str, size: int, **changes: Any) -> float:
        works = workloads("all-to-all", size=f"{size}KiB", window=8 if label.endswith(few) else 0)
        runs = [run("all-to-all", workloads=works, seed=seed, **changes)[1] for seed in SEEDS]
        return float(np.mean([_sent_gbps(each) for each in runs]))

    found = {label: [rate(label, size, **changes) for size in sizes] for label, changes in cases.items()}
    lines = [curve(sizes, rates, label) for label, rates in found.items()]
    chart = Chart("All-to-all of 64", "KiB of a message", "Gb/s a NIC", lines)
    mrc, first, many, hurt, harmed, mrc_few, first_few, mrc_short, first_short = found.values()
    better = [100 * (a / b - 1) for a, b in zip(mrc, first, strict=True)]
    windowed = [100 * (a / b - 1) for a, b in zip(mrc_few, first_few, strict=True)]
    shorter = [100 * (a / b - 1) for a, b in zip(mrc_short, first_short, strict=True)]
    why = (
        f"means of {len(SEEDS)} seeds. Published sizes are 64 KiB to 256 MiB per message; smaller ones are not judged. "
        "With packets of 1,024 bytes on both, which leave a port of 100G sooner at every hop, "
        f"{listed(shorter, sizes, 'KiB')}; with {few}, "
        f"{listed(windowed, sizes, 'KiB')}. Neither number was published"
    )
    yield Row("16", "MRC against RoCEv2 with one queue pair, %", "better at all sizes", listed(better, sizes, "KiB"),
              (Rule("each size from 64 KiB on", better[1:], 0),), why, charts={"all-to-all": chart})  # fmt: skip
    split = [100 * (a / b - 1) for a, b in zip(many, first, strict=True)]
    yield Row("16", "RoCEv2, 16 queue pairs against 1, %", "slightly worse", listed(split, sizes, "KiB"),
              (Rule("each size", split, -20, 0),),
              "not reproduced: the cost of many queue pairs inside a NIC is not modelled")  # fmt: skip
    lost = [100 * (a / b - 1) for a, b in zip(hurt, harmed, strict=True)]
    yield Row("16", "at 0.1 % loss, MRC against RoCEv2 with one queue pair, %", "better, small messages most",
              listed(lost, sizes, "KiB"), (Rule("each size", lost, 0),))  # fmt: skip


def incast() -> Iterator[Row]:
    cases = (
        ("18a", "RoCEv2 with DCQCN, 1 queue pair", Transport(name="roce", qps=1)),
        ("18b", "RoCEv2 with DCQCN, 8 queue pairs", Transport(name="roce", qps=8)),
        ("18c", "MRC, 1 queue pair", Transport()),
        ("21b", "RoCEv2 with PFC alone, 1 queue pair", Transport(name="roce", qps=1, settings={"dcqcn": False})),
        ("21c", "RoCEv2 with PFC alone, 8 queue pairs", Transport(name="roce", qps=8, settings={"dcqcn": False})),
    )
    seeds = range(1, 7)
    for number, label, transport in cases:
        paper = published_flows(number)
        found = np.array([incast_rates(transport, seed) for seed in seeds])  # seven flows, then the victim
        mean, theirs = float(found[:, -1].mean()), paper["victim"]
        others = [rate for flow, rate in paper.items() if flow != "victim"]
        chart = Chart(f"Figure {number}: {label}", "flows, slowest first, the victim last", "Gb/s", [
            curve(range(1, 9), [*sorted(others), theirs], "arXiv 2605.04333"),
            curve(range(1, 9), [*np.sort(found[:, :-1]).mean(axis=0), mean], "simulated, mean of six seeds"),
        ])  # fmt: skip
        why = f"the seven share {found[:, :-1].sum(axis=1).mean():.0f} Gb/s (published {sum(others):.0f})"
        if transport.name == "roce":
            why += ". ECMP draws the uplinks on which the victim meets the incast; the published run is one such draw"
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


def watched(name: str, transport: Transport, seed: int) -> Watched:
    """Run a file of scenarios/paper over a transport, and look at its flows each `LOOK_US`."""
    made = msgspec.structs.replace(of_file(name), transport=transport, seed=seed)
    prepared = prepare(made)
    topology, flows = prepared.topology, prepared.work.traffic
    links = [int(np.flatnonzero(topology.link_destination == nic)[0]) for nic in flows.destination]
    at, crossed = [0], [[0] * len(links)]

    def look(world: loop.World) -> None:
        if world.now >= at[-1] + LOOK_US * PS_PER_US:
            at.append(world.now)
            crossed.append([int(world.network.ports[link].data_bytes) for link in links])

    carried = transport_of(transport, topology)
    done = loop.run(topology, flows, carried, seed=seed, observe=look)
    all_finished(made.name, done.finished)
    network = carried.network_settings()
    share = network.mtu / (network.mtu + network.header)
    return Watched(done.finished - done.started, flows.size, np.array(at), np.array(crossed) * share)


def incast_rates(transport: Transport, seed: int) -> NDArray[np.float64]:
    """Return the rates of seven flows to one NIC over their own times, and of the victim while all of them run."""
    seen = watched("incast-victim", transport, seed)
    rates: NDArray[np.float64] = seen.size * 8e3 / seen.took
    until = seen.took[:-1].min()
    if until < seen.took[-1]:
        rates[-1] = seen.rates(0, seen.at[seen.at <= until][-1])[-1]
    return rates


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
    point_to_point, latency, cold_start, t1_reboot, transceiver, nic_link_down, links_down, t0_failure, same_ev, ring,
    all_to_all, incast, permutation, uplinks,
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
