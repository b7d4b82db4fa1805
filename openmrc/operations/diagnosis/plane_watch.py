"""Name the faulty parts of one plane of a running fabric, and see when they are repaired.

Rows are paths: first the probes' (if somebody probes), then those on which endpoints vote. Both are counted in windows
of time (`path_counts`) and explained by the likelihood ratios of `operations.diagnosis.localise`.

What crosses a part that is known to be faulty says nothing about other parts in a window that began before that was
known (`operations.diagnosis.fault_life`).

A direction is named once packets have passed the other one since: ends of a cable learn at different times what either
direction has lost, so what passed before says nothing. If the other one fails later, the cable is named as well.

A host's cable is named once packets have passed its T0 elsewhere since: else the T0 may be dead.

A part is dead or loses a share: that follows from what crossed it since its fault began, and a verdict is
refined when what crosses it later says otherwise.

Some faults are met by data only: packets above a size, a class, bits that flip. So what is of data's size is explained
once more without the small probes, which such a fault lets pass.

A part is repaired when packets that cross it, since the last one that was lost, would have passed a part of half its
rate with a probability below exp(-`REPAIR_NATS`). That needs probes: endpoints send nothing on what is denied. Where
nobody probes, the part is tried again after `TRIAL_S`, and the controller's damping makes each further trial later.
"""

import math
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from openmrc.core.arrays import Ints
from openmrc.operations.diagnosis.elements import PartKind, PlaneParts
from openmrc.operations.diagnosis.fault_life import KnownFault, news
from openmrc.operations.diagnosis.localise import Counts, Floats, Localiser, Named
from openmrc.operations.diagnosis.path_counts import (
    COARSE_S,
    WINDOWS_S,
    Crossed,
    crossing_dead,
    crossings,
    silence,
    since_onset,
    younger_explains,
)
from openmrc.operations.diagnosis.plane_rows import VOTE_BURST, VOTE_CHANCE, PlaneRows, SeenCounts
from openmrc.operations.diagnosis.probe_plan import ProbeSet
from openmrc.operations.diagnosis.verdicts import Effect, FaultVerdict
from openmrc.operations.diagnosis.witnesses import SPOKEN_S, Suspicions
from openmrc.units import PS_PER_S

REPAIR_NATS = 7.0
TRIAL_S = 30.0
REFINE_S = 2.0  # of what crossed a faulty part are looked at again
REFINE_NATS = math.log(99)  # for another effect than that of the verdict
DIRECTION_NATS = math.log(99)  # against a cable that is dead, for one direction of it
LEAST_SIZED = 2  # lost probes like data, beside what endpoints lost in queues: for a fault of one size
LEAST_LOSSY = 5  # the same, where too few small probes crossed the part to say whether they pass
ONE_SIZE_SHARE = 0.25  # of the small probes that a fault of every size would have taken, at most
# Skew between hosts' reports: two rounds, which take longer on busy hosts, and the time in which losses are found.
UNEVEN_S, UNEVEN_ROUNDS = 0.25, 2


@dataclass
class _Fault(KnownFault):
    lost_at: float
    lost: int  # of its rows, when last looked at
    began: float
    first: int = 0  # row from which on packets meet it
    verdict: FaultVerdict | None = None  # None: named by an earlier controller


class PlaneWatch(PlaneRows):
    """The known faults of one plane, and what tells of new ones."""

    def __init__(
        self,
        parts: PlaneParts,
        probes: ProbeSet | None,
        now: float,
        one_is_enough: bool = True,
        vote_chance: float = VOTE_CHANCE,
        vote_burst: int = VOTE_BURST,
    ) -> None:
        """`one_is_enough`: hosts are believed, as in a lab, where one process sees them all."""
        super().__init__(parts, probes, now, vote_chance, vote_burst)
        self._one_is_enough, self._suspicions = one_is_enough, Suspicions()
        self._unproven: set[int] = set()  # parts that only endpoints speak against
        self.faults: dict[int, _Fault] = {}

    def around(self, rows: Ints) -> Ints:
        """Return the probes that tell which link of these rows' paths is to blame, but for parts known to be faulty."""
        return self.beside(rows, self.faults)

    def judge(self, now: float, is_beside: bool = False) -> list[tuple[int, FaultVerdict]]:
        """Name faulty parts; return the new ones with their verdicts. `is_beside`: a part of any plane is faulty.

        Then acknowledgements are lost over it, and all planes take more load: votes elsewhere are weaker evidence.
        """
        found: list[tuple[int, FaultVerdict]] = []
        if not self._paths:
            return found
        ignored = set(self.doubted(now))
        localiser = self.localiser if not is_beside else self.localiser.with_chance(self._chances(VOTE_CHANCE))
        for seconds in WINDOWS_S:
            sent, lost = self.counts.window(now, seconds)
            if not lost.any():
                continue
            seen = SeenCounts(seconds, sent, lost)
            small, like_data = slice(0, self._small), slice(self._small, self.probes)
            for named in self._believed(localiser, seen.without(like_data), now, ignored):
                fault = self.know(named, now)
                fault.verdict = self._verdict(fault, now, seconds)
                found.append((named.part, fault.verdict))
            if self.probes > self._small:
                found += self._of_one_size(localiser, seen.without(small), now, ignored)
            if self._suspicions.waits(now):
                break
        return found + self._slow(now)

    def _of_one_size(
        self, localiser: Localiser, seen: SeenCounts, now: float, ignored: set[int]
    ) -> list[tuple[int, FaultVerdict]]:
        """Name the parts that lose packets of data's size and let small ones pass."""
        found = []
        small = self.counts.window(now, seen.seconds)
        for named in self._believed(localiser, seen, now, ignored) if seen.lost.any() else ():
            rows = localiser.rows_of(named.part)
            probes, short = rows[(rows >= self._small) & (rows < self.probes)], rows[rows < self._small]
            would = named.rate * small[0][short].sum()
            is_sized = would >= 10
            if small[1][short].sum() > ONE_SIZE_SHARE * max(10, would):
                continue
            if not is_sized and self.parts.kind(named.part) == PartKind.SWITCH:
                continue  # so small a share of all that a switch forwards is lost in full queues, too
            if seen.lost[probes].sum() < (LEAST_SIZED if is_sized else LEAST_LOSSY):
                self._unproven.add(named.part)
                continue
            fault = self.know(named, now)
            effect: Effect = "one size" if is_sized else "lossy"
            fault.first, fault.verdict = self._small, self._worded(named, effect, now, seen.seconds)
            fault.lost = int(self.counts.lost[self._rows_over(fault)[0]].sum())
            found.append((named.part, fault.verdict))
        return found

    def unproven(self, now: float) -> Ints:
        """Return the rows like data that would tell more of parts that only endpoints speak against, or shun.

        Else those over a part that such probes alone have shown to be faulty: they show its repair, too.
        """
        parts, self._unproven = self._unproven, set()
        if self.probes == self._small:
            return np.zeros(0, dtype=np.int64)
        shunned = self.slow_ports.shunned(self._paths, self.probes, now)
        wanted = parts.union(shunned).difference(self.faults)
        wanted = wanted or {part for part, fault in self.faults.items() if fault.first}
        rows = [self.localiser.rows_of(part) for part in wanted]
        found = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *rows]))
        return found[(found >= self._small) & (found < self.probes)]

    def _slow(self, now: float) -> list[tuple[int, FaultVerdict]]:
        """Name parts that queue what others let pass; beside a slow one its neighbours queue what leaves it."""
        found = []
        ends = None if self._one_is_enough else self._ends
        rows = slice(self._small, self.probes if self.probes > self._small else None)
        slow, faults = self.slow_ports, self.faults.values()
        busy = slow.busy(self._paths, self.probes, now) if self.probes > self._small else ()
        for named, seconds in slow.named(self.localiser, rows, now, faults, ends, busy):
            known = (part for part, fault in self.faults.items() if fault.verdict and fault.verdict.effect == "slow")
            if any(self.parts.switches_at(part) & self.parts.switches_at(named.part) for part in known):
                continue
            fault = self.know(named, now)
            fault.verdict = self._worded(named, "slow", now, seconds)
            found.append((named.part, fault.verdict))
        return found

    def doubted(self, now: float) -> list[int]:
        """Return the hosts (NICs) whose votes are ignored now, because nobody else confirmed them."""
        return self._suspicions.doubted(now)

    def lone_words(self, now: float) -> list[tuple[int, int]]:
        """Return (host, part) where this host alone reports losses that the part explains."""
        return self._suspicions.lone_words(now)

    def _believed(self, localiser: Localiser, seen: SeenCounts, now: float, ignored: set[int]) -> list[Named]:
        """Return the faults that explain the losses of a window and do not rest on one host.

        Such a host joins the `ignored` ones: no longer window is judged until others have had time to say the same,
        and then by what they say.
        """
        dropped = sorted(ignored)
        begin = now - seen.seconds - COARSE_S  # long windows begin up to so much earlier
        weighed = self._weighed(seen, begin, dropped)
        known = [fault.named for fault in self.faults.values()]
        found, believed = localiser.explain(*weighed, known), list[Named]()
        for named in found:
            alone = None if self._one_is_enough else self._ends.alone(localiser, named, *weighed)
            if alone is None:
                self._suspicions.confirmed(named.part)
                others = known + [each for each in found if each != named]
                if (
                    self._is_told_from_cable(named, now, seen)
                    and self._is_told_from_switch(named, now, seen)
                    and not self._is_younger_elsewhere(localiser, named, others, now, seen, dropped)
                ):
                    believed.append(named)
            elif seen.seconds <= SPOKEN_S:
                ignored.add(alone.host)
                self._suspicions.alone(alone, named.part, now)
        return believed

    def _weighed(self, seen: SeenCounts, begin: float, dropped: list[int]) -> tuple[Floats, Counts]:
        """Return (sent, lost) of a window as far as they are news and their hosts are believed."""
        sent, lost = news(self.localiser, seen.sent, seen.lost, self.faults.values(), begin)
        return (sent, lost) if self._one_is_enough else self._ends.limited(sent, lost, dropped)

    def _is_younger_elsewhere(
        self,
        localiser: Localiser,
        named: Named,
        others: list[Named],
        now: float,
        seen: SeenCounts,
        dropped: list[int],
    ) -> bool:
        """Whether another part explains what is left by `others` nearly as well by a fault younger than the window.

        What much has crossed before it broke looks healthy in a long window; so a part that little crosses would be
        named in its place, while shorter windows cannot tell yet which part it is.
        """
        rows = localiser.rows_of(named.part)
        onsets = self.counts.since_rises(now, seen.seconds, rows[rows >= seen.first])
        weighed = [Crossed(then.at, *self._weighed(seen.of(then.sent, then.lost), then.at, dropped)) for then in onsets]
        return younger_explains(localiser, named, others, localiser.ways_back(self.faults), weighed, now - seen.seconds)

    def _is_told_from_cable(self, named: Named, now: float, seen: SeenCounts) -> bool:
        """Whether packets have passed the other direction since this one began to lose them: else both may be dead."""
        if self.parts.kind(named.part) != PartKind.LINK:
            return True
        mine = self.localiser.rows_of(named.part)
        rows = np.setdiff1d(self.localiser.rows_of(int(self.parts.way_back[named.part])), mine)
        mine, rows = mine[mine >= seen.first], rows[rows >= seen.first]
        rows = rows[rows < self.probes] if self.probes else rows
        return not len(rows) or self._pass(rows, self._after_loss(mine, now, seen))

    def _is_told_from_switch(self, named: Named, now: float, seen: SeenCounts) -> bool:
        """Whether packets have passed the T0 of a host's cable elsewhere since the cable began to lose them.

        Hosts report at different times what their T0 loses; where no other host of it sends, nothing tells them apart.
        """
        switches = self.parts.switches_at(named.part)
        if self._one_is_enough or self.parts.kind(named.part) == PartKind.SWITCH or len(switches) != 1:
            return True
        mine = self.localiser.rows_of(named.part)
        cable = self.parts.cable(named.part)
        rows = np.setdiff1d(self.localiser.rows_of(switches.pop()), self.localiser.rows_of(cable))
        mine, rows = mine[mine >= seen.first], rows[rows >= seen.first]
        return not seen.sent[rows].any() or self._pass(rows, self._after_loss(mine, now, seen))

    def _after_loss(self, rows: Ints, now: float, seen: SeenCounts) -> Crossed:
        skew = (0.0, 0) if self._one_is_enough else (UNEVEN_S, UNEVEN_ROUNDS)
        return self.counts.after_loss(now, seen.seconds, rows, *skew)

    def _pass(self, rows: Ints, counts: Crossed) -> bool:
        """Whether packets on these rows pass no part that is dead."""
        return crossing_dead(self.localiser, rows, counts) <= -DIRECTION_NATS

    def know(self, named: Named, now: float) -> _Fault:
        lost = int(self.counts.lost[self.localiser.rows_of(named.part)].sum())
        self.faults[named.part] = _Fault(named, now, now, lost, began=now)
        return self.faults[named.part]

    def refined(self, now: float) -> list[tuple[int, FaultVerdict]]:
        """Return the faults whose verdict changed between dead and lossy."""
        found = []
        for part, fault in self.faults.items():
            verdict = self._refined(fault, now)
            if verdict is not None:
                fault.verdict, fault.named = verdict, replace(fault.named, rate=verdict.rate)
                found.append((part, verdict))
        return found

    def _refined(self, fault: _Fault, now: float) -> FaultVerdict | None:
        """Return a changed verdict if recent packets over the part are clear evidence."""
        if fault.verdict is None or fault.verdict.effect not in ("dead", "lossy"):
            return None
        lately = self.counts.since(now, min(REFINE_S, now - fault.began))
        nats = silence(self.localiser, fault.named.part, lately.sent, lately.lost)
        effect: Effect = "dead" if nats > 0 else "lossy"
        if abs(nats) < REFINE_NATS or effect == fault.verdict.effect:
            return None
        seen = crossings(self.localiser, fault.named.part, lately)
        return msgspec.structs.replace(fault.verdict, effect=effect, at_ps=round(now * PS_PER_S), **seen)

    def repaired(self, now: float) -> list[int]:
        """Return the faults that are repaired: packets pass again, or a trial is due."""
        return [part for part, fault in self.faults.items() if self._is_repaired(fault, now)]

    def forget(self, part: int) -> None:
        """Clear a fault and forget its losses, but for those on pieces of it that are known to be faulty themselves."""
        if self.faults.pop(part, None) is None:
            return
        rows, known = self.localiser.rows_of(part), np.array(list(self.faults), dtype=np.int64)
        for piece in known[self.localiser.within(known, [part])].tolist():
            rows = np.setdiff1d(rows, self.localiser.rows_of(piece))
        for counts in (self.counts, self.slow_ports.counts):
            counts.forget(rows)

    def _is_repaired(self, fault: _Fault, now: float) -> bool:
        if fault.verdict is not None and fault.verdict.effect == "slow":
            if self.slow_ports.is_slow(self.localiser.rows_of(fault.named.part), now, fault.named.rate):
                fault.lost_at = now
            return now - fault.lost_at >= TRIAL_S
        rows, times = self._rows_over(fault)
        lost = int(self.counts.lost[rows].sum())
        if lost > fault.lost:
            fault.lost, fault.lost_at = lost, now
            return False
        sent, lately = self.counts.window(now, now - fault.lost_at)
        probes = rows < self.probes
        if not probes.any():
            return now - fault.lost_at >= TRIAL_S
        kept = ((sent - lately)[rows] * times).sum()
        return bool(kept * -math.log1p(-fault.named.rate / 2) >= REPAIR_NATS)

    def _rows_over(self, fault: _Fault) -> tuple[Ints, Ints]:
        """Return the rows on which packets meet a fault, and how often each crosses the part."""
        rows, times = self.localiser.by_part.of(fault.named.part)
        return rows[rows >= fault.first], times[rows >= fault.first]

    def _verdict(self, fault: _Fault, now: float, seconds: float) -> FaultVerdict:
        named, rows = fault.named, self.localiser.rows_of(fault.named.part)
        since = since_onset(self.localiser, named.part, self.counts.since_rises(now, seconds, rows))
        is_dead = silence(self.localiser, named.part, since.sent, since.lost) > 0
        fault.began = since.at
        if not is_dead:
            return self._worded(named, "lossy", now, seconds)
        seen = crossings(self.localiser, named.part, since)
        fault.named = replace(named, rate=seen["rate"])
        return msgspec.structs.replace(self._worded(named, "dead", now, seconds), **seen)

    def _worded(self, named: Named, effect: Effect, now: float, seconds: float) -> FaultVerdict:
        return FaultVerdict(
            part=self.parts.name(named.part), kind=("link", "cable", "switch")[self.parts.kind(named.part)],
            plane=self.parts.shape.plane, effect=effect, rate=named.rate, sent=named.sent, lost=named.lost,
            confidence=named.confidence, evidence_nats=named.nats,
            window_ps=round(seconds * PS_PER_S), at_ps=round(now * PS_PER_S),
            instead=tuple(self.parts.name(each) for each in named.instead),
        )  # fmt: skip
