"""What can fail in a design, how often, and what it does to the job: parts, responses and policy joined.

    design x parts      how many of each part, how often one fails, how long it takes to repair
    table of responses  how much slower each collective becomes, and what it costs once
    groups              how much of that a step waits for
    policy              patience, remapping, rerouting, maintenance

Maintenance of T0s waits for the next stop of the job and costs nothing on any network, unless nothing is drained. A
favour to RoCE: a retransmission timeout is 1 ms, as measured in the table, not NCCL's 4.3 s.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, sqrt

from openmrc.errors import ConfigError
from openmrc.fabric.model.parts import FailureRate, Parts
from openmrc.planner.design import Design
from openmrc.planner.policy import Policy
from openmrc.planner.response_table import Responses
from openmrc.planner.rows import Effect
from openmrc.planner.structure import Parallelism, step

HOUR = 3600.0
DECADES = (-6, -5, -4, -3)  # of lost packets, each ten times as wide as the one before, and equally frequent
MEASURED_GREY = 1e-2
HASHED = ("roce", "roce_dual")  # a flow stays on one path: the slowest flow decides, whatever share of paths is left
TRAY_NICS, FEED_HOSTS, BATCH_LINKS = 16, 8, 64  # as in parts.yaml
BATCH_LOSS = 1e-3  # assumption
NAMES = {"other": "other host part", "feed": "power feed", "tray": "cable tray", "batch": "bad batch of links",
         "nic_optic": "NIC module"}  # fmt: skip


def in_words(cause: str) -> str:
    """Return a kind of failure as people write it: NIC link, cable tray, T0 reboot."""
    if cause in NAMES:
        return NAMES[cause]
    first, _, rest = cause.partition("_")
    name = first.upper() if first in ("nic", "t0", "t1", "gpu") else first
    return f"{name} {rest.replace('_', ' ')}".strip()


@dataclass(frozen=True)
class FailureKind:
    """One kind of failure of a design; `openmrc.planner.rows.FailureRow` explains the numbers."""

    name: str
    where: str  # network, host
    count: float  # parts
    mtbf_hours: float
    mean_s: float
    effect: Effect
    step: float
    nics: int = 0
    hosts: int = 0
    planes: int = 0
    is_swappable: bool = False
    once_s: float = 0.0
    again_s: float = 0.0

    @property
    def per_hour(self) -> float:
        return self.count / self.mtbf_hours


@dataclass(frozen=True)
class Situation:
    """A job on a design: everything that its failures depend on."""

    network: str  # as in the table of responses
    design: Design
    parts: Parts
    table: Responses
    groups: tuple[Parallelism, ...]
    policy: Policy
    nics_per_host: int = 8

    def check(self) -> None:
        """Refuse what does not fit together."""
        self.policy.check()
        for group in self.groups:
            group.check()
        if not self.groups:
            raise ConfigError("a job without groups exchanges nothing")
        if sum(group.share for group in self.groups) > 1:
            raise ConfigError("the groups' shares add up to more than the step")
        if self.network not in self.table.networks:
            raise ConfigError(f"network {self.network!r} was not measured; {', '.join(self.table.networks)} were")
        if self.design.islands > 1:
            raise ConfigError(f"{self.design.name} is {self.design.islands} separate networks; a job needs one")

    @property
    def calm_step(self) -> float:
        """Return the length of a step without failures, relative to one on the fastest network measured."""
        return step(self.groups, self._ratios({}))

    def slowed(self, kind: str, share: float | None = None, part: float = 1.0, least: float = 1.0) -> float:
        """Return the length of a step during a failure; `part` of what was measured, `least`: a limit of capacity."""
        held = None if self.network in HASHED else share
        slow = {
            group.collective: max(least, 1 + part * (self.table.slow(self.network, group.collective, kind, held) - 1))
            for group in self.groups
        }
        return step(self.groups, self._ratios(slow))

    def once(self, kind: str) -> float:
        """Return what a failure costs once (s): that of the slowest collective, as one is in progress at a time."""
        rows = [self.table.of(self.network, group.collective, kind) for group in self.groups]
        return max(0.0, max(row.once_us for row in rows) / 1e6)

    def stops(self, kind: str) -> bool:
        """Tell whether connections end in error by it."""
        return any(self.table.of(self.network, group.collective, kind).stops for group in self.groups)

    def _ratios(self, slow: dict[str, float]) -> dict[str, float]:
        return {
            group.collective: self.table.congestion(self.network, group.collective) * slow.get(group.collective, 1.0)
            for group in self.groups
        }


def lost_planes(situation: Situation) -> list[float]:
    """Return the length of a step by the planes that the slowest NIC has lost, up to the policy's limit."""
    planes = situation.design.planes
    steps = [situation.calm_step]
    for lost in range(1, most_lost(situation) + 1):
        kind = "nic_link" if lost == 1 else f"nic_link_{lost}"
        steps.append(situation.slowed(kind, least=planes / (planes - lost)))
    return steps


def most_lost(situation: Situation) -> int:
    """Return how many planes a NIC may lose before the job replaces it."""
    return min(situation.policy.most_lost, situation.design.planes - 1)


def failure_kinds(situation: Situation) -> list[FailureKind]:
    situation.check()
    return [*_at_nics(situation), *_above(situation), *_hosts(situation)]


def _hosts(situation: Situation) -> Iterator[FailureKind]:
    """Yield what stops a job on any network."""
    host = situation.parts.host
    for name in host.__struct_fields__:
        failure: FailureRate = getattr(host, name)
        yield _stop(situation, name, "host", failure, 1)
    yield _stop(situation, "feed", "host", situation.parts.failures.feed, FEED_HOSTS)


def _stop(situation: Situation, name: str, where: str, failure: FailureRate, hosts: int) -> FailureKind:
    """Return a failure at a NIC or its host that stops the job."""
    count, mean = situation.design.nics, failure.mttr_hours * HOUR
    return FailureKind(name, where, count, failure.mtbf_hours, mean, Effect.STOP, situation.calm_step, hosts=hosts)


def _at_nics(situation: Situation) -> Iterator[FailureKind]:
    """Yield the failures of NICs, their links and their T0s."""
    design, rates = situation.design, situation.parts.failures
    links, t0s = design.nics * design.planes, design.networks * design.network.switches[0]
    below = max(1, round(links / t0s))
    hosts = below if design.rails > 1 else ceil(below / situation.nics_per_host)
    tray = ceil(TRAY_NICS / situation.nics_per_host)
    yield _port(situation, "nic_link", links, rates.nic_link, 1, 1)
    yield _port(situation, "nic_flap", links, rates.nic_flap, 1, 1)
    yield _port(situation, "t0", t0s, rates.t0, below, hosts)
    yield _port(situation, "t0_reboot", t0s, rates.t0_reboot, below, hosts)
    yield _port(situation, "tray", design.nics, rates.tray, TRAY_NICS, tray)
    if not situation.policy.drain:
        yield _port(situation, "t0_maintenance", t0s, rates.t0_maintenance, below, hosts)
    yield _stop(situation, "nic_optic", "network", rates.nic_optic, 1)
    yield from _grey(situation, "nic_grey", links, rates.nic_grey, None)
    slow, burst = rates.nic_slow, rates.nic_burst
    yield FailureKind("nic_slow", "network", links, slow.mtbf_hours, slow.mttr_hours * HOUR, Effect.SLOW,
                      situation.slowed("nic_slow"), is_swappable=True)  # fmt: skip
    yield _passing(situation, "nic_burst", links, burst)


def _port(situation: Situation, name: str, count: float, failure: FailureRate, nics: int, hosts: int) -> FailureKind:
    """Return a failure that takes a port of some NICs: a plane less, or with one port the job's stop."""
    design, policy = situation.design, situation.policy
    mean = failure.mttr_hours * HOUR
    if design.planes == 1 or situation.stops("nic_link"):
        return FailureKind(name, "network", count, failure.mtbf_hours, mean, Effect.STALL, situation.calm_step,
                           hosts=hosts, again_s=situation.once("nic_flap"))  # fmt: skip
    once = situation.once("nic_link") + _reaction(situation, policy.failover_s, remaps=True)
    return FailureKind(name, "network", count, failure.mtbf_hours, mean, Effect.PLANES, lost_planes(situation)[1],
                       nics=nics, planes=1, is_swappable=nics == 1, once_s=once)  # fmt: skip


def _reaction(situation: Situation, delay_s: float, remaps: bool = False) -> float:
    """Return how long (s) the job waits for NICs or routing to react, beyond what the table holds."""
    if situation.network != "mrc":
        return max(0.0, delay_s - situation.table.reroute_us / 1e6)
    if not remaps:
        return 0.0
    during, calm = situation.slowed("nic_link_unnoticed"), situation.calm_step
    return situation.policy.remap_s * (during - calm) / during


def _above(situation: Situation) -> Iterator[FailureKind]:
    """Yield the failures of links and switches above T0."""
    design, rates, policy = situation.design, situation.parts.failures, situation.policy
    if design.tiers == 1:
        return
    links = design.networks * sum(design.network.links[1:])
    upper = design.total_switches - design.networks * design.network.switches[0]
    link, spine = 1 / design.network.up, design.loss_percent()["t1"] / 100
    wait = _reaction(situation, policy.reroute_s)
    for name, kind, count, failure, share in (
        ("fabric_link", "fabric_link", links, rates.fabric_link, link),
        ("fabric_flap", "fabric_link", links, rates.fabric_flap, link),
        ("t1", "t1", upper, rates.t1, spine),
        ("t1_reboot", "t1", upper, rates.t1_reboot, spine),
        ("t1_maintenance", "t1", upper, rates.t1_maintenance, spine),
    ):
        once = 0.0 if name == "t1_maintenance" and policy.drain else situation.once(kind) + wait
        yield FailureKind(name, "network", count, failure.mtbf_hours, failure.mttr_hours * HOUR, Effect.SLOW,
                          situation.slowed(kind, share), once_s=once)  # fmt: skip
    yield from _grey(situation, "fabric_grey", links, rates.fabric_grey, link)
    slow, batch = rates.fabric_slow, rates.batch
    length = situation.slowed("fabric_slow", link)
    yield FailureKind("fabric_slow", "network", links, slow.mtbf_hours, _until_shut(situation, slow, length, link),
                      Effect.SLOW, length)  # fmt: skip
    yield _passing(situation, "fabric_burst", links, rates.fabric_burst)
    bad = situation.slowed("fabric_grey_1e-2", min(1.0, BATCH_LINKS * link), BATCH_LOSS / MEASURED_GREY)
    yield FailureKind(
        "batch", "network", links, batch.mtbf_hours, _until_shut(situation, batch, bad, link), Effect.SLOW, bad
    )


def _grey(
    situation: Situation, name: str, count: float, failure: FailureRate, share: float | None
) -> Iterator[FailureKind]:
    """Yield a grey link by decades of its loss, each with the middle of the decade.

    Hosts with a grey NIC link are swapped.
    """
    for decade in DECADES:
        loss = 10.0**decade * sqrt(10)
        length = situation.slowed(f"{name}_1e-2", share, loss / MEASURED_GREY)
        mean = failure.mttr_hours * HOUR if share is None else _until_shut(situation, failure, length, share)
        yield FailureKind(f"{name}_1e{decade}", "network", count / len(DECADES), failure.mtbf_hours, mean, Effect.SLOW,
                          length, is_swappable=share is None)  # fmt: skip


def _until_shut(situation: Situation, failure: FailureRate, length: float, share: float) -> float:
    """Return how long (s) a bad link above T0 slows the job: one that is worse bad than lost is shut before its repair.

    What the job loses by the shut link until its repair is left out: it is less than a lost link's, which is small.
    """
    repair = failure.mttr_hours * HOUR
    return min(repair, situation.policy.isolate_s) if length > situation.slowed("fabric_link", share) else repair


def _passing(situation: Situation, name: str, count: float, failure: FailureRate) -> FailureKind:
    """Return what costs something once and is over."""
    return FailureKind(name, "network", count, failure.mtbf_hours, failure.mttr_hours * HOUR, Effect.SLOW,
                       situation.calm_step, once_s=situation.once(name))  # fmt: skip
