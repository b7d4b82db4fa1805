"""A trial without a network: draw the fate of every probe from a model of faulty links, and see what is named when.

The model, for the many trials that packets would take too long for (`bench.probing.packets` and the lab are the check):

* A part at fault loses each packet that crosses it, independently, with a share `loss` of small and `large_loss` of
  4 KiB packets, or delays it with a share `late`. A flap repeats: bad for `on`, good until `every`.
* Every eighth probe is padded to 4 KiB. Without a fault a probe is lost with 1e-7, late with 1e-4.
* Connections, if there is load, spray 4 KiB packets over all paths of a plane to one other NIC; an endpoint believes
  1e-6 of its packets lost without a cause. Their votes are rows beside the probes.
* A stalled host sends no reports, for its loops or for what it received; what it had not sent is not lost.
* A probe that has not returned after 200 us is lost. Reports reach the controller at once.

Where losses point at a few parts without proving one, the paths over those parts are probed twenty times as often
for half a second, at most `MOST_SUSPECTS` parts at a time, and for another half second if that did not tell.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.loss_history import WINDOWS_MS, LossHistory
from openmrc.core.arrays import Ints
from openmrc.errors import ConfigError
from openmrc.fabric.model.topology import Topology
from openmrc.operations.diagnosis.elements import PlaneParts
from openmrc.operations.diagnosis.localise import Floats, Localiser, Named
from openmrc.operations.diagnosis.probe_plan import Links, ProbeSet
from openmrc.operations.diagnosis.verdicts import DEAD_RATE, Effect, FaultVerdict
from openmrc.units import PS_PER_MS, PS_PER_US

PROBE_CHANCE, LATE_CHANCE, VOTE_CHANCE = 1e-7, 1e-4, 1e-6
LARGE_SHARE = 1 / 8
TIMEOUT_PS = 200 * PS_PER_US
BOOST, BOOST_MS = 20, 500
SUSPICION_NATS = 5.0
MOST_SUSPECTS = 4
STALL_MS = 10  # without a report a host is called late
_MTU_BITS = 4300 * 8


@dataclass(frozen=True)
class PartFault:
    """What is wrong with one part; `nic` stalls instead of a part if not -1."""

    part: int = -1
    loss: float = 0.0
    large_loss: float = 0.0
    late: float = 0.0
    on_ms: float = math.inf
    every_ms: float = math.inf
    nic: int = -1

    def is_on(self, at_ms: float) -> bool:
        return at_ms % self.every_ms < self.on_ms


@dataclass(frozen=True)
class TrialPaths:
    """The paths of a plane on which packets are observed: the probes, then the connections' EVs."""

    parts: PlaneParts
    links: Links
    probes: int
    source: Ints
    rate: Floats  # packets a ms
    phase: Floats  # ms
    chance: Floats


def trial_paths(topology: Topology, probes: ProbeSet, load: float = 0.0, seed: int = 1) -> TrialPaths:
    """Put a plane's probes and the EVs of a random permutation together; `load` is a share of the port's rate."""
    shape = probes.shape
    rate = PS_PER_MS / probes.period
    phase = probes.phase / PS_PER_MS
    links, source, chance = probes.links, probes.source, np.full(len(probes), PROBE_CHANCE)
    if load > 0:
        votes, nic = _permutation(topology, probes, seed)
        bits_a_ms = float(topology.link_rate[shape.host_up]) / 1000
        each = np.full(len(votes), load * bits_a_ms / _MTU_BITS / shape.t0_up)
        rate, phase = np.concatenate([rate, each]), np.concatenate([phase, np.zeros(len(votes))])
        links, source = np.concatenate([links, votes]), np.concatenate([source, nic])
        chance = np.concatenate([chance, np.full(len(votes), VOTE_CHANCE)])
    return TrialPaths(PlaneParts(topology, shape), links, len(probes), source, rate, phase, chance)


def _permutation(topology: Topology, probes: ProbeSet, seed: int) -> tuple[Links, Ints]:
    """Return the paths of each NIC to one NIC of another T0 over every uplink; two tiers."""
    shape = probes.shape
    order = np.random.default_rng([seed, 7]).permutation(shape.nics)
    to = np.empty(shape.nics, dtype=np.int64)
    to[order] = np.roll(order, 1)
    nic, uplink = (each.ravel() for each in np.indices((shape.nics, shape.t0_up), dtype=np.int64))
    here, there = shape.t0_of(nic), shape.t0_of(to[nic])
    apart = here != there
    base = shape.host_up
    way = [nic, shape.fabric_up - base + here * shape.t0_up + uplink,
           shape.fabric_down - base + there * shape.t0_up + uplink, shape.host_down - base + to[nic]]  # fmt: skip
    links = np.full((int(apart.sum()), probes.links.shape[1]), -1, dtype=np.int32)
    for place, each in enumerate(way):
        links[:, place] = each[apart]
    return links, nic[apart]


class ModelTrial:
    """Run one plane with faults and record what is named."""

    def __init__(
        self, paths: TrialPaths, faults: Sequence[PartFault], seed: int, localisers: tuple[Localiser, Localiser]
    ) -> None:
        self.paths, self.faults = paths, faults
        self.draw = np.random.default_rng([seed, 27])
        self.by_loss, self.by_delay = localisers
        self.losses, self.delays = LossHistory(paths.rate), LossHistory(paths.rate)
        self.boosts: list[tuple[int, int, Ints]] = []
        self.verdicts: list[tuple[int, FaultVerdict]] = []  # with the part, -1: a host
        self.known: list[Named] = []
        self.known_late: list[Named] = []
        self.small_lost = np.zeros(len(paths.rate), dtype=np.int64)
        self._stalled: set[int] = set()

    def run(self, until_ms: float, wanted: int) -> list[tuple[int, FaultVerdict]]:
        """Advance until `wanted` parts are named, or until a time."""
        at = 0.0
        while at < until_ms and len(self.verdicts) < wanted:
            step = max(1.0, at / 64)
            self._advance(at, at + step)
            at += step
        return self.verdicts

    def counts(self, until_ms: float) -> tuple[Floats, Ints]:
        """Return (sent, lost) of every row up to a time, without naming anything; not reported counts as lost."""
        lost = np.zeros(len(self.paths.rate), dtype=np.int64)
        step = max(1.0, until_ms / 200)
        for begin in np.arange(0, until_ms, step):
            rows, _ = self._outcomes(begin, begin + step)
            lost += np.bincount(rows, minlength=len(lost))
            for fault in self.faults:
                if fault.nic >= 0 and fault.is_on(begin):
                    silent = np.flatnonzero(self.paths.source == fault.nic)
                    lost[silent] += self._sent(silent, begin, begin + step)
        return np.maximum(self.paths.rate * until_ms, lost), lost

    def _advance(self, begin: float, end: float) -> None:
        now = round(end * PS_PER_MS)  # of sending: what becomes of these packets is known after the timeout
        lost, late = self._outcomes(begin, end)
        self._stalls(begin, end)
        if len(lost):
            self.losses.add(self._times(begin, end, len(lost)), lost)
            self._judge(now, self.by_loss, self.losses, self.known, "lossy")
        elif any(begin * PS_PER_MS < until <= now for _, until, _ in self.boosts):
            self._probe_suspects(now)
        if len(late):
            self.delays.add(self._times(begin, end, len(late)), late)
            self._judge(now, self.by_delay, self.delays, self.known_late, "late")

    def _times(self, begin: float, end: float, count: int) -> Ints:
        """Return when the lost packets of a step were sent, in ps."""
        times: Ints = (self.draw.uniform(begin, end, count) * PS_PER_MS).astype(np.int64)
        return times

    def _outcomes(self, begin: float, end: float) -> tuple[Ints, Ints]:
        """Return the rows of lost and of late packets, one entry a packet."""
        paths, draw = self.paths, self.draw
        total = paths.rate * (end - begin)
        lost = [np.repeat(np.arange(len(total)), draw.poisson(total * paths.chance))]
        late = [np.repeat(np.arange(paths.probes), draw.poisson(total[: paths.probes] * LATE_CHANCE))]
        for fault in self.faults:
            if fault.part < 0 or not fault.is_on(begin):
                continue
            rows, times = self.by_loss.by_part.of(fault.part)
            sent = self._sent(rows, begin, end)
            large = np.where(rows < paths.probes, draw.binomial(sent, LARGE_SHARE), sent)
            small = draw.binomial(sent - large, 1 - (1 - fault.loss) ** times)
            self.small_lost[rows] += small
            big = draw.binomial(large, 1 - (1 - max(fault.loss, fault.large_loss)) ** times)
            lost.append(np.repeat(rows, small + big))
            probe = rows < paths.probes
            late.append(np.repeat(rows[probe], draw.binomial(sent, 1 - (1 - fault.late) ** times)[probe]))
        return np.concatenate(lost), np.concatenate(late)

    def _sent(self, rows: Ints, begin: float, end: float) -> Ints:
        """Return how many packets rows send in a time (ms): by their phases, and what a boost adds."""
        rate, phase = self.paths.rate[rows], self.paths.phase[rows]
        sent = np.floor((end - phase) * rate) - np.floor((begin - phase) * rate)
        for start, until, boosted in self.boosts:
            overlap = min(end, until / PS_PER_MS) - max(begin, start / PS_PER_MS)
            if overlap > 0:
                more, from_ms = rate * (BOOST - 1), max(begin, start / PS_PER_MS) - phase
                sent += np.where(
                    np.isin(rows, boosted), np.floor((from_ms + overlap) * more) - np.floor(from_ms * more), 0
                )
        return sent.astype(np.int64)

    def _judge(self, now: int, localiser: Localiser, history: LossHistory, known: list[Named], what: str) -> None:
        for length in WINDOWS_MS:
            sent, lost = history.window(now, length)
            for named in localiser.explain(sent, lost, known):
                known.append(named)
                self.verdicts.append((named.part, self._verdict(named, now, length, what == "late")))
            if length * PS_PER_MS > now:
                break
        if what == "lossy":
            self._probe_suspects(now)

    def _verdict(self, named: Named, now: int, length: int, late: bool) -> FaultVerdict:
        parts = self.paths.parts
        rows = self.by_loss.rows_of(named.part)
        small = int(self.small_lost[rows].sum())
        expected = named.lost * (1 - LARGE_SHARE) if (rows < self.paths.probes).all() else 0.0
        return FaultVerdict(
            part=parts.name(named.part), kind=("link", "cable", "switch")[parts.kind(named.part)],
            plane=parts.shape.plane, effect=effect_of(named.rate, small, expected, late),
            confidence=named.confidence, rate=named.rate, evidence_nats=named.nats, sent=named.sent, lost=named.lost,
            window_ps=length * PS_PER_MS, at_ps=now + TIMEOUT_PS,
            instead=tuple(parts.name(each) for each in named.instead),
        )  # fmt: skip

    def _probe_suspects(self, now: int) -> None:
        """Probe the paths over the most suspicious parts more often for a while, and again if that did not tell."""
        if any(until > now for _, until, _ in self.boosts):
            return
        localiser = self.by_loss
        longest = next((each for each in WINDOWS_MS if each * PS_PER_MS > now), WINDOWS_MS[-1])
        sent, lost = self.losses.window(now, longest)
        for named in self.known:
            lost[localiser.rows_of(named.part)] = 0
        suspects = _suspects(localiser, sent, lost)
        suspects = suspects[suspects < self.paths.parts.links + self.paths.parts.cables][:MOST_SUSPECTS]
        if not len(suspects):
            return
        rows = np.unique(np.concatenate([localiser.rows_of(int(part)) for part in suspects]))
        rows = rows[rows < self.paths.probes]
        until = now + BOOST_MS * PS_PER_MS
        self.boosts.append((now, until, rows))
        for history in (self.losses, self.delays):
            history.change_rate(now, until, rows, self.paths.rate[rows] * (BOOST - 1))

    def _stalls(self, begin: float, end: float) -> None:
        """Take off what a stalled host did not send; call it late when it has been silent for long enough."""
        for fault in self.faults:
            if fault.nic < 0 or not fault.is_on(begin):
                continue
            rows = np.flatnonzero(self.paths.source == fault.nic)
            for history in (self.losses, self.delays):
                at = (round(begin * PS_PER_MS), round(end * PS_PER_MS))
                history.change_rate(*at, rows, -self.paths.rate[rows])
            if end >= STALL_MS and fault.nic not in self._stalled:
                self._stalled.add(fault.nic)
                self.verdicts.append((-1, _stalled_host(self.paths, fault.nic, round(end * PS_PER_MS))))


def _suspects(localiser: Localiser, sent: Floats, lost: Ints) -> Ints:
    """Return the parts that come close to an explanation, the best first: where more probes would help."""
    candidates, ratio, _ = localiser.ratios(sent, lost, localiser.chance)
    order = np.argsort(-ratio)
    return candidates[order[ratio[order] >= SUSPICION_NATS]]


def effect_of(rate: float, lost_small: int, expected_small: float, late: bool) -> Effect:
    """Return the effect of a fault: `expected_small` is how many small packets the estimated rate would have taken."""
    if late:
        return "late"
    if lost_small == 0 and expected_small >= 10:  # e^-10 by chance
        return "one size"
    return "dead" if rate >= DEAD_RATE else "lossy"


def _stalled_host(paths: TrialPaths, nic: int, now: int) -> FaultVerdict:
    return FaultVerdict(
        part=paths.parts.topology.name(nic), kind="host", plane=-1, effect="late", confidence=1.0, rate=1.0,
        evidence_nats=math.inf, sent=0, lost=0, window_ps=STALL_MS * PS_PER_MS, at_ps=now,
    )  # fmt: skip


def localisers(paths: TrialPaths) -> tuple[Localiser, Localiser]:
    """Return the localiser of losses and that of delays; trials of the same paths share them."""
    by_loss = Localiser(paths.parts, paths.links, paths.chance)
    return by_loss, by_loss.with_chance(np.full(len(paths.rate), LATE_CHANCE))


def part_named(parts: PlaneParts, name: str) -> int:
    """Return the part called `A>B`, `A<>B` or by a switch's name, as `PlaneParts.name` writes it; ConfigError."""
    topology, first = parts.topology, parts.shape.host_up
    if ">" not in name:
        node = topology.node_named(name)
        if not 0 <= node - parts.shape.first_t0 < parts.shape.switches:
            raise ConfigError(f"{name!r} is no switch of plane {parts.shape.plane}")
        return parts.links + parts.cables + node - parts.shape.first_t0
    source, destination = (topology.node_named(each) for each in name.replace("<>", ">").split(">", 1))
    mine = slice(first, first + parts.links)
    both = (topology.link_source[mine] == source) & (topology.link_destination[mine] == destination)
    found = np.flatnonzero(both)
    if not len(found):
        raise ConfigError(f"{name!r}: no link of plane {parts.shape.plane} joins these")
    return parts.links + int(parts.cable_of[found[0]]) if "<>" in name else int(found[0])
