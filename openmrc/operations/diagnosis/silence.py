"""Is a part dead, or does it lose some of what crosses it? What crossed it before its fault does not tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.operations.diagnosis.localise import RATES, Counts, Floats, Localiser
from openmrc.operations.diagnosis.verdicts import SILENT_RATE

MOST_ONSETS = 16  # moments that are tried as the beginning of a fault
_DEAD = RATES >= SILENT_RATE


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
