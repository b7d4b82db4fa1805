"""MRC, TCP and MPTCP compared: the same lab, the same two NICs, the same cable pulled for the same time.

TCP and MPTCP are the kernel's and use IPv6 in IPv6 over the same SRv6 paths; TCP has one path, chosen by the hash of
its ports, MPTCP one connection on each plane. The lab runs no routing protocol: a transport that cannot avoid a failed
path waits until it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from openmrc.errors import ConfigError, MrcError
from openmrc.faults import Schedule
from openmrc.lab.experiments import simulated
from openmrc.lab.experiments.measures import Measures, measure, timeline
from openmrc.lab.experiments.stream import KINDS
from openmrc.lab.experiments.trial import Trial, stream
from openmrc.lab.faults import Breaker
from openmrc.lab.layout import Lab

_NS = 1_000_000_000
_COLORS = {"mrc": "#0b6e4f", "mptcp": "#c8553d", "tcp": "#4a5899", "iperf3": "#9a8c98", simulated.KIND: "#e0a100"}
_LABELS = {
    "mrc": "MRC",
    "mptcp": "MPTCP (kernel)",
    "tcp": "TCP (kernel)",
    "iperf3": "TCP by iperf3, 0.1 s intervals",
    simulated.KIND: "MRC (simulated)",
}
_LINES = {"iperf3": "--", simulated.KIND: ":"}
_NOTE = (
    "Data counts when it is delivered in order, in steps of 50 ms: data that waited behind a missing packet\n"
    "is delivered at once when the packet arrives, so a step after a stall may exceed the line rate."
)
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


def differences() -> Sequence[str]:
    """Return the reasons for differences between a simulated run and the lab."""
    return simulated.DIFFERENCES


def _outage(where: str, out_s: float) -> Schedule:
    return Schedule.parse(f"at: {_BEFORE_S}s, for: {out_s}s, down: {where}", "compare")


def _run(trial: Trial) -> ComparedRun:
    pulled, back = (step.monotonic_ns for step in trial.steps)
    end = min(back + 2 * _NS, int(trial.times[-1]))
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


def facts(runs: Sequence[ComparedRun], absent: dict[str, str]) -> dict[str, Any]:
    """Return the figures for JSON."""
    return {"runs": [asdict(run.measures) for run in runs], "absent": absent}


def plot(runs: Sequence[ComparedRun], path: Path, title: str) -> None:
    """Draw the rate of each transport over time, the outage shaded; SVG or PNG by the file's suffix."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4.8), layout="constrained")
    longest = max((run.back - run.pulled) / _NS for run in runs)
    axes.axvspan(0, longest, color="#d9d9d9", lw=0, label="cable out")
    for run in runs:
        seconds, gbps = timeline(run.trial, run.pulled, run.end)
        kind = run.measures.kind
        axes.step(
            seconds, gbps, where="post", color=_COLORS[kind], ls=_LINES.get(kind, "-"), lw=1.6, label=_LABELS[kind]
        )
    axes.set_xlabel("seconds after the cable was pulled")
    axes.set_ylabel("delivered, Gb/s")
    axes.set_ylim(bottom=0)
    axes.set_title(title, loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=len(runs) + 1, frameon=False)
    figure.supxlabel(_NOTE, fontsize=8, color="#555555")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
