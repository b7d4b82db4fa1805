"""The cost of failures to a training job: Monte Carlo over the network's parts, for MRC and for single-path RoCE.

The job is synchronous and uses every NIC of the design, so the slowest NIC sets its pace. A share of each step is
communication that computation does not hide; a NIC with reduced capacity takes proportionally longer for that share.

MRC: a failed link, port or T0 removes a plane from the NICs that it serves, a link or switch above a share of a plane;
the job continues at the pace of the slowest NIC. It stops only when a NIC has lost all planes, or the module that all
its ports share.

Single-path RoCE: a NIC without its link, T0 or module is unreachable. An outage within the transport's retry time
stalls the whole job; a longer one stops it. A failed link or switch above costs capacity as above, and rerouting is
free: the model omits hash collisions, congestion spreading and slow reconvergence, which favours RoCE.

A stop costs the work since the last checkpoint (uniform in the interval) and the restart; spares are available, so
repair is not waited for. Failures are Poisson with the parts file's means, repairs exponential. They are drawn for the
days the job runs; stops add to that: goodput = (running - slower - stalled) / (running + stops). Hosts fail equally in
both cases; `network_goodput` excludes their failures.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from openmrc.errors import ConfigError
from openmrc.fabric.model.parts import FailureRate, Parts
from openmrc.fabric.planning.design import Design

Transport = Literal["mrc", "roce"]
SECONDS = 3600.0  # an hour


@dataclass(frozen=True)
class AvailabilityJob:
    """Parameters of a job and its recovery; the defaults are assumptions."""

    days: float = 30
    exposed: float = 0.2  # share of a step that is communication not hidden by computation
    checkpoint_minutes: float = 30
    restart_minutes: float = 15
    patience_s: float = 30  # RoCE: longest outage that retries survive

    def check(self) -> None:
        """Refuse values out of range."""
        allowed = (
            ("days", self.days > 0, "more than 0"),
            ("exposed", 0 <= self.exposed <= 1, "0 to 1"),
            ("checkpoint-minutes", self.checkpoint_minutes >= 0, "0 or more"),
            ("restart-minutes", self.restart_minutes >= 0, "0 or more"),
            ("patience-s", self.patience_s >= 0, "0 or more"),
        )
        for name, good, said in allowed:
            if not good:
                raise ConfigError(f"{name} = {getattr(self, name.replace('-', '_'))}; {said} is allowed")


@dataclass(frozen=True)
class Forecast:
    """Expected values over the trials; hours are GPU-hours of the whole job."""

    design: str
    transport: Transport
    gpus: int
    days: float
    trials: int
    goodput: float  # mean share of the time spent on useful work
    network_goodput: float  # the same without host failures; mean and percentiles
    network_goodput_p5: float
    network_goodput_p95: float
    network_stops: float  # a job
    host_stops: float
    lost_network_stops: float  # GPU-hours
    lost_host_stops: float
    lost_slower: float
    lost_stalled: float


@dataclass(frozen=True)
class _Failures:
    """Failures of one kind of part in one trial."""

    start: Any  # hours
    hours: Any
    part: Any  # which of the parts


def forecast(
    design: Design, parts: Parts, transport: Transport, job: AvailabilityJob, trials: int, seed: int
) -> Forecast:
    """Simulate the job `trials` times."""
    job.check()
    lost = np.array([_trial(design, parts, transport, job, np.random.default_rng([seed, n])) for n in range(trials)])
    hours = job.days * 24
    running = hours - lost[:, 4] - lost[:, 5]
    network = running / (hours + lost[:, 2])
    mean = lost.mean(axis=0)
    by_cause = mean[2:] * design.nics
    return Forecast(
        design=design.name, transport=transport, gpus=design.nics, days=job.days, trials=trials,
        goodput=float((running / (hours + lost[:, 2] + lost[:, 3])).mean()), network_goodput=float(network.mean()),
        network_goodput_p5=float(np.percentile(network, 5)), network_goodput_p95=float(np.percentile(network, 95)),
        network_stops=float(mean[0]), host_stops=float(mean[1]),
        lost_network_stops=float(by_cause[0]), lost_host_stops=float(by_cause[1]),
        lost_slower=float(by_cause[2]), lost_stalled=float(by_cause[3]),
    )  # fmt: skip


def _trial(
    design: Design, parts: Parts, transport: Transport, job: AvailabilityJob, draw: np.random.Generator
) -> list[float]:
    """Return network stops, host stops, and the hours lost by stops, slowdown and stalls."""
    rates, hours = parts.failures, job.days * 24
    nic_links = design.nics * design.planes
    upper_links = design.networks * sum(design.network.links[1:])
    t0s = design.networks * design.network.switches[0]
    upper = design.total_switches - t0s

    def drawn(failure: FailureRate, count: int) -> _Failures:
        size = draw.poisson(count * hours / failure.mtbf_hours)
        start, repair = draw.uniform(0, hours, size), draw.exponential(failure.mttr_hours, size)
        return _Failures(start, np.minimum(repair, hours - start), draw.integers(0, max(count, 1), size))

    edge = [drawn(rates.nic_link, nic_links), drawn(rates.flap, nic_links)]
    modules, t0 = drawn(rates.nic_optic, design.nics), drawn(rates.t0, t0s)
    link, spine = _link_share(design), _spine_share(design)
    above = [(drawn(rates.fabric_link, upper_links), link), (drawn(rates.flap, upper_links), link)]
    above.append((drawn(rates.t1, upper), spine))
    host_stops = int(draw.poisson(design.nics * hours / parts.host.mtbf_hours))
    if transport == "mrc":
        stops, slower = _sweep(design, edge, t0, above, job, hours)
        stops += len(modules.start)
        stalled = 0.0
    else:
        outages = np.concatenate([each.hours for each in (*edge, t0, modules)])
        patient = outages * SECONDS <= job.patience_s
        stops, stalled = int((~patient).sum()), float(outages[patient].sum())
        slower = _sweep(design, [], _Failures(np.array([]), np.array([]), np.array([])), above, job, hours)[1]
    lost = [_restarts(stops, job, draw), _restarts(host_stops, job, draw)]
    return [float(stops), float(host_stops), *lost, slower, stalled]


def _link_share(design: Design) -> float:
    """Return the share of a NIC's capacity that one link above T0 carries."""
    return 1 / design.planes / design.network.up if design.tiers > 1 else 0.0


def _spine_share(design: Design) -> float:
    return design.loss_percent()["t1"] / 100 / design.planes


def _restarts(stops: int, job: AvailabilityJob, draw: np.random.Generator) -> float:
    """Return the hours lost by stops: work since the last checkpoint, and the restart."""
    return float(draw.uniform(0, job.checkpoint_minutes / 60, stops).sum() + stops * job.restart_minutes / 60)


def _sweep(
    design: Design,
    edge: list[_Failures],
    t0: _Failures,
    above: list[tuple[_Failures, float]],
    job: AvailabilityJob,
    hours: float,
) -> tuple[int, float]:
    """Process failures and repairs in order of time; return stops (a NIC without planes) and hours lost by slowdown.

    Failures above T0 are added up as if all affected the paths of one NIC: pessimistic, and small.
    """
    events: list[tuple[float, int, int, int, float]] = []  # time, +1 or -1, kind, part, share
    kinds = [*((0, each, 0.0) for each in edge), (1, t0, 0.0), *((2, each, share) for each, share in above)]
    for kind, failures, share in kinds:
        columns = (failures.start.tolist(), failures.hours.tolist(), failures.part.tolist())
        for start, length, part in zip(*columns, strict=True):
            events += [(start, 1, kind, part, share), (start + length, -1, kind, part, share)]
    events.sort()
    state = _Worst(design)
    stops, lost, before = 0, 0.0, 0.0
    for time, step, kind, part, share in events:
        lost += (time - before) * state.slowness(job.exposed)
        before = time
        if state.change(step, kind, part, share):
            stops += 1
    return stops, lost + (hours - before) * state.slowness(job.exposed)


class _Worst:
    """Tracks the slowest NIC. A part of kind 0 is NIC x planes + plane, of kind 1 a T0."""

    def __init__(self, design: Design) -> None:
        self.planes = design.planes
        self.t0_per_plane = max(1, design.networks * design.network.switches[0] // design.planes)
        self.nics_per_t0 = max(1, -(-design.nics // self.t0_per_plane))
        self.links: Counter[tuple[int, int]] = Counter()  # (NIC, plane) -> failures
        self.t0s: Counter[tuple[int, int]] = Counter()  # (group of NICs, plane) -> failures
        self.above = 0.0
        self.lost = 0  # planes of the slowest NIC

    def change(self, step: int, kind: int, part: int, share: float) -> bool:
        """Record a failure or repair; return whether it took a NIC's last plane."""
        if kind == 2:
            self.above = max(0.0, self.above + step * share)
            return False
        table, width = (self.links, self.planes) if kind == 0 else (self.t0s, self.t0_per_plane)
        key = divmod(part, width) if kind == 0 else divmod(part, width)[::-1]
        table[key] += step
        if not table[key]:
            del table[key]
        before, self.lost = self.lost, self._worst()
        return self.lost >= self.planes > before

    def _worst(self) -> int:
        """Count the planes lost by the slowest NIC; few parts are down at a time."""
        planes: dict[int, set[int]] = {}
        for group, plane in self.t0s:
            planes.setdefault(-1 - group, set()).add(plane)
        for nic, plane in self.links:
            planes.setdefault(nic, set()).add(plane)
        for nic in [nic for nic in planes if nic >= 0]:
            planes[nic] |= planes.get(-1 - nic // self.nics_per_t0, set())
        return max((len(each) for each in planes.values()), default=0)

    def slowness(self, exposed: float) -> float:
        """Return the share of time lost at the current pace."""
        left = max(1e-9, 1 - min(self.lost, self.planes) / self.planes - self.above)
        if self.lost >= self.planes:
            left = 1 - self.above  # stopped and restarted without that NIC
        return 1 - 1 / (1 - exposed + exposed / max(left, 1e-9))
