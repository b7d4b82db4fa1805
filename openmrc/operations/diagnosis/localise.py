"""Name the part that explains the packets that were lost: likelihood ratios of parts, over windows of time.

A row is a path: a probe's, or an EV's of a connection whose endpoint votes for free. It has a share p0 of packets that
are lost without a fault. If a part loses a share q at each crossing, a packet that crosses it m times is lost with
1 - (1 - q)^m (1 - p0). For each part and each q of a grid the log likelihood ratio against p0 is

    sum over rows of   lost * log(p / p0)  +  (sent - lost) * m * log(1 - q)

The first sum runs over the few rows with losses. The second charges a part for every packet that crossed it unharmed:
a switch must answer for all its cables, so it is named only if they all suffer. That is the whole Occam's razor.

The best part joins if its ratio passes `threshold`; then its losses count as expected (they raise p0 of its rows) and
the next part is sought (`_Search`). In the end a part is named if, beside the others, no further part explains nearly
as well as it does (`CONFIDENCE`). By Ville's inequality, a ratio
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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from openmrc.core.arrays import Ints
from openmrc.operations.diagnosis.elements import PartKind, PlaneParts
from openmrc.operations.diagnosis.probe_plan import Links

Floats = npt.NDArray[np.float64]
Counts = Ints | Floats  # of packets; fractions where a row counts for less than one

RATES = np.concatenate([np.logspace(-5, -0.3, 20), [0.7, 0.9, 0.97, 0.999]])  # the grid of q
STARTS_PER_DAY = 86_400_000 / 4  # independent beginnings of a ratio: one every 4 ms
FALSE_ALARMS_PER_DAY = 0.01
CONFIDENCE = 0.99
SWITCH_ODDS = math.log(0.1)  # a switch fails as a whole less often than a cable or a direction
MOST_NAMED = 16  # parts at a time
FURTHER = 0.5  # of a threshold: what a further part must explain more to be preferred to a switch


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
        self.by_part = _Csr(part, row, times, parts.count)  # rows whose paths cross each, and how often
        self._by_row = _Csr(row, part, times, len(links))

    def rows_of(self, part: int) -> Ints:
        """Return the rows whose paths cross a part."""
        return self.by_part.of(part)[0]

    def with_chance(self, chance: Floats) -> Localiser:
        """Return a localiser of the same paths with another p0."""
        other = copy.copy(self)
        other.chance = chance
        return other

    def explain(self, sent: Floats, lost: Counts, known: Sequence[Named] = ()) -> list[Named]:
        """Return the parts at fault in one window, the most evident first; losses of `known` ones are expected.

        From the first part on that is too close to call nothing is named: more packets will tell.
        """
        if not lost.any():
            return []
        return _Search(self, sent, lost, self.expecting(known, sent, lost), [each.part for each in known]).named()

    def expecting(self, known: Sequence[Named], sent: Floats, lost: Counts) -> Floats:
        """Return the share of packets that each row loses where these faults are known."""
        chance = self.chance.copy()
        for each in known:
            ratio, rate = self.fit(each.part, sent, lost, self.chance)  # in this window: it may have got worse
            self._expect(chance, each.part, rate if ratio > 0 else each.rate)
        return chance

    def within(self, candidates: Ints, named: Iterable[int]) -> npt.NDArray[np.bool_]:
        """Return which candidates are among these parts, or a piece of one or several of them."""
        broken = self._broken(named)
        if not broken.any():
            return np.zeros(len(candidates), dtype=bool)
        return np.array([bool(broken[self.parts.links_of(int(part))].all()) for part in candidates], dtype=bool)

    def ways_back(self, known: Iterable[int]) -> npt.NDArray[np.bool_]:
        """Return, by part, whether it is the way back of a known direction, and not known to be faulty itself.

        Beside the known direction their cable explains the same, and neither could be told from the other.
        """
        broken = self._broken(known)[self.parts.shape.host_up :]
        found = np.zeros(self.parts.count, dtype=bool)
        found[: self.parts.links] = broken[self.parts.way_back] & ~broken
        return found

    def _broken(self, parts: Iterable[int]) -> npt.NDArray[np.bool_]:
        """Return, by directed link of the topology, whether it belongs to one of these parts."""
        broken = np.zeros(self.parts.links + self.parts.shape.host_up, dtype=bool)
        for part in parts:
            broken[self.parts.links_of(part)] = True
        return broken

    def _expect(self, chance: Floats, part: int, rate: float) -> None:
        rows, times = self.by_part.of(part)
        chance[rows] = 1 - (1 - rate) ** times * (1 - chance[rows])

    def given(self, chance: Floats, rates: Mapping[int, float]) -> Floats:
        """Return the share of packets that each row loses if these parts are faulty too."""
        found = chance.copy()
        for part, rate in rates.items():
            self._expect(found, part, rate)
        return found

    def fit(self, part: int, sent: Floats, lost: Counts, chance: Floats) -> tuple[float, float]:
        """Return the best ratio of one part (odds included), and its rate."""
        ratios = self.by_rate(part, sent, lost, chance)
        best = int(ratios.argmax())
        return float(ratios[best] + self.odds(part)), float(RATES[best])

    def by_rate(self, part: int, sent: Floats, lost: Counts, chance: Floats) -> Floats:
        """Return the ratio of one part for each of `RATES`, without its odds."""
        rows, times = self.by_part.of(part)
        one = (1 - RATES[:, None]) ** times
        gain = (np.log((1 - one * (1 - chance[rows])) / chance[rows]) * lost[rows]).sum(axis=1)
        ratios: Floats = gain + np.log1p(-RATES) * ((sent - lost)[rows] * times).sum()
        return ratios

    def odds(self, part: int) -> float:
        return 0.0 if self.parts.kind(part) < PartKind.SWITCH else SWITCH_ODDS

    def ratios(self, sent: Floats, lost: Counts, chance: Floats) -> tuple[Ints, Floats, Floats]:
        """Return the parts on rows with losses, with their best ratios (odds included) and rates."""
        row, part, times = self._by_row.rows(np.flatnonzero(lost))
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
        index, row, times = self.by_part.rows_by_index(candidates)
        kept = np.bincount(index, (sent[row] - lost[row]) * times, minlength=len(candidates))
        return kept.astype(np.float64)

    def name(self, part: int, sent: Floats, lost: Counts, chance: Floats, but: npt.NDArray[np.bool_]) -> Named:
        """Return a part as named; the confidence is its share among what explains losses of its rows.

        `but`: parts, by number, that are no candidates.
        """
        candidates, ratio, rate = self.ratios(sent, lost, chance)
        best = int(np.flatnonzero(candidates == part)[0])
        rows = self.rows_of(part)
        rivals = np.isin(candidates, self._by_row.rows(rows[lost[rows] > 0])[1])
        rivals &= ~but[candidates]
        weight = np.where(rivals, np.exp(np.minimum(50.0, ratio - ratio[best])), 0.0)
        others = np.flatnonzero(rivals & (ratio > ratio[best] - 10) & (np.arange(len(candidates)) != best))
        return Named(
            part=part, rate=float(rate[best]), nats=float(ratio[best]), confidence=float(1 / weight.sum()),
            lost=round(float(lost[rows].sum())), sent=round(float(sent[rows].sum())),
            instead=tuple(int(each) for each in candidates[others[np.argsort(-ratio[others])][:3]]),
        )  # fmt: skip


class _Search:
    """Look for the parts that together explain the losses of one window.

    Parts join one by one, the best first. Each may make an earlier one needless, which leaves and does not come back:
    a link that two broken cables share paths with, say. A switch explains what several of its neighbours' cables lose,
    though not well; so it stays only if directions and cables in its place would explain less, each part more at a
    price.
    """

    def __init__(self, localiser: Localiser, sent: Floats, lost: Counts, chance: Floats, known: list[int]) -> None:
        self._localiser, self._sent, self._lost, self._chance, self._known = localiser, sent, lost, chance, known
        self._ways_back = localiser.ways_back(known)

    def named(self) -> list[Named]:
        """Return the parts, the most evident first, up to the first that is too close to call."""
        rates, doubtful = self._without_needless_switches(self._grown({}))
        found = sorted(
            (self._name(part, rates) for part in rates if not self._is_piece(part, rates)), key=lambda each: -each.nats
        )
        worth = [each.nats >= self._localiser.threshold and each.part not in doubtful for each in found]
        sure = [is_worth and each.confidence >= CONFIDENCE for is_worth, each in zip(worth, found, strict=True)]
        return found[: sure.index(False) if False in sure else None]

    def _grown(self, rates: Mapping[int, float], switches: bool = True) -> dict[int, float]:
        """Return the parts, with their rates, that join these, and those of these that are still needed.

        Without `switches`, parts join that are worth their price, though they may not be worth a name yet.
        """
        rates, gone = dict(rates), set[int]()
        least = self._localiser.threshold * (1.0 if switches else FURTHER)
        while len(rates) < MOST_NAMED:
            candidates, ratio, rate = self._localiser.ratios(self._sent, self._lost, self._given(rates))
            able = ~np.isin(candidates, [*rates, *gone]) & ~self._localiser.within(candidates, self._known)
            able &= ~self._ways_back[candidates]
            if not switches:
                able &= candidates < self._localiser.parts.links + self._localiser.parts.cables
            if not able.any():
                break
            best = int(np.where(able, ratio, -np.inf).argmax())
            if ratio[best] < least:
                break
            rates[int(candidates[best])] = float(rate[best])
            gone |= self._drop_needless(rates, least)
        return rates

    def _drop_needless(self, rates: dict[int, float], least: float) -> set[int]:
        """Take off the parts that explain too little beside the others, and fit the rates of the rest; return them."""
        gone = set()
        for part in list(rates):
            del rates[part]
            ratio, rate = self._localiser.fit(part, self._sent, self._lost, self._given(rates))
            if ratio < least:
                gone.add(part)
            else:
                rates[part] = rate
        return gone

    def _without_needless_switches(self, rates: dict[int, float]) -> tuple[dict[int, float], set[int]]:
        """Return the parts that explain most, and the switches among them that others replace nearly as well."""
        doubtful = set()
        for switch in [part for part in rates if self._localiser.odds(part)]:
            instead = self._grown({part: rate for part, rate in rates.items() if part != switch}, switches=False)
            more = self._worth(instead) - self._worth(rates)
            if more > 0:
                rates = instead
            elif more > math.log1p(-CONFIDENCE):
                doubtful.add(switch)
        return rates, doubtful

    def _worth(self, rates: Mapping[int, float]) -> float:
        """Return the ratio of parts together, less the price of each."""
        gain = self._lost * np.log(self._given(rates) / self._chance)
        kept = self._sent - self._lost
        for part, rate in rates.items():  # one by one: what dead parts on one path let through together rounds to zero
            rows, times = self._localiser.by_part.of(part)
            gain[rows] += kept[rows] * times * math.log1p(-rate)
        price = FURTHER * self._localiser.threshold
        return float(gain.sum()) + sum(self._localiser.odds(part) - price for part in rates)

    def _given(self, rates: Mapping[int, float]) -> Floats:
        return self._localiser.given(self._chance, rates)

    def _is_piece(self, part: int, rates: Mapping[int, float]) -> bool:
        """Whether a part belongs to another one that is named."""
        others = [each for each in rates if each != part]
        return any(bool(self._localiser.within(np.array([part]), [each])[0]) for each in others)

    def _name(self, part: int, rates: Mapping[int, float]) -> Named:
        others = {each: rate for each, rate in rates.items() if each != part}
        return self._localiser.name(part, self._sent, self._lost, self._given(others), self._ways_back)


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
