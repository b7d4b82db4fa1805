"""What was sent and lost on the paths of one plane lately: cumulative counts at moments, read as windows of time.

Rows are paths; more may be added at any time. Moments older than `FINE_S` are thinned out, so a minute of a lab's
hundreds of paths is a few hundred pairs of arrays.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.core.arrays import Ints
from openmrc.operations.diagnosis.localise import RATES, Counts, Floats, Localiser, Named
from openmrc.operations.diagnosis.verdicts import DEAD_RATE

MOST_ONSETS = 16  # moments that are tried as the beginning of a fault
_DEAD = RATES >= DEAD_RATE
_TIE_NATS = 0.01  # rounding: parts that the same packets cross are equally evident
YOUNGER_NATS = math.log(99)  # by which a part must be more evident than a part whose fault is younger


@dataclass(frozen=True)
class Crossed:
    """What crossed all rows since a moment of a window."""

    at: float  # the moment, on the window's clock
    sent: Floats
    lost: Counts


def rises(lost: Ints | Sequence[int]) -> list[int]:
    """Return the last moments before a loss: `lost` is what a part's rows had lost in all, by moment, oldest first.

    At most `MOST_ONSETS` of them, spread over all.
    """
    found = np.flatnonzero(np.diff(np.asarray(lost)) > 0)
    if len(found) > MOST_ONSETS:
        found = found[np.linspace(0, len(found) - 1, MOST_ONSETS).astype(np.int64)]
    return [int(each) for each in found]


def since_onset(localiser: Localiser, part: int, candidates: Iterable[Crossed]) -> Crossed:
    """Return the counts since the moment from which on a fault of this part explains best what was lost."""
    return max(candidates, key=lambda each: localiser.fit(part, each.sent, each.lost, localiser.chance)[0])


def younger_explains(
    localiser: Localiser,
    named: Named,
    others: Sequence[Named],
    but: npt.NDArray[np.bool_],
    onsets: Iterable[Crossed],
    begin: float,
) -> bool:
    """Return whether another part explains nearly as well what was lost, by a fault that is younger than a window.

    `others` are faulty, too, known before or named with it; `but`: parts, by number, that are no candidates;
    `onsets`: counts since the moments before a loss of the part's rows; `begin`: of the window in which it was named.
    """
    best, younger = named.nats, -math.inf
    for then in onsets:
        chance = localiser.expecting(others, then.sent, then.lost)
        candidates, ratio, _ = localiser.ratios(then.sent, then.lost, chance)
        is_named = candidates == named.part
        is_other = ~is_named & ~but[candidates]
        mine, other = (float(ratio[which].max(initial=-math.inf)) for which in (is_named, is_other))
        best = max(best, mine)
        if other > mine + (_TIE_NATS if then.at <= begin else -_TIE_NATS):
            younger = max(younger, other)
    return best - younger < YOUNGER_NATS


def silence(localiser: Localiser, part: int, sent: Floats, lost: Counts) -> float:
    """Return by how much (nats) these counts are better explained by a part that is dead than by one that is not."""
    ratios = localiser.by_rate(part, sent, lost, localiser.chance)
    return float(ratios[_DEAD].max() - ratios[~_DEAD].max())


def crossing_dead(localiser: Localiser, rows: Ints, counts: Crossed) -> float:
    """Return by how much (nats) what became of packets on rows is better explained by a dead part than by chance."""
    rate, lost = float(RATES[-1]), counts.lost[rows]
    kept = counts.sent[rows] - lost
    return float((lost * np.log(rate / localiser.chance[rows])).sum() + kept.sum() * np.log1p(-rate))


def crossings(localiser: Localiser, part: int, counts: Crossed) -> dict[str, Any]:
    """Return what a verdict says of these counts: the rate that fits, packets sent and lost."""
    rows = localiser.rows_of(part)
    return {
        "rate": localiser.fit(part, counts.sent, counts.lost, localiser.chance)[1],
        "sent": round(float(counts.sent[rows].sum())),
        "lost": round(float(counts.lost[rows].sum())),
    }


WINDOWS_S = (0.008, 0.03, 0.125, 0.5, 2.0, 8.0, 32.0)
FINE_S, COARSE_S = 2.0, 0.5  # moments younger than the first are all kept; older ones so far apart
_KEPT_S = 2 * WINDOWS_S[-1]


@dataclass
class _CountsThen:
    at: float
    sent: Ints
    lost: Ints


class PathCounts:
    """Counts of one plane's paths; times are seconds of one clock and never go back."""

    def __init__(self, rows: int, now: float) -> None:
        self.sent, self.lost = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
        self._moments = [_CountsThen(now, self.sent.copy(), self.lost.copy())]

    def __len__(self) -> int:
        return len(self.sent)

    def extend(self, rows: int) -> None:
        self.sent, self.lost = (np.append(each, np.zeros(rows, dtype=np.int64)) for each in (self.sent, self.lost))
        for moment in self._moments:
            moment.sent, moment.lost = (
                np.append(each, np.zeros(rows, dtype=np.int64)) for each in (moment.sent, moment.lost)
            )

    def add(self, now: float, rows: Ints, sent: Ints, lost: Ints) -> None:
        """Count the outcome of packets on rows, each named once."""
        self.sent[rows] += sent
        self.lost[rows] += lost
        self._moments.append(_CountsThen(now, self.sent.copy(), self.lost.copy()))
        self._thin(now)

    def window(self, now: float, seconds: float) -> tuple[npt.NDArray[np.float64], Ints]:
        """Return (sent, lost) of every row since then."""
        before = next((each for each in reversed(self._moments) if each.at <= now - seconds), self._moments[0])
        return (self.sent - before.sent).astype(np.float64), self.lost - before.lost

    def since(self, now: float, seconds: float) -> Crossed:
        """Return the same, with the moment since when."""
        return Crossed(now - seconds, *self.window(now, seconds))

    def since_rises(self, now: float, seconds: float, rows: Ints) -> list[Crossed]:
        """Return what crossed all rows since the moments in a window before these rows lost something, oldest first.

        What passed until the next moment may have passed before the fault began, and is left out.
        """
        moments = self._moments_of(now, seconds)
        before = rises([int(each.lost[rows].sum()) for each in moments])
        return [self._without_begin(moments[at], moments[at + 1]) for at in before] or [self._since(moments[0])]

    def after_loss(self, now: float, seconds: float, rows: Ints, later: float, rounds: int) -> Crossed:
        """Return what all rows have lost since these rows first lost something in a window, and what passed after that.

        What passes counts from `later` seconds and `rounds` looks after the look that found the loss.
        """
        moments = self._moments_of(now, seconds)
        lost = np.array([int(each.lost[rows].sum()) for each in moments])
        begin = max(0, int(np.searchsorted(lost, lost[0], side="right")) - 1)
        from_then = moments[begin + 1 :] or moments[-1:]
        looks = sorted({each.at for each in from_then})
        at = max(looks[0] + later, looks[min(rounds, len(looks) - 1)])
        after = next(each for each in reversed(from_then) if each.at <= at)
        whole = self._since(moments[begin])
        passed = (self.sent - after.sent) - (self.lost - after.lost)
        return Crossed(after.at, passed + whole.lost.astype(np.float64), whole.lost)

    def _moments_of(self, now: float, seconds: float) -> list[_CountsThen]:
        first = next((at for at in reversed(range(len(self._moments))) if self._moments[at].at <= now - seconds), 0)
        return self._moments[first:]

    def _since(self, moment: _CountsThen) -> Crossed:
        return Crossed(moment.at, (self.sent - moment.sent).astype(np.float64), self.lost - moment.lost)

    def _without_begin(self, begin: _CountsThen, after: _CountsThen) -> Crossed:
        passed = after.sent - begin.sent - (after.lost - begin.lost)
        whole = self._since(begin)
        return Crossed(whole.at, whole.sent - passed, whole.lost)

    def forget(self, rows: Ints) -> None:
        """Leave out of all windows what was counted so far on these rows."""
        for moment in self._moments:
            moment.sent[rows], moment.lost[rows] = self.sent[rows], self.lost[rows]

    def _thin(self, now: float) -> None:
        kept: list[_CountsThen] = []
        for moment in self._moments:
            if now - moment.at > _KEPT_S:
                continue
            if kept and now - moment.at > FINE_S and moment.at - kept[-1].at < COARSE_S:
                continue
            kept.append(moment)
        self._moments = kept
