"""Name the part that explains the packets that were lost: likelihood ratios of parts, over windows of time.

A row is a path: a probe's, or an EV's of a connection whose endpoint votes for free. It has a share p0 of packets that
are lost without a fault. If a part loses a share q at each crossing, a packet that crosses it m times is lost with
1 - (1 - q)^m (1 - p0). For each part and each q of a grid the log likelihood ratio against p0 is

    sum over rows of   lost * log(p / p0)  +  (sent - lost) * m * log(1 - q)

The first sum runs over the few rows with losses. The second charges a part for every packet that crossed it unharmed:
a switch must answer for all its cables, so it is named only if they all suffer. That is the whole Occam's razor.

The best part is named if its ratio passes `threshold` and no other part explains nearly as well (`CONFIDENCE`); then
its losses count as expected (they raise p0 of its rows) and the next part is sought. By Ville's inequality, a ratio
that starts at some time passes exp(T) ever, by chance, with a probability below exp(-T); the threshold divides the
accepted rate of false alarms by the parts, the grid and the windows' beginnings.

Windows of quadrupling length are looked at side by side, from a few milliseconds to minutes: a silent link shows in the
first, a link that loses one packet in ten thousand in the last.

The model with a fixed bad rate and without windows is Flock's (V. Harsh et al., 2023); sequential tests by
likelihood ratios are A. Wald's.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from openmrc.fabric.model.shape import Ints
from openmrc.probing.elements import PlaneParts
from openmrc.probing.probe_plan import Links
from openmrc.units import PS_PER_MS

Floats = npt.NDArray[np.float64]
Counts = Ints | Floats  # of packets; fractions where a row counts for less than one

WINDOWS_MS = (4, 16, 64, 256, 1024, 4096, 16384, 65536)
RATES = np.concatenate([np.logspace(-5, -0.3, 20), [0.7, 0.9, 0.97, 0.999]])  # the grid of q
STARTS_PER_DAY = 86_400_000 / WINDOWS_MS[0]  # independent beginnings of a ratio: one a shortest window
FALSE_ALARMS_PER_DAY = 0.01
CONFIDENCE = 0.99
SWITCH_ODDS = math.log(0.1)  # a switch fails as a whole less often than a cable or a direction
MOST_NAMED = 16  # parts at a time


@dataclass(frozen=True)
class Named:
    """A part found faulty, see `verdicts.FaultVerdict`."""

    part: int
    rate: float
    nats: float
    confidence: float
    lost: int
    sent: int
    instead: tuple[int, ...]


def threshold(parts: int, false_alarms_per_day: float = FALSE_ALARMS_PER_DAY) -> float:
    """Return the ratio, in nats, from which a fault is named in a plane of that many parts."""
    return math.log(parts * len(RATES) * STARTS_PER_DAY / false_alarms_per_day)


class Localiser:
    """Explain the losses of one plane's paths.

    `links` has a row per path, the plane's directed links on it, -1 behind the last; `chance` is each row's p0.
    """

    def __init__(self, parts: PlaneParts, links: Links, chance: Floats) -> None:
        self.parts, self.chance = parts, chance
        self.threshold = threshold(parts.count)
        row, part, times = _crossings(parts, links)
        self._rows_of = _Csr(part, row, times, parts.count)
        self._parts_of = _Csr(row, part, times, len(links))

    def rows_of(self, part: int) -> Ints:
        """Return the rows whose paths cross a part."""
        return self._rows_of.of(part)[0]

    def crossings_of(self, part: int) -> tuple[Ints, Ints]:
        """Return the rows whose paths cross a part, and how often."""
        return self._rows_of.of(part)

    def entries(self, parts: Ints) -> tuple[Ints, Ints, Ints]:
        """Return (which of `parts`, row, times) for all rows whose paths cross these parts."""
        return self._rows_of.rows_by_index(parts)

    def with_chance(self, chance: Floats) -> Localiser:
        """Return a localiser of the same paths with another p0."""
        other = copy.copy(self)
        other.chance = chance
        return other

    def suspects(self, sent: Floats, lost: Ints, from_nats: float) -> Ints:
        """Return the parts that come close to an explanation, the best first: where more probes would help."""
        hit = np.flatnonzero(lost)
        candidates, ratio, _ = self._ratios(sent, lost, hit, self.chance)
        order = np.argsort(-ratio)
        return candidates[order[ratio[order] >= from_nats]]

    def explain(self, sent: Floats, lost: Counts, known: Sequence[Named] = ()) -> list[Named]:
        """Return the parts at fault in one window, the most evident first; losses of `known` ones are expected.

        If the best explanations are too close to call, the search ends: more packets will tell.
        """
        chance, found = self.chance.copy(), list[Named]()
        for each in known:
            self._expect(chance, self._refitted(each, sent, lost))
        hit = np.flatnonzero(lost)
        while len(hit) and len(found) < MOST_NAMED:
            candidates, ratio, rate = self._ratios(sent, lost, hit, chance)
            ratio[self._within(candidates, [each.part for each in (*known, *found)])] = -np.inf
            best = int(ratio.argmax())
            if ratio[best] < self.threshold:
                break
            named = self._name(candidates, ratio, rate, best, sent, lost)
            if named.confidence < CONFIDENCE:
                break
            found.append(named)
            self._expect(chance, named)
        return found

    def _within(self, candidates: Ints, named: list[int]) -> npt.NDArray[np.bool_]:
        """Return which parts are named already, by themselves or as a piece of a cable or switch."""
        if not named:
            return np.zeros(len(candidates), dtype=bool)
        broken = np.unique(np.concatenate([self.parts.links_of(part) for part in named]))
        return np.array(
            [bool(np.isin(self.parts.links_of(int(part)), broken).all()) for part in candidates], dtype=bool
        )

    def _refitted(self, named: Named, sent: Floats, lost: Counts) -> Named:
        """Return a known fault with the rate of this window, as it may have got worse."""
        rows = self.rows_of(named.part)
        candidates, ratio, rate = self._ratios(sent, lost, rows[lost[rows] > 0], self.chance)
        mine = np.flatnonzero(candidates == named.part)
        return replace(named, rate=float(rate[mine[0]])) if len(mine) and ratio[mine[0]] > 0 else named

    def _expect(self, chance: Floats, named: Named) -> None:
        rows, times = self._rows_of.of(named.part)
        chance[rows] = 1 - (1 - named.rate) ** times * (1 - chance[rows])

    def _ratios(self, sent: Floats, lost: Counts, hit: Ints, chance: Floats) -> tuple[Ints, Floats, Floats]:
        """Return the parts on rows with losses, with their best ratios (odds included) and rates."""
        row, part, times = self._parts_of.rows(hit)
        candidates, index = np.unique(part, return_inverse=True)
        if not len(candidates):
            return candidates, np.zeros(0), np.zeros(0)
        kept = self._survivors(candidates, sent, lost)
        one = math.e ** np.outer(np.log1p(-RATES), times) if len(times) else np.zeros((len(RATES), 0))
        gain = np.log((1 - one * (1 - chance[row])) / chance[row]) * lost[row]
        ratios = np.stack([np.bincount(index, each, minlength=len(candidates)) for each in gain])
        ratios += np.log1p(-RATES)[:, None] * kept
        best = ratios.argmax(axis=0)
        odds = np.where(candidates >= self.parts.links + self.parts.cables, SWITCH_ODDS, 0.0)
        return candidates, ratios[best, np.arange(len(candidates))] + odds, RATES[best]

    def _survivors(self, candidates: Ints, sent: Floats, lost: Counts) -> Floats:
        """Return for each part how many unharmed crossings it has to answer for."""
        index, row, times = self._rows_of.rows_by_index(candidates)
        kept = np.bincount(index, (sent[row] - lost[row]) * times, minlength=len(candidates))
        return kept.astype(np.float64)

    def _name(self, candidates: Ints, ratio: Floats, rate: Floats, best: int, sent: Floats, lost: Counts) -> Named:
        """Return the best part; the confidence is its share among parts that explain losses of the same rows."""
        rows = self.rows_of(int(candidates[best]))
        mine = rows[lost[rows] > 0]
        rivals = np.isin(candidates, self._parts_of.rows(mine)[1])
        weight = np.where(rivals, np.exp(np.minimum(0, ratio - ratio[best])), 0.0)
        others = np.flatnonzero(rivals & (ratio > ratio[best] - 10) & (np.arange(len(candidates)) != best))
        return Named(
            part=int(candidates[best]), rate=float(rate[best]), nats=float(ratio[best]),
            confidence=float(1 / weight.sum()),
            lost=round(float(lost[rows].sum())), sent=round(float(sent[rows].sum())),
            instead=tuple(int(each) for each in candidates[others[np.argsort(-ratio[others])][:3]]),
        )  # fmt: skip


class LossHistory:
    """Losses of the last minutes by time, and what was sent: the windows of one plane.

    `rate` is the packets a millisecond that each row sends.
    """

    def __init__(self, rate: Floats) -> None:
        self.rate = rate
        self._lost: list[tuple[Ints, Ints]] = []  # (ps, row) of lost packets, a pair of columns a report, in order
        self._extra: list[tuple[int, int, Ints, Floats]] = []  # from ps, until ps, rows, packets a ms above `rate`

    def add(self, at: Ints, rows: Ints) -> None:
        """Record the times (ps) and rows of lost packets, after those of earlier calls; forget what is too old."""
        self._lost.append((at, rows))
        oldest = int(at.max()) - WINDOWS_MS[-1] * PS_PER_MS
        while self._lost[0][0].max() < oldest:
            self._lost.pop(0)

    def change_rate(self, at: int, until: int, rows: Ints, more: Floats) -> None:
        """Record that rows send `more` additional packets a millisecond for a time (ps); negative: fewer."""
        self._extra.append((at, until, rows, more))

    def window(self, now: int, length_ms: int) -> tuple[Floats, Ints]:
        """Return (sent, lost) of every row in the last milliseconds."""
        begin = max(0, now - length_ms * PS_PER_MS)
        sent = self.rate * ((now - begin) / PS_PER_MS)
        for start, until, rows, more in self._extra:
            overlap = min(now, until) - max(begin, start)
            if overlap > 0:
                sent[rows] += more * (overlap / PS_PER_MS)
        recent = [rows[at > begin] for at, rows in self._lost if at.max() > begin]
        lost = np.bincount(np.concatenate([np.zeros(0, np.int64), *recent]), minlength=len(self.rate))
        return np.maximum(sent, lost), lost.astype(np.int64)


class _Csr:
    """Columns (other, times) grouped by a key."""

    def __init__(self, key: Ints, other: Ints, times: Ints, count: int) -> None:
        order = np.argsort(key, kind="stable")
        self.other, self.times = other[order], times[order]
        self.first = np.concatenate([[0], np.cumsum(np.bincount(key, minlength=count))]).astype(np.int64)

    def of(self, key: int) -> tuple[Ints, Ints]:
        here = slice(int(self.first[key]), int(self.first[key + 1]))
        return self.other[here], self.times[here]

    def rows_by_index(self, keys: Ints) -> tuple[Ints, Ints, Ints]:
        """Return (which of `keys`, other, times) of all entries of some keys."""
        size = self.first[keys + 1] - self.first[keys]
        index = np.repeat(np.arange(len(keys)), size)
        at = np.arange(len(index)) - np.repeat(np.cumsum(size) - size, size) + np.repeat(self.first[keys], size)
        return index, self.other[at], self.times[at]

    def rows(self, keys: Ints) -> tuple[Ints, Ints, Ints]:
        """Return (key, other, times) of all entries of some keys."""
        index, other, times = self.rows_by_index(keys)
        return keys[index], other, times


def _crossings(parts: PlaneParts, links: Links) -> tuple[Ints, Ints, Ints]:
    """Return (row, part, times) of every part on every path."""
    rows, found = [], []
    for place in range(links.shape[1]):
        row = np.flatnonzero(links[:, place] >= 0)
        link = links[row, place].astype(np.int64)
        entered = parts.switches_of(link)[1]
        for each in (link, parts.links + parts.cable_of[link], entered):
            rows.append(row[each >= 0])
            found.append(each[each >= 0])
    key = np.concatenate(rows) * parts.count + np.concatenate(found)
    both, times = np.unique(key, return_counts=True)
    return both // parts.count, both % parts.count, times.astype(np.int64)
