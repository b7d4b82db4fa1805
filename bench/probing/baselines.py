"""Other ways to name a faulty part from the same counts, written from their papers' ideas.

* Pingmesh (C. Guo et al., SIGCOMM 2015): paths with a loss rate above a threshold are bad; a switch or cable most of
  whose paths are bad is reported.
* 007 (B. Arzani et al., NSDI 2018): every path with a loss casts a vote of 1 / length for each of its links; the link
  with most votes is blamed, its paths are taken out, while a link has more than 1 % of all votes.
* Flock (V. Harsh et al., 2023): greedy maximum likelihood of the set of bad links, with one rate for good and
  one for bad links and a prior.

None of them has windows: each sees all counts of a trial. What an agent did not report counts as lost, as their
input has no "not sent".
"""

from __future__ import annotations

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.operations.diagnosis.elements import PlaneParts
from openmrc.operations.diagnosis.localise import Floats, Localiser
from openmrc.operations.diagnosis.probe_plan import Links

PINGMESH_LOSS, PINGMESH_SHARE = 1e-3, 0.6
VOTES_STOP = 0.01
FLOCK_GOOD, FLOCK_BAD, FLOCK_PRIOR = 1e-7, 1e-2, 12.0
MOST = 8


def pingmesh(parts: PlaneParts, localiser: Localiser, links: Links, sent: Floats, lost: Ints) -> list[int]:
    bad = lost > PINGMESH_LOSS * sent
    return _thresholded(localiser, np.arange(parts.links, parts.count), bad)


def _thresholded(localiser: Localiser, candidates: Ints, bad: np.ndarray) -> list[int]:
    found: list[int] = []
    left = bad.copy()
    index, row, _ = localiser.by_part.rows_by_index(candidates)
    size = np.bincount(index, minlength=len(candidates))
    while left.any() and len(found) < MOST:
        hits = np.bincount(index, left[row], minlength=len(candidates))
        share = np.where(size > 0, hits / np.maximum(size, 1), 0)
        good = np.flatnonzero(share >= PINGMESH_SHARE)
        if not len(good):
            return found
        best = int(good[np.argmax(hits[good])])
        found.append(int(candidates[best]))
        left[row[index == best]] = False
    return found


def votes_007(parts: PlaneParts, localiser: Localiser, links: Links, sent: Floats, lost: Ints) -> list[int]:
    length = (links >= 0).sum(axis=1)
    left = lost.astype(np.float64) / length
    total, found = left.sum(), list[int]()
    while len(found) < MOST:
        tally = np.zeros(parts.links)
        for place in range(links.shape[1]):
            on = links[:, place] >= 0
            tally += np.bincount(links[on, place], left[on], minlength=parts.links)
        best = int(tally.argmax())
        if tally[best] <= max(VOTES_STOP * total, 1.0 / links.shape[1]):
            return found
        found.append(best)
        left[localiser.rows_of(best)] = 0
    return found


def flock(parts: PlaneParts, localiser: Localiser, links: Links, sent: Floats, lost: Ints) -> list[int]:
    bad = np.zeros(len(sent), dtype=np.int64)  # bad links on each path
    candidates = np.arange(parts.links)
    index, row, _ = localiser.by_part.rows_by_index(candidates)
    found: list[int] = []
    while len(found) < MOST:
        now, then = _flock_loss(bad), _flock_loss(bad + 1)
        gain = lost * np.log(then / now) + (sent - lost) * np.log((1 - then) / (1 - now))
        total = np.bincount(index, gain[row], minlength=len(candidates)) - FLOCK_PRIOR
        best = int(total.argmax())
        if total[best] <= 0 or best in found:
            return found
        found.append(best)
        bad[localiser.rows_of(best)] += 1
    return found


def _flock_loss(bad: Ints) -> Floats:
    return np.asarray(1 - (1 - FLOCK_BAD) ** bad * (1 - FLOCK_GOOD))


BASELINES = {"Pingmesh-style": pingmesh, "007-style": votes_007, "Flock-style": flock}
