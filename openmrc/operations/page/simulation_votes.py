"""Faulty parts of a simulated fabric, named by what its endpoints see for free: losses and deliveries by entropy value.

Rows are the EVs of all connections, and the probes if the run has some (`simulation_probes`). Without probes a part is
named where enough connections cross it, and cross others without it. Windows are counted in frames. A part that was
named is known until the longest window shows no loss over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.core.rows import column
from openmrc.fabric.model.shape import PlaneShape
from openmrc.fabric.model.topology import Topology
from openmrc.operations.diagnosis.elements import PlaneParts
from openmrc.operations.diagnosis.fault_life import KnownFault, news
from openmrc.operations.diagnosis.localise import Localiser, Named
from openmrc.operations.diagnosis.probe_plan import Links
from openmrc.operations.diagnosis.silence import crossings, silence, since_onset
from openmrc.operations.page.frame_counts import FINE, FrameCounts
from openmrc.operations.page.pictures import VerdictLine
from openmrc.operations.page.simulation_probes import PROBE_CHANCE, SimulatedProbes
from openmrc.sim.network.forwarding.path_of_ev import LONGEST, connected_evs, links_of
from openmrc.sim.network.state.network_tables import Network

WINDOWS = (2, 8, FINE)  # frames
PROBE_PERIODS = (2, 4)  # with probes also as many frames as some of their periods take
VOTE_CHANCE = 1e-5  # of a packet given up without a fault on its path: measured up to 3e-6
# While a part is faulty, acknowledgements are lost over it, and all planes take more load: 2e-4 in a whole run.
BESIDE_CHANCE = 1e-3
MOST_EVS = 200_000  # of all connections: beyond, a frame would take seconds


@dataclass
class _ShownFault(KnownFault):
    line: VerdictLine


class _WatchedRows:
    """The rows of one plane: which of all rows they are, and the parts that are known to be faulty."""

    def __init__(self, parts: PlaneParts, evs: tuple[Ints, Links], probes: tuple[Ints, Links]) -> None:
        """(Which rows, their links) of EVs and of probes."""
        self.rows = np.concatenate([evs[0], probes[0]])
        votes = len(evs[0])
        self._localiser = Localiser(parts, np.concatenate([evs[1], probes[1]]), _chances(votes, self.rows, VOTE_CHANCE))
        self._beside = self._localiser.with_chance(_chances(votes, self.rows, BESIDE_CHANCE))
        self._witnesses = " and ".join([*(["votes"] if votes else []), *(["probes"] if len(probes[0]) else [])])
        self.faults: list[_ShownFault] = []

    def look(self, counts: FrameCounts, windows: Sequence[int], is_beside: bool) -> None:
        """Name what is new in each window, and forget what has lost nothing in the longest one.

        `is_beside`: a part of any plane is known to be faulty.
        """
        for length in windows:
            _, lost = counts.window(length, self.rows)
            if length == windows[-1]:
                self.faults = [each for each in self.faults if lost[self._localiser.rows_of(each.named.part)].any()]
            if lost.any():
                self._name(counts, length, is_beside)

    def _name(self, counts: FrameCounts, length: int, is_beside: bool) -> None:
        sent, lost = counts.window(length, self.rows)
        left = news(self._localiser, sent.astype(np.float64), lost, self.faults, max(0, counts.number - length))
        localiser = self._beside if is_beside or self.faults else self._localiser
        for named in localiser.explain(*left, [each.named for each in self.faults]):
            line = self._line(named, counts, length)
            if line is not None:
                self.faults.append(_ShownFault(named, counts.number, line))

    def _line(self, named: Named, counts: FrameCounts, length: int) -> VerdictLine | None:
        """Return what is to be said of a part; None if it may be congested."""
        localiser, lost, sent, effect = self._localiser, named.lost, named.sent, "lossy"
        since = since_onset(localiser, named.part, counts.since_rises(length, self.rows, localiser.rows_of(named.part)))
        if silence(localiser, named.part, since.sent, since.lost) > 0:
            seen = crossings(localiser, named.part, since)
            lost, sent, effect = seen["lost"], seen["sent"], "silent"
        elif self._separate(named.part, counts, length) * named.nats < lost * localiser.threshold:
            return None
        votes = f"{effect}: {lost} of {sent} packets lost, by {self._witnesses} of {length} frames"
        return VerdictLine(suspect=localiser.parts.name(named.part), confidence=named.confidence, votes=votes)

    def _separate(self, part: int, counts: FrameCounts, length: int) -> int:
        """Return how many losses of a part are separate events: those in one frame on one link are one.

        A queue that grows suddenly makes its packets late, and endpoints take several of them for lost at once.
        """
        links = self._localiser.parts.links_of(part) - self._localiser.parts.shape.host_up
        rows = (self.rows[self._localiser.rows_of(int(link))] for link in links)
        return sum(int(counts.lost_by_frame(length, each).any(axis=1).sum()) for each in rows)


class SimulationVotes:
    """The EVs of all connections of a run as rows of paths, by plane, and its probes."""

    def __init__(
        self, topology: Topology, network: Network, engine: Any, probes: SimulatedProbes | None, frame: int
    ) -> None:
        """Follow the path of every EV once; without `planes`, or with too many EVs and no probes, nothing is named.

        `frame`: ps.
        """
        self._engine, self._probes = engine, probes
        self._evs, _, *ends = connected_evs(engine)
        if len(self._evs) > MOST_EVS or not topology.planes:
            self._evs, ends = self._evs[:0], [each[:0] for each in ends]
        plane = column(engine.evs, "port")[self._evs].astype(np.int64)
        links = links_of(network, ends[0], ends[1], plane, column(engine.evs, "value")[self._evs].astype(np.int64))
        self._planes: list[_WatchedRows] = []
        for number, shape in enumerate(topology.planes if len(self._evs) or probes is not None else ()):
            rows = np.flatnonzero(plane == number)
            self._planes.append(_WatchedRows(PlaneParts(topology, shape), (rows, _own(links[rows], shape)),
                                             _probed(probes, number, len(self._evs))))  # fmt: skip
        self._windows: tuple[int, ...] = WINDOWS
        if probes is not None:
            more = (probes.period * each // frame for each in PROBE_PERIODS)
            self._windows += tuple(each for each in more if each > WINDOWS[-1])
        self._frames = FrameCounts(self._windows[-1], *self._counts())

    @property
    def names(self) -> bool:
        """Whether anything can be named here."""
        return bool(self._planes)

    @property
    def sources(self) -> str:
        """Return what verdicts rest on."""
        both = [*(["votes of entropy values"] if len(self._evs) else []), *(["probes"] if self._probes else [])]
        return " and ".join(both) if self.names else ""

    def look(self) -> list[VerdictLine]:
        """Take the votes of one more frame; return what is known to be faulty now, the most evident first."""
        if not self.names:
            return []
        self._frames.add(*self._counts())
        is_beside = any(plane.faults for plane in self._planes)
        for plane in self._planes:
            plane.look(self._frames, self._windows, is_beside)
        known = [fault for plane in self._planes for fault in plane.faults]
        return [fault.line for fault in sorted(known, key=lambda each: -each.named.nats)]

    def _counts(self) -> tuple[Ints, Ints]:
        """Return (delivered and lost, lost) of each EV so far, then of each probe."""
        records = self._engine.ev_failures
        carried, lost = (column(records, name)[self._evs].astype(np.int64) for name in ("acked", "lost"))
        both = column(self._engine.evs, "acked")[self._evs].astype(np.int64) + carried + lost
        if self._probes is None:
            return both, lost
        known, gone = self._probes.counts()
        return np.concatenate([both, known]), np.concatenate([lost, gone])


def _own(links: Ints, shape: PlaneShape) -> Links:
    """Return links of paths, numbered from the plane's first."""
    return np.where(links >= 0, links - shape.host_up, -1).astype(np.int32)


def _probed(probes: SimulatedProbes | None, plane: int, first: int) -> tuple[Ints, Links]:
    """Return (which rows, their links) of a plane's probes, which follow `first` other rows."""
    if probes is None:
        return np.zeros(0, dtype=np.int64), np.zeros((0, LONGEST), dtype=np.int32)
    links = probes.links[plane]
    padded = np.pad(links, ((0, 0), (0, LONGEST - links.shape[1])), constant_values=-1).astype(np.int32)
    return first + probes.rows[plane], padded


def _chances(votes: int, rows: Ints, of_votes: float) -> Any:
    """Return each row's share of packets that are lost without a fault: EVs first, then probes."""
    return np.where(np.arange(len(rows)) < votes, of_votes, PROBE_CHANCE)
