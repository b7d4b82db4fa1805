"""Faulty parts of a simulated fabric, named by what its endpoints see for free: losses and deliveries by entropy value.

Nobody probes a simulation, so a part is named where enough connections cross it, and cross others without it. Windows
are counted in frames. What has healed leaves the windows, and the verdict goes with it.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from openmrc.core.rows import column
from openmrc.fabric.model.shape import Ints
from openmrc.fabric.model.topology import Topology
from openmrc.probing.elements import PlaneParts
from openmrc.probing.localise import Localiser, Named
from openmrc.probing.trial import VOTE_CHANCE
from openmrc.probing.verdicts import effect_of
from openmrc.sim.network.network_tables import Network
from openmrc.sim.network.path_of_ev import connected_evs, links_of
from openmrc.view.pictures import VerdictLine

WINDOWS = (2, 8, 64)  # frames
MOST_EVS = 200_000  # of all connections: beyond, a frame would take seconds


class SimulationVotes:
    """The EVs of all connections of a run as rows of paths, by plane."""

    def __init__(self, topology: Topology, network: Network, engine: Any) -> None:
        """Follow the path of every EV once; without `planes`, or with too many EVs, nothing is named."""
        self._engine = engine
        self._evs, _, *ends = connected_evs(engine)
        is_known = topology.planes and 0 < len(self._evs) <= MOST_EVS
        self._rows: list[Ints] = []  # by plane: positions in `_evs`
        self._localisers: list[Localiser] = []
        if is_known:
            plane = column(engine.evs, "port")[self._evs].astype(np.int64)
            links = links_of(network, ends[0], ends[1], plane, column(engine.evs, "value")[self._evs].astype(np.int64))
            for number, shape in enumerate(topology.planes):
                rows = np.flatnonzero(plane == number)
                mine = links[rows]
                own = np.where(mine >= 0, mine - shape.host_up, -1).astype(np.int32)
                self._rows.append(rows)
                self._localisers.append(Localiser(PlaneParts(topology, shape), own, np.full(len(rows), VOTE_CHANCE)))
        self._moments = deque([self._counts()], maxlen=WINDOWS[-1] + 1)

    @property
    def names(self) -> bool:
        """Whether anything can be named here."""
        return bool(self._localisers)

    def look(self) -> list[VerdictLine]:
        """Take the votes of one more frame; return what they name now, the most evident first."""
        if not self.names:
            return []
        self._moments.append(self._counts())
        found: dict[str, tuple[float, VerdictLine]] = {}
        for length in WINDOWS:
            before, now = self._moments[max(0, len(self._moments) - 1 - length)], self._moments[-1]
            sent, lost = now[0] - before[0], now[1] - before[1]
            for rows, localiser in zip(self._rows, self._localisers, strict=True):
                if lost[rows].any():
                    for named in localiser.explain(sent[rows].astype(np.float64), lost[rows]):
                        line = _line(localiser.parts, named, length)
                        if line.suspect not in found or named.nats > found[line.suspect][0]:
                            found[line.suspect] = (named.nats, line)
        return [line for _, line in sorted(found.values(), key=lambda each: -each[0])]

    def _counts(self) -> tuple[Ints, Ints]:
        """Return (delivered and lost, lost) of each EV so far."""
        lost = column(self._engine.ev_failures, "lost")[self._evs].astype(np.int64)
        return column(self._engine.evs, "acked")[self._evs].astype(np.int64) + lost, lost


def _line(parts: PlaneParts, named: Named, frames: int) -> VerdictLine:
    effect = effect_of(named.rate, named.lost, 0.0, late=False)
    votes = f"{effect}: {named.lost} of {named.sent} packets lost, by votes of {frames} frames"
    return VerdictLine(suspect=parts.name(named.part), confidence=named.confidence, votes=votes)
