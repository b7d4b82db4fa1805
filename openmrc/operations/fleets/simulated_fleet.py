"""The endpoints of a running simulation, as a controller sees them: the third fleet beside a host's and a fabric's.

A controller's times are seconds, a simulation lasts milliseconds: its clock is fast here, by `SPEED`. A lease of 30 s
is 3 ms of the simulation, the half second in which a drained link must stay idle 50 us, many round trips.

Every endpoint follows at once, and refuses what would take the last path to a peer, as a host's guard does.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from openmrc.core.rows import column
from openmrc.ctl.denials import Denials
from openmrc.engine.paths import ev_states
from openmrc.engine.state.machines import EvEvent, EvState
from openmrc.fabric.model.topology import Topology
from openmrc.operations.diagnosis.verdicts import HitEndpoint
from openmrc.operations.fleets.fleet import PlaneVotes
from openmrc.sim.loop.run import World
from openmrc.sim.network.forwarding.path_of_ev import connected_evs, links_of
from openmrc.units import PS_PER_S

SPEED = 10_000.0  # seconds of the controller in a second of the simulation
Bools = npt.NDArray[np.bool_]


class SimulatedFleet:
    """All queue pairs of a simulation of MRC on a fabric with `planes`."""

    look_s = 0.1

    def __init__(self, topology: Topology, world: World) -> None:
        """Follow the path of every EV once; nothing is denied yet."""
        self._topology, self._world = topology, world
        self._engine = world.state.engine
        self._fence, self._until = Denials(), 0.0
        self._denied: Bools
        self._evs, self._pair, source, destination = connected_evs(self._engine)
        self._ends = source, destination
        port, value = (column(self._engine.evs, name)[self._evs].astype(np.int64) for name in ("port", "value"))
        self._links = links_of(world.network, source, destination, port, value)
        self._denied = np.zeros(len(self._evs), dtype=bool)
        self.kept: list[str] = []

    @property
    def now(self) -> float:
        """Return the controller's time (s)."""
        return self._world.now / PS_PER_S * SPEED

    def packets(self, links: Iterable[int]) -> int:
        """Return how many packets these links were given since the run began."""
        ports, wanted = self._world.network.ports, list(links)
        counts = (column(ports, name)[wanted].sum() for name in ("data_packets", "control_packets", "dropped"))
        return int(sum(counts))

    def refresh(self) -> list[str]:
        """Lift what nobody has renewed; return no names: all endpoints are there from the beginning."""
        if self._denied.any() and self.now >= self._until:
            self._allow(self._denied.copy())
        return []

    def names(self) -> list[str]:
        """Return the NICs that have queue pairs."""
        return [self._topology.name(int(nic)) for nic in np.unique(self._ends[0])]

    def epoch(self) -> int:
        """Return the greatest epoch that was seen."""
        return self._fence.epoch

    def look(self) -> PlaneVotes:
        """Return no votes: faults of a simulation are named on its page (`operations.page.simulation_votes`)."""
        return PlaneVotes()

    def tell(self, epoch: int, links: frozenset[int], lease: float, now: float) -> None:
        """Have all queue pairs avoid these links, and no others; FencedError: a newer controller was here."""
        self._fence.epoch = self._fence.check(epoch, lease)
        self._until = now + lease
        wanted: Bools = np.asarray(np.isin(self._links, np.array(sorted(links), dtype=np.int64)).any(axis=1))
        wanted &= ~self._last_paths(wanted)
        self._allow(self._denied & ~wanted)
        for at in np.flatnonzero(wanted & ~self._denied):
            ev_states.transition(self._engine, self._world.now, int(self._evs[at]), EvEvent.DENY)
        self._denied = wanted

    def waiting_for(self, now: float) -> list[str]:
        """Return nobody: queue pairs follow at once."""
        return []

    def hit_by(self, plane: int, links: frozenset[int]) -> list[HitEndpoint]:
        """Return nobody: no part is named here (`look`)."""
        return []

    def close(self) -> None:
        """Leave the queue pairs as they are: what is denied lapses."""

    def _last_paths(self, wanted: Bools) -> Bools:
        """Return the EVs of queue pairs that would keep none that carries data; `kept` names them."""
        state = column(self._engine.evs, "state")[self._evs]
        usable = (state <= EvState.SKIP) | self._denied
        pairs = int(self._pair.max(initial=0)) + 1
        left = np.bincount(self._pair, usable & ~wanted, minlength=pairs)
        asked = np.bincount(self._pair, wanted, minlength=pairs)
        rows = np.flatnonzero((left == 0) & (asked > 0))
        first = np.searchsorted(self._pair, rows)
        self.kept = [f"{self._topology.name(int(self._ends[0][at]))} to {self._topology.name(int(self._ends[1][at]))}"
                     for at in first]  # fmt: skip
        found: Bools = np.isin(self._pair, rows)
        return found

    def _allow(self, which: Bools) -> None:
        for at in np.flatnonzero(which):
            ev_states.transition(self._engine, self._world.now, int(self._evs[at]), EvEvent.ALLOW)
        self._denied &= ~which
