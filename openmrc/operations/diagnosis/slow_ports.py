"""Name ports that are slow: what crosses one is marked and trimmed in its queue, and what passes beside it is not.

A port at a tenth of its rate loses nothing that probes in the control class would miss. What endpoints send queues
there, is marked and trimmed, and soon most of it takes other paths: what they count on each path says that they shun a
part (`shunned`), though not why. Probes like data are sent there more often then; without such probes, what endpoints
still send has to do. Where many send to one machine, all ways to it queue alike: a part between switches is slow if
it queues `QUEUED_RATIO` times what the others of its switches do, which carry as much, or, where these queue much, lets
so many times less pass at once. In a simulation what comes later than full queues explain counts, not marks.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.operations.diagnosis.elements import PartKind
from openmrc.operations.diagnosis.fault_life import KnownFault, news
from openmrc.operations.diagnosis.localise import Counts, Floats, Localiser, Named
from openmrc.operations.diagnosis.path_counts import COARSE_S, PathCounts
from openmrc.operations.diagnosis.path_index import PathLinks
from openmrc.operations.diagnosis.witnesses import RowEnds

WINDOWS_S = (2.0, 8.0)
LEAST_PACKETS = 20  # over a part before it is called slow, and over those beside it
QUEUED_SHARE = 0.25  # of the packets over a slow part that are marked or trimmed, at least
QUEUED_RATIO = 4.0  # to the share beside it; or of the shares that are not
LEAST_EXPECTED = 200  # packets over a link before it may be called shunned
SHUNNED_SHARE = 0.3  # of the packets that the other paths of the same pairs carry
BUSY_SHARE = 0.5  # the same, of a link that is not slow, whatever probes meet there
_LEAST_CHANCE, _MOST_CHANCE = 0.02, 0.5  # of a packet to be marked or trimmed without a slow part


class SlowPorts:
    """What was marked or trimmed on the rows of a plane; times are seconds of one clock."""

    def __init__(self, rows: int, now: float) -> None:
        self.counts = PathCounts(rows, now)  # packets, and how many of them were marked or trimmed

    def named(
        self,
        localiser: Localiser,
        rows: slice,
        now: float,
        faults: Collection[KnownFault],
        ends: RowEnds | None,
        busy: Collection[int],
    ) -> list[tuple[Named, float]]:
        """Return the parts that are slow by these rows, each with its window (s); `ends`: no host is believed alone.

        None of them is of the `busy` links: probes queue there because of what endpoints send.
        """
        if not self.counts.lost.any():
            return []
        found: list[tuple[Named, float]] = []
        known = [each.named for each in faults]
        for seconds in WINDOWS_S:
            counted, marks = (np.zeros(len(self.counts)) for _ in range(2))
            counted[rows], marks[rows] = (each[rows] for each in self.counts.window(now, seconds))
            sent, queued = news(localiser, counted, marks, faults, now - seconds - COARSE_S)
            share = 2 * float(queued.sum()) / max(1.0, float(sent.sum()))
            chance = np.full(len(sent), min(_MOST_CHANCE, max(_LEAST_CHANCE, share)))
            judge = localiser.with_chance(chance)
            for each in judge.explain(sent, queued, known):
                links = judge.parts.links_of(each.part) - judge.parts.shape.host_up
                if (
                    _stands_out(judge, each, sent, queued)
                    and not set(links.tolist()).intersection(busy)
                    and (ends is None or ends.alone(judge, each, sent, np.asarray(queued, dtype=np.float64)) is None)
                ):
                    found.append((each, seconds))
                    known.append(each)
        return found

    def shunned(self, paths: Sequence[PathLinks], first: int, now: float) -> set[int]:
        """Return the links that carry less than the other ways of the same pairs; `first`: row of the first vote."""
        shares = (self._shares(paths, first, now, seconds) for seconds in WINDOWS_S)
        return {link for each in shares for link, share in each.items() if share < SHUNNED_SHARE}

    def busy(self, paths: Sequence[PathLinks], first: int, now: float) -> list[int]:
        """Return the links that lately carried at least `BUSY_SHARE` of what those other ways did."""
        shares = self._shares(paths, first, now, WINDOWS_S[0])
        return [link for link, share in shares.items() if share >= BUSY_SHARE]

    def _shares(self, paths: Sequence[PathLinks], first: int, now: float, seconds: float) -> dict[int, float]:
        sent = self.counts.window(now, seconds)[0]
        pairs: dict[tuple[int, int], list[int]] = {}
        for row in (np.flatnonzero(self.counts.sent[first:]) + first).tolist():
            pairs.setdefault((paths[row][0], paths[row][-1]), []).append(row)
        carried, expected = defaultdict[int, float](float), defaultdict[int, float](float)
        for rows in pairs.values():
            mean = float(sent[rows].mean())
            for row in rows:
                for link in paths[row][1:-1]:
                    carried[link] += float(sent[row])
                    expected[link] += mean
        return {link: carried[link] / due for link, due in expected.items() if due >= LEAST_EXPECTED}

    def is_slow(self, rows: Ints, now: float, rate: float) -> bool:
        """Whether a part still marks or trims half as much as when it was named."""
        sent, queued = (float(each[rows].sum()) for each in self.counts.window(now, WINDOWS_S[-1]))
        return bool(sent) and queued > sent * rate / 2


def _stands_out(localiser: Localiser, named: Named, sent: Floats, queued: Counts) -> bool:
    """Whether a part between switches queues what the others of its switches do not."""
    parts = localiser.parts
    both = np.concatenate(parts.switches_of(parts.links_of(named.part) - parts.shape.host_up))
    if parts.kind(named.part) == PartKind.SWITCH or (both < 0).any():
        return False
    mine = localiser.rows_of(named.part)
    beside = np.setdiff1d(np.concatenate([localiser.rows_of(int(switch)) for switch in both]), mine)
    here, there = (float(sent[rows].sum()) for rows in (mine, beside))
    share, other = float(queued[mine].sum()) / max(1.0, here), float(queued[beside].sum()) / max(1.0, there)
    is_more = share >= QUEUED_RATIO * other or QUEUED_RATIO * (1 - share) <= 1 - other
    return min(here, there) >= LEAST_PACKETS and share >= QUEUED_SHARE and is_more
