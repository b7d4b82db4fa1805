"""MRC, TCP and MPTCP compared: the same lab, the same two NICs, the same cable pulled for the same time.

TCP and MPTCP are the kernel's and use IPv6 in IPv6 over the same SRv6 paths; TCP has one path, chosen by the hash of
its ports, MPTCP one connection on each plane. The lab runs no routing protocol: a transport that cannot avoid a failed
path waits until it returns. iperf3 reports intervals of a tenth of a second, so its stalls have that resolution.

    mrc lab up scenarios/fabrics/lab-slow.yaml
    sudo python -m bench.lab.compare lab-slow h0 h5 --simulate --plot compare.svg
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.lab.experiments import simulated
from bench.lab.experiments.measures import Measures, measure, timeline
from bench.lab.experiments.stream import KINDS
from bench.lab.experiments.trial import Trial, stream
from openmrc.base.faults import Schedule
from openmrc.errors import ConfigError, MrcError
from openmrc.lab.faults import Breaker
from openmrc.lab.layout import Lab
from openmrc.report.svg import Chart, Curve, ShadedTime, draw, standalone
from openmrc.units import NS_PER_S

_LABELS = {
    "mrc": "MRC",
    "mptcp": "MPTCP (kernel)",
    "tcp": "TCP (kernel)",
    "iperf3": "TCP by iperf3, 0.1 s intervals",
    simulated.KIND: "MRC (simulated)",
}
_BEFORE_S, _AFTER_S = 1.5, 3.0


@dataclass(frozen=True)
class ComparedRun:
    """The run of one transport."""

    measures: Measures
    trial: Trial
    pulled: int
    back: int
    end: int


def compare(
    breaker: Breaker, source: str, destination: str, where: str, out_s: float, kinds: Sequence[str] = KINDS
) -> tuple[list[ComparedRun], dict[str, str]]:
    """Run each transport; return their runs, and the reasons for those that were skipped."""
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise ConfigError(f"--kinds: {unknown[0]!r} is not one of {', '.join(KINDS)}")
    runs, absent = [], {}
    for kind in kinds:
        try:
            runs.append(one(breaker, kind, source, destination, where, out_s))
        except MrcError as error:
            absent[kind] = str(error)
            breaker.clear()
        except BaseException:
            breaker.clear()
            raise
    return runs, absent


def one(breaker: Breaker, kind: str, source: str, destination: str, where: str, out_s: float) -> ComparedRun:
    """Run one transport: 1.5 s, an outage, 2 s."""
    schedule = _outage(where, out_s)
    breaker.check(schedule)
    seconds = _BEFORE_S + out_s + _AFTER_S
    return _run(stream(breaker, kind, source, destination, seconds, lambda: breaker.run(schedule)))


def simulate(lab: Lab, source: str, destination: str, where: str, out_s: float) -> ComparedRun:
    """Run the same on the simulator."""
    return _run(simulated.stream(lab, source, destination, _BEFORE_S + out_s + _AFTER_S, _outage(where, out_s)))


def _outage(where: str, out_s: float) -> Schedule:
    return Schedule.parse(f"at: {_BEFORE_S}s, for: {out_s}s, down: {where}", "compare")


def _run(trial: Trial) -> ComparedRun:
    pulled, back = (step.monotonic_ns for step in trial.steps)
    end = min(back + 2 * NS_PER_S, int(trial.times[-1]))
    return ComparedRun(measure(trial, pulled, back, end), trial, pulled, back, end)


def table(runs: Sequence[ComparedRun]) -> str:
    """Return the figures as text."""
    heads = (
        "",
        "Gb/s before",
        "during",
        "after",
        "stall ms",
        "quiet ms",
        "recover ms",
        "re-use ms",
        "missed MB",
        "bytes",
    )
    lines = ["".join(f"{head:>13}" for head in heads)]
    for each in (run.measures for run in runs):
        rates = f"{each.before_gbps:>13.3f}{each.during_gbps:>13.3f}{each.after_gbps:>13.3f}"
        times = "".join(f"{_ms(value):>13}" for value in (each.stall_ms, each.quiet_ms, each.recover_ms, each.reuse_ms))
        whole = "all whole" if each.whole else "DAMAGED"
        lines.append(f"{each.kind:>13}{rates}{times}{each.missed_mbytes:>13.2f}{whole:>13}")
    return "\n".join(lines)


def _ms(value: float) -> str:
    return "never" if value < 0 else f"{value:.1f}"


def plot(runs: Sequence[ComparedRun], path: Path, title: str) -> None:
    """Draw the rate of each transport over time as SVG, the outage shaded.

    Data counts when it is delivered in order, in steps of 50 ms: data that waited behind a missing packet is delivered
    at once when the packet arrives, so a step after a stall may exceed the line rate.
    """
    longest = max((run.back - run.pulled) / NS_PER_S for run in runs)
    curves = [Curve(_LABELS[run.measures.kind], *timeline(run.trial, run.pulled, run.end)) for run in runs]
    shades = [ShadedTime(0.0, longest, "cable out")]
    chart = Chart(title, "seconds after the cable was pulled", "delivered, Gb/s", curves, shades=shades, steps=True)
    path.write_text(standalone(draw(chart), f"{title}: {', '.join(curve.label for curve in curves)}"), encoding="utf-8")


def main() -> None:
    """Compare transports in a lab that is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lab")
    parser.add_argument("source", nargs="?", default="h0")
    parser.add_argument("destination", nargs="?", help="default: the last NIC")
    parser.add_argument("--pull", help="cable to pull; default: the source's on plane 0")
    parser.add_argument("--out", type=float, default=2.0, help="seconds until the cable returns")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--simulate", action="store_true", help="also run MRC on the simulator")
    parser.add_argument("--plot", type=Path, help="SVG file for the timeline")
    asked = parser.parse_args()
    breaker = Breaker(asked.lab)
    ends = asked.source, asked.destination or breaker.lab.nics()[-1]
    pulled = asked.pull or f"{asked.source} port 0"
    runs, absent = compare(breaker, *ends, pulled, asked.out, asked.kinds.split(","))
    if asked.simulate:
        runs.append(simulate(breaker.lab, *ends, pulled, asked.out))
    print(table(runs), *(f"{kind}: skipped: {why}" for kind, why in absent.items()), sep="\n")
    if asked.simulate:
        print("Reasons for differences between simulation and lab:", *simulated.DIFFERENCES, sep="\n* ")
    if asked.plot is not None and runs:
        plot(runs, asked.plot, f"{ends[0]} to {ends[1]}, {pulled} pulled for {asked.out:g} s")


if __name__ == "__main__":
    main()
