"""Faulty parts of a simulated fabric, named by what its endpoints see for free: losses and deliveries by entropy value.

Nobody probes a simulation, so a part is named where enough connections cross it, and cross others without it. Windows
are counted in frames. A part that was named is known until the longest window shows no loss over it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from openmrc.core.rows import column
from openmrc.fabric.model.shape import Ints
from openmrc.fabric.model.topology import Topology
from openmrc.probing.elements import PlaneParts
from openmrc.probing.known_faults import KnownFault, news
from openmrc.probing.localise import Floats, Localiser, Named
from openmrc.probing.verdicts import effect_of
from openmrc.sim.network.network_tables import Network
from openmrc.sim.network.path_of_ev import connected_evs, links_of
from openmrc.view.pictures import VerdictLine

WINDOWS = (2, 8, 64)  # frames
VOTE_CHANCE = 1e-5  # of a packet given up without a fault on its path: measured up to 3e-6
# While a part is faulty, acknowledgements are lost over it, and all planes take more load: 2e-4 in a whole run.
BESIDE_CHANCE = 1e-3
MOST_EVS = 200_000  # of all connections: beyond, a frame would take seconds


@dataclass
class _ShownFault(KnownFault):
    line: VerdictLine


class _WatchedEvs:
    """The EVs of one plane: which rows of all EVs they are, and the parts that are known to be faulty."""

    def __init__(self, localiser: Localiser, rows: Ints) -> None:
        self.localiser, self.rows = localiser, rows
        self._beside = localiser.with_chance(np.full(len(rows), BESIDE_CHANCE))
        self.faults: list[_ShownFault] = []

    def look(self, moments: Sequence[tuple[Ints, Ints]], at: int, is_beside: bool) -> None:
        """Name what is new in each window, and forget what has lost nothing in the longest one.

        `is_beside`: a part of any plane is known to be faulty.
        """
        now = [each[self.rows] for each in moments[-1]]
        for length in WINDOWS:
            before = [each[self.rows] for each in moments[max(0, len(moments) - 1 - length)]]
            sent, lost = (later - earlier for later, earlier in zip(now, before, strict=True))
            if length == WINDOWS[-1]:
                self.faults = [each for each in self.faults if lost[self.localiser.rows_of(each.named.part)].any()]
            if lost.any():
                self._name(sent.astype(np.float64), lost, at, length, is_beside)

    def _name(self, sent: Floats, lost: Ints, at: int, length: int, is_beside: bool) -> None:
        left = news(self.localiser, sent, lost, self.faults, max(0, at - length))
        localiser = self._beside if is_beside or self.faults else self.localiser
        for named in localiser.explain(*left, [each.named for each in self.faults]):
            self.faults.append(_ShownFault(named, at, _line(self.localiser.parts, named, length)))


class SimulationVotes:
    """The EVs of all connections of a run as rows of paths, by plane."""

    def __init__(self, topology: Topology, network: Network, engine: Any) -> None:
        """Follow the path of every EV once; without `planes`, or with too many EVs, nothing is named."""
        self._engine = engine
        self._evs, _, *ends = connected_evs(engine)
        is_known = topology.planes and 0 < len(self._evs) <= MOST_EVS
        self._planes: list[_WatchedEvs] = []
        if is_known:
            plane = column(engine.evs, "port")[self._evs].astype(np.int64)
            links = links_of(network, ends[0], ends[1], plane, column(engine.evs, "value")[self._evs].astype(np.int64))
            for number, shape in enumerate(topology.planes):
                rows = np.flatnonzero(plane == number)
                mine = links[rows]
                own = np.where(mine >= 0, mine - shape.host_up, -1).astype(np.int32)
                localiser = Localiser(PlaneParts(topology, shape), own, np.full(len(rows), VOTE_CHANCE))
                self._planes.append(_WatchedEvs(localiser, rows))
        self._looks = 0
        self._moments = deque([self._counts()], maxlen=WINDOWS[-1] + 1)

    @property
    def names(self) -> bool:
        """Whether anything can be named here."""
        return bool(self._planes)

    def look(self) -> list[VerdictLine]:
        """Take the votes of one more frame; return what is known to be faulty now, the most evident first."""
        if not self.names:
            return []
        self._looks += 1
        self._moments.append(self._counts())
        is_beside = any(plane.faults for plane in self._planes)
        for plane in self._planes:
            plane.look(self._moments, self._looks, is_beside)
        known = [fault for plane in self._planes for fault in plane.faults]
        return [fault.line for fault in sorted(known, key=lambda each: -each.named.nats)]

    def _counts(self) -> tuple[Ints, Ints]:
        """Return (delivered and lost, lost) of each EV so far."""
        lost = column(self._engine.ev_failures, "lost")[self._evs].astype(np.int64)
        return column(self._engine.evs, "acked")[self._evs].astype(np.int64) + lost, lost


def _line(parts: PlaneParts, named: Named, frames: int) -> VerdictLine:
    effect = effect_of(named.rate, named.lost, 0.0, late=False)
    votes = f"{effect}: {named.lost} of {named.sent} packets lost, by votes of {frames} frames"
    return VerdictLine(suspect=parts.name(named.part), confidence=named.confidence, votes=votes)
