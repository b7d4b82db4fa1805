"""Sampled data as curves, for the whole run and for the time around a fault."""

from dataclasses import dataclass

import numpy as np

from openmrc.core.arrays import Floats
from openmrc.report.svg import Band, Curve, ShadedTime
from openmrc.sim.results.samples import Samples
from openmrc.sim.results.summary import SimulationRun
from openmrc.units import PS_PER_S, PS_PER_US

MOST_WINDOWS = 8  # connections in one chart: the number of colours
TRANSITIONS = {  # of EVs and ports, by cause; counters of the transport's series
    "lost": "out of use: packets lost",
    "always_skip": "out of use: responder's mark",
    "probes_answered": "restored: probes answered",
    "probe_marked": "restored: a probe came marked",
    "least_bad": "restored: none better left",
    "arrived": "restored: nothing was lost",
    "local_ports": "own port changed",
    "peer_ports": "peer's port changed",
    "silences": "port silent: data takes the others",
}


def times(samples: Samples, zero: int = 0) -> Floats:
    """Return the times in us after `zero` (ps)."""
    moments: Floats = (samples.at - zero) / PS_PER_US
    return moments


def outages(run: SimulationRun, zero: int = 0) -> list[ShadedTime]:
    """Return when something is broken (us after `zero`, ps); to the end of the run if nothing mends it."""
    spans = [
        (each.at, run.results.now if each.until is None else each.until, each.text)
        for each in run.events
        if each.begins
    ]
    return [ShadedTime((begin - zero) / PS_PER_US, (end - zero) / PS_PER_US, text) for begin, end, text in spans]


def goodput(run: SimulationRun, samples: Samples, zero: int = 0) -> list[Curve]:
    """Return the payload from the last switches to the NICs, a curve per plane (Gb/s)."""
    whole = run.network.mtu + run.network.header
    lines = []
    for at, group in enumerate(samples.groups):
        if group.name == "t0>nic" and len(samples.at) > 1:
            left = samples.values["data_bytes"][:, at] - samples.values["queue_bytes"][:, at]
            carried = np.diff(left - samples.values["lost"][:, at] * whole) * (run.network.mtu / whole)
            seconds = np.diff(samples.at) / PS_PER_S
            rate = np.maximum(0.0, carried * 8e-9 / seconds)  # a dead link counts a packet before losing it
            lines.append(Curve(f"plane {group.plane}", times(samples, zero)[1:], rate))
    return lines


APART = 0.8  # a plane below this share of the median is drawn individually
MANY_PLANES = 4  # more curves would overlap
MOST_APART = 4


def of_planes(lines: list[Curve]) -> tuple[list[Curve], Band | None]:
    """Return the drawing of many planes: a band from lowest to highest, the median, and planes far below it."""
    if len(lines) <= MANY_PLANES:
        return lines, None
    rates = np.array([line.y for line in lines])
    middle = np.median(rates, axis=0)
    counts = middle > 0.1 * max(1e-9, float(middle.max()))
    behind = np.where(counts, 1 - rates / np.maximum(middle, 1e-9), 0).max(axis=1)
    chosen = [int(at) for at in np.argsort(-behind, kind="stable")[:MOST_APART] if behind[at] > 1 - APART]
    band = Band(f"all {len(lines)} planes", lines[0].x, rates.min(axis=0), rates.max(axis=0))
    return [Curve("median of planes", lines[0].x, middle), *(lines[at] for at in sorted(chosen))], band


def apart(samples: Samples, least: int) -> Samples:
    """Return times that are at least this far apart (ps): a rate over a very short time is noise."""
    kept, last = [], -least
    for row, at in enumerate(samples.at.tolist()):
        if at - last >= least:
            kept.append(row)
            last = at
    return samples.rows(np.array(kept, np.int64))


def queues(samples: Samples, zero: int = 0) -> list[Curve]:
    """Return the longest queue of all ports in the same direction (us to drain)."""
    names = list(dict.fromkeys(group.name for group in samples.groups if not group.name.startswith("nic")))
    lines = []
    for name in names if len(samples.at) else []:
        mine = [at for at, group in enumerate(samples.groups) if group.name == name]
        longest = samples.values["queue_longest_ps"][:, mine].max(axis=1)
        lines.append(Curve(name, times(samples, zero), longest / PS_PER_US))
    return lines


def rates(samples: Samples) -> list[Curve]:
    """Return trims, drops, losses and marks (packets per us)."""
    if len(samples.at) < 2:
        return []
    us = np.diff(samples.at) / PS_PER_US
    shown = (("trimmed", "trimmed"), ("dropped", "dropped, queue full"), ("lost", "lost on links"))
    lines = [Curve(label, times(samples)[1:], np.diff(samples.total(name)) / us) for name, label in shown]
    return [*lines, Curve("ECN marked", times(samples)[1:], np.diff(samples.total("ecn_marked")) / us)]


def transitions(samples: Samples, zero: int = 0) -> list[Curve]:
    """Return the EVs taken out of use and restored, by cause, counted from the first of these times."""
    lines = []
    for name, label in TRANSITIONS.items():
        counted = samples.series.get(name)
        if counted is not None and len(counted) and counted[-1] > counted[0]:
            lines.append(Curve(label, times(samples, zero), (counted - counted[0]).astype(np.float64)))
    return lines


@dataclass(frozen=True)
class Watch:
    """A recorded property of some connections, and its display."""

    column: str  # of windows.parquet
    title: str
    unit: str
    scale: float
    note: str


WATCHED = (
    Watch("cwnd_bytes", "Windows of some connections", "KiB", 1 / 1024, "Congestion windows towards the destination"),
    Watch(
        "rate_gbps",
        "Rates of some connections",
        "Gb/s",
        1.0,
        "DCQCN rate of the message in progress; 0 between messages",
    ),
    Watch("inflight_bytes", "Bytes in flight", "KiB", 1 / 1024, "For the same connections"),
)


def watched(run: SimulationRun, samples: Samples, what: Watch, zero: int = 0) -> list[Curve]:
    """Return the recorded property of the watched connections, a curve each."""
    values = samples.windows.get(what.column)
    if values is None or not values.size:
        return []
    name, traffic = run.topology.name, run.work.traffic
    count = len(samples.flows)
    shown = np.arange(min(count, MOST_WINDOWS)) * count // min(count, MOST_WINDOWS)
    lines = []
    for at in shown:
        ends = (int(side[samples.flows[at]]) for side in (traffic.source, traffic.destination))
        lines.append(Curve(" to ".join(map(name, ends)), times(samples, zero), values[:, at] * what.scale))
    return lines


def out_of_use(samples: Samples) -> list[Curve]:
    """Return the number of EVs of all queue pairs that are not in use."""
    counted = samples.series.get("evs_out")
    return [] if counted is None else [Curve("EVs out of use", times(samples), counted.astype(np.float64))]
