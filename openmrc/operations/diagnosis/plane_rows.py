"""The rows of one plane, and their counts: paths of small probes, of probes like data, and of votes of endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.operations.diagnosis.elements import PlaneParts
from openmrc.operations.diagnosis.localise import Counts, Floats, Localiser
from openmrc.operations.diagnosis.path_counts import PathCounts
from openmrc.operations.diagnosis.path_index import PathLinks
from openmrc.operations.diagnosis.probe_plan import Links, ProbeSet
from openmrc.operations.diagnosis.slow_ports import SlowPorts
from openmrc.operations.diagnosis.witnesses import RowEnds

PROBE_SIZES = 2  # rows above those of a plan are the same, sent like data
PROBE_CHANCE = 1e-4  # of a probe to be lost or late on a busy machine without a fault
VOTE_CHANCE = 1e-3  # of a packet that an endpoint believes lost: measured 5e-5 in a lab, but losses come in bursts
VoteCounts = tuple[int, int, int]  # of a path: delivered and lost; lost; marked or trimmed
VOTE_BURST = 2  # losses of a path at one look that count: more are one event


@dataclass(frozen=True)
class ProbedRows:
    """What became of some probes of a plane: each row once."""

    plane: int
    rows: Ints  # of the plan; as many above that, the same sent like data
    lost: Ints  # 0 or 1
    queued: Ints | None = None  # 1: marked or trimmed; in a simulation, late


@dataclass(frozen=True)
class SeenCounts:
    """The counts of a window, without those of some rows."""

    seconds: float
    sent: Floats
    lost: Counts
    left_out: slice = field(default_factory=lambda: slice(0))

    @property
    def first(self) -> int:
        """Return from which row on counts are looked at: those of small probes come first."""
        return 0 if self.left_out.start else int(self.left_out.stop)

    def without(self, rows: slice) -> SeenCounts:
        counts = np.ones(len(self.sent), dtype=bool)
        counts[rows] = False
        return SeenCounts(self.seconds, self.sent * counts, self.lost * counts, rows)

    def of(self, sent: Floats, lost: Counts) -> SeenCounts:
        """Return these counts, without those of the same rows."""
        return SeenCounts(self.seconds, sent, lost).without(self.left_out)


class PlaneRows:
    """The rows of a plane, in the order: small probes, probes like data, votes; times are seconds of one clock."""

    def __init__(
        self, parts: PlaneParts, probes: ProbeSet | None, now: float, vote_chance: float, vote_burst: int
    ) -> None:
        self.parts, self._small = parts, 0 if probes is None else len(probes)
        self.probes = PROBE_SIZES * self._small  # rows
        none = np.zeros(0, dtype=np.int64)
        ends = (none, none) if probes is None else (probes.source, probes.destination)
        self._ends = RowEnds(*(np.tile(each, PROBE_SIZES) for each in ends))
        self._vote_chance, self._vote_burst = vote_chance, vote_burst
        ways = [] if probes is None else probes.links.tolist()
        self._paths: list[PathLinks] = PROBE_SIZES * [tuple(link for link in way if link >= 0) for way in ways]
        self._row_of: dict[PathLinks, int] = {}  # of votes
        self.counts, self.slow_ports = PathCounts(len(self._paths), now), SlowPorts(len(self._paths), now)
        self._localiser: Localiser | None = None

    def probed(self, now: float, done: ProbedRows) -> None:
        self.counts.add(now, done.rows, np.ones_like(done.rows), done.lost)
        data = done.rows >= self._small
        if done.queued is not None and data.any():
            self.slow_ports.counts.add(now, done.rows[data], 1 - done.lost[data], done.queued[data])

    def voted(self, now: float, votes: Mapping[PathLinks, VoteCounts]) -> None:
        """Count votes of endpoints on paths since the last call."""
        new = [each for each in votes if each not in self._row_of]
        for each in new:
            self._row_of[each] = len(self._paths)
            self._paths.append(each)
        if new:
            first = np.array([each[0] for each in new], dtype=np.int64) + self.parts.shape.host_up
            self._ends.extend(self.parts.topology.link_source[first])
            self.counts.extend(len(new))
            self.slow_ports.counts.extend(len(new))
            self._localiser = None
        rows = np.array([self._row_of[each] for each in votes], dtype=np.int64)
        counted, said, queued = np.array(list(votes.values()), dtype=np.int64).reshape(-1, 3).T
        lost = np.minimum(said, self._vote_burst)
        self.counts.add(now, rows, counted - said + lost, lost)  # the rest of a burst has not passed
        self.slow_ports.counts.add(now, rows, counted, queued)

    @property
    def localiser(self) -> Localiser:
        if self._localiser is None:
            self._localiser = Localiser(self.parts, _padded(self._paths), self._chances(self._vote_chance))
        return self._localiser

    def _chances(self, of_votes: float) -> Floats:
        """Return each row's share of packets that are lost without a fault."""
        chance = np.full(len(self._paths), of_votes)
        chance[: self._small] = PROBE_CHANCE
        chance[self._small : self.probes] = VOTE_CHANCE
        return chance

    def beside(self, rows: Ints, faults: Iterable[int]) -> Ints:
        """Return the probes that tell which link of these rows' paths is to blame: all over their cables, both ways.

        Rows over faulty parts are no news. Of probes of both sizes, those like the doubtful ones.
        """
        known = [self.localiser.rows_of(part) for part in faults]
        news = np.setdiff1d(rows, np.concatenate([rows[:0], *known]))
        if not len(news):
            return news
        cables = {int(self.parts.cable_of[link]) for row in news.tolist() for link in self._paths[row]}
        found = np.unique(np.concatenate([self.localiser.rows_of(self.parts.links + cable) for cable in cables]))
        found = found[found < self.probes]
        return found[np.isin(found >= self._small, news >= self._small)]


def _padded(paths: Sequence[PathLinks]) -> Links:
    found = np.full((len(paths), max(map(len, paths), default=1)), -1, dtype=np.int32)
    for row, links in enumerate(paths):
        found[row, : len(links)] = links
    return found
