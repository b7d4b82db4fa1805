"""The endpoints of a running simulation, as a controller sees them: the third fleet beside a host's and a fabric's.

Their votes are what the engine counts of each EV; the plan of probes of `mrc map` is sent as packets beside the data.

A controller's times are seconds, a simulation lasts milliseconds: its clock is fast here, by `SPEED`. A lease of 30 s
is 3 ms of the simulation, the half second in which a drained link must stay idle 50 us, many round trips.

Senders give up packets that wait in a queue that grows within microseconds, though these arrive. So what is lost on a
path counts only if none of its packets was marked or trimmed at the last `QUEUED_LOOKS` looks.

Every endpoint follows at once, and refuses what would take the last path to a peer, as a host's guard does.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from openmrc.core.arrays import Ints
from openmrc.core.rows import column
from openmrc.ctl.denials import Denials
from openmrc.engine.paths import ev_states
from openmrc.engine.state.machines import EvEvent, EvState
from openmrc.fabric.model.topology import Topology
from openmrc.operations.diagnosis.path_index import PathLinks
from openmrc.operations.diagnosis.plane_rows import ProbedRows
from openmrc.operations.diagnosis.probe_plan import COPIES, DATA_BYTES, PERIOD_PS, PROBE_BYTES, ProbeKind, plan_fabric
from openmrc.operations.fleets.fleet import PlaneVotes, Prober, TellableFleet
from openmrc.sim.loop.probe_times import ProbeTimes
from openmrc.sim.loop.run import World
from openmrc.sim.network.forwarding.path_of_ev import connected_evs, links_of
from openmrc.units import PS_PER_S, PS_PER_US

MOST_EVS = 100_000  # of all connections: with more, a look would take seconds, and nobody votes
LATE_PS = 100 * PS_PER_US  # a probe that has not come by then is lost: it waits behind control packets only
DATA_LATE_PS = 3 * LATE_PS  # the same of one like data: a full queue of a port at a tenth of its rate takes 100 us
TRAIN = 48  # probes like data in a row: more than twice what the queue of a port at a tenth of its rate takes
LEAST_PERIOD_PS = 2 * LATE_PS
SIZES = np.array([PROBE_BYTES, PROBE_BYTES + DATA_BYTES])  # of probes, bytes; the second like data
QUEUED_LOOKS = 4  # after a mark or a trimmed packet of a path: what it is said to lose may wait in a queue
SPEED = 10_000.0  # seconds of the controller in a second of the simulation
Bools = npt.NDArray[np.bool_]


class SimulatedFleet(TellableFleet):
    """All queue pairs of a simulation of MRC on a fabric with `planes`."""

    vote_chance = 1e-5  # measured: up to 3e-6 without a fault

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
        self._ways = self._own_paths(port) if len(self._evs) <= MOST_EVS and topology.planes else []
        self._seen = self._counts() if self._ways else None
        self._queues = np.zeros(len(self._evs), dtype=np.int64)  # looks for which an EV's path counts as queueing

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
        return self._fence.epoch

    @property
    def votes(self) -> bool:
        """Whether queue pairs vote: not without `planes`, nor with too many EVs."""
        return bool(self._ways)

    def look(self) -> PlaneVotes:
        """Return the votes of all queue pairs since the last look."""
        found = PlaneVotes()
        if self._seen is None:
            return found
        before, self._seen = self._seen, self._counts()
        self._seen[1] = np.maximum(self._seen[1], before[1])  # losses that proved false offset later ones
        counted, lost, queued = self._seen - before
        self._queues = np.where(queued > 0, QUEUED_LOOKS, np.maximum(0, self._queues - 1))
        excused = np.where(self._queues > 0, lost, 0)
        counted, lost = counted - excused, lost - excused
        for at in np.flatnonzero(counted).tolist():
            found.add(*self._ways[at], int(counted[at]), int(lost[at]))
        return found

    def _counts(self) -> Ints:
        """Return (delivered and lost, lost, marked or trimmed) of each EV so far."""
        evs, records = self._engine.evs, self._engine.ev_failures
        said, false = (column(records, name)[self._evs].astype(np.int64) for name in ("lost", "false_losses"))
        acked, marked, trimmed = (
            sum(column(each, name)[self._evs].astype(np.int64) for each in (evs, records))
            for name in ("acked", "marked", "trimmed")
        )
        return np.array([acked + said, said - false, marked + trimmed])

    def _own_paths(self, plane: Ints) -> list[tuple[int, PathLinks]]:
        """Return the plane of each EV and its links, numbered from the plane's first."""
        first = np.array([shape.host_up for shape in self._topology.planes], dtype=np.int64)[plane]
        own = np.where(self._links >= 0, self._links - first[:, None], -1).tolist()
        return [(at, tuple(link for link in row if link >= 0)) for at, row in zip(plane.tolist(), own, strict=True)]

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

    def _last_paths(self, wanted: Bools) -> Bools:
        """Return the EVs of queue pairs that would keep none that carries data; `last_paths` names them."""
        state = column(self._engine.evs, "state")[self._evs]
        usable = (state <= EvState.SKIP) | self._denied
        pairs = int(self._pair.max(initial=0)) + 1
        left = np.bincount(self._pair, usable & ~wanted, minlength=pairs)
        asked = np.bincount(self._pair, wanted, minlength=pairs)
        rows = np.flatnonzero((left == 0) & (asked > 0))
        first = np.searchsorted(self._pair, rows)
        name, ends = self._topology.name, self._ends
        self._kept = [f"{name(int(ends[0][at]))} to {name(int(ends[1][at]))}" for at in first]
        found: Bools = np.isin(self._pair, rows)
        return found

    def _allow(self, which: Bools) -> None:
        for at in np.flatnonzero(which):
            ev_states.transition(self._engine, self._world.now, int(self._evs[at]), EvEvent.ALLOW)
        self._denied &= ~which


class SimulatedProber(Prober):
    """Sends the probes of all planes of a run, on the simulation's clock."""

    def __init__(self, topology: Topology, world: World, period: int = PERIOD_PS) -> None:
        """Send a loop over each cable every `period` ps from now on; ConfigError: no plan, or several threads."""
        self._world, self.period = world, max(period, LEAST_PERIOD_PS)
        self.plans = plan_fabric(topology)
        counts = [len(SIZES) * len(plan) for plan in self.plans]
        self._first = np.cumsum([0, *counts])
        width = max(plan.links.shape[1] for plan in self.plans)
        self._links = np.full((self._first[-1], width), -1, dtype=np.int64)
        sizes = np.concatenate([np.repeat(SIZES, len(plan)) for plan in self.plans])
        turns, at = [], []
        for first, plan in zip(self._first, self.plans, strict=False):
            rows = first + np.arange(len(plan))
            like_data = rows + len(plan)
            links = np.where(plan.links >= 0, plan.links + plan.shape.host_up, -1)
            self._links[rows, : links.shape[1]] = self._links[like_data, : links.shape[1]] = links
            phase = (plan.phase * (self.period / PERIOD_PS)).astype(np.int64)
            often = plan.kind == ProbeKind.LOOP_T0  # once a period, the others take turns
            turns += [rows, rows[often], like_data]
            at += [phase, phase[often] + self.period, (phase + self.period // 2) % (COPIES * self.period)]
        late = np.where(sizes > PROBE_BYTES, DATA_LATE_PS, LATE_PS)
        turn, when = np.concatenate(turns), np.concatenate(at)
        self._times = ProbeTimes(self._links, turn, when, COPIES * self.period, sizes, late)
        world.probe(self._times)

    def step(self) -> list[ProbedRows]:
        """Return what became of the probes whose fate is known since the last step."""
        known, lost, late = self._times.outcomes(self._world.network, self._world.now)
        queued = np.where(late > 0, known - lost, 0)  # what is trimmed in a train that is late is early
        found = []
        while known.any():
            for plane, first in enumerate(self._first[:-1]):
                rows = first + np.flatnonzero(known[first : self._first[plane + 1]])
                if len(rows):
                    bad, slow = ((each[rows] > 0).astype(np.int64) for each in (lost, queued))
                    found.append(ProbedRows(plane, rows - first, bad, slow * (1 - bad)))
            known, lost, queued = (np.maximum(each - 1, 0) for each in (known, lost, queued))
        return found

    def recheck(self, plane: int, rows: Ints) -> None:
        """Send `TRAIN` probes at once on one of these rows, which are like data, and on others that share no link."""
        taken, waits = np.zeros(0, dtype=np.int64), self._times.waits(self._world.network, self._world.now)
        rows = rows + self._first[plane]
        for row in rows[np.argsort(self._times.sent_at[rows], kind="stable")].tolist():
            links = self._links[row][self._links[row] >= 0]
            if not waits[row] and not self._times.muted[row] and not np.isin(links, taken).any():
                taken = np.append(taken, links)
                self._times.send(self._world.network, self._world.now, np.full(TRAIN, row))

    def avoid(self, links: frozenset[int]) -> None:
        crossing = np.isin(self._links, np.array(sorted(links), dtype=np.int64)).any(axis=1)
        self._times.muted = np.asarray(crossing, dtype=bool)
