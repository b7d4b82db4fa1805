"""The endpoints that a controller watches and controls, through their controller sockets in one folder.

A lab's hosts are namespaces of one machine, so all their endpoints are here; on a real fabric there is one such fleet
a host, in its agent, and a controller has the `agents.remote_fleet` of them. Endpoints come and go: one that does not
answer is left out until it does.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from openmrc.core.arrays import Ints
from openmrc.ctl import endpoint_ops
from openmrc.ctl.client import CtlClient, local_endpoints
from openmrc.ctl.denials import Denial
from openmrc.ctl.device import PortReport
from openmrc.ctl.endpoint_ops import Vote
from openmrc.ctl.errors import FencedError
from openmrc.errors import BusyError, CallError, NotFoundError, PeerError
from openmrc.operations.diagnosis.denial import deniable
from openmrc.operations.diagnosis.path_index import PathIndex, PathLinks
from openmrc.operations.diagnosis.plane_rows import VOTE_BURST, VOTE_CHANCE, ProbedRows, VoteCounts
from openmrc.operations.diagnosis.probe_plan import ProbeSet
from openmrc.operations.diagnosis.verdicts import HitEndpoint
from openmrc.operations.fleets.ranks import rank_of
from openmrc.units import NS_PER_S

log = logging.getLogger(__name__)
Said = tuple[int, PathLinks, int, int, int]  # plane, links, delivered and lost, lost, marked or trimmed
LATE_WAIT_S = 0.005  # that a thread was ready to run and did not: longer than an endpoint waits before it calls a loss
LATE_LOOKS = 3  # after a host was late: packets of that time are given up later, by plane
CALL_SECONDS = 2.0  # for one endpoint's answer: one that hangs delays the others no longer


@dataclass
class PlaneVotes:
    """What endpoints said of the paths of each plane since the last look."""

    by_plane: dict[int, dict[PathLinks, VoteCounts]] = field(default_factory=dict)
    late: list[int] = field(default_factory=list)  # NICs that lost on several planes at once: the host, not the network

    def add(self, plane: int, links: PathLinks, counted: int, lost: int, queued: int = 0) -> None:
        paths = self.by_plane.setdefault(plane, {})
        before = paths.get(links, (0, 0, 0))
        paths[links] = (before[0] + counted, before[1] + lost, before[2] + queued)

    def merge(self, more: PlaneVotes) -> None:
        for plane, paths in more.by_plane.items():
            for links, counts in paths.items():
                self.add(plane, links, *counts)
        self.late += [nic for nic in more.late if nic not in self.late]


class LateNics:
    """The NICs that lost on most of their planes at the same time: no evidence, for planes fail one by one.

    Such a NIC is called late only if its host says so itself, by how long its threads waited for a processor.
    """

    def __init__(self, planes: int) -> None:
        self._planes = planes
        self._left: dict[int, int] = {}  # looks for which a NIC still counts as late

    def add(self, found: PlaneVotes, said: dict[int, list[Said]], waited: Mapping[int, float]) -> None:
        """Add the votes of a look by NIC; what was lost on most planes at once is excused, in the next looks, too.

        `waited`: how long threads of a NIC's endpoints waited for a processor since the last look (s).
        """
        for nic, votes in said.items():
            everywhere = self._planes > 1 and 2 * len({each[0] for each in votes if each[3]}) > self._planes
            if everywhere and waited.get(nic, 0.0) >= LATE_WAIT_S:
                found.late.append(nic)
            left = self._left.get(nic, 0)
            self._left[nic] = LATE_LOOKS if everywhere else max(0, left - 1)
            for plane, links, counted, lost, queued in votes:
                found.add(plane, links, counted, 0 if everywhere or left else lost, queued)


class ProcessorWaits:
    """How long the threads of a process were ready to run and did not, as Linux counts it."""

    def __init__(self, pid: int) -> None:
        self._tasks = Path(f"/proc/{pid}/task")
        self._before: dict[str, int] = {}
        self.since()

    def since(self) -> float:
        """Return the longest such time of a thread since the last call (s), 0 where nobody counts it."""
        before, self._before = self._before, {}
        with contextlib.suppress(OSError):  # the process has ended, or this kernel does not count
            for task in self._tasks.iterdir():
                self._before[task.name] = int((task / "schedstat").read_text().split()[1])
        return max((at - before[name] for name, at in self._before.items() if name in before), default=0) / NS_PER_S


class TellableFleet:
    """The endpoints of a fabric, as its controller sees them, and of a host, as its agent does.

    By default all of them are there from the beginning, apply an update before `tell` returns, and cannot be told
    anything.
    """

    look_s = 0.1  # between two looks of a controller
    vote_chance = VOTE_CHANCE  # of a packet that an endpoint believes lost, without a fault
    vote_burst = VOTE_BURST  # losses of a path at one look that count: more are one event
    one_is_enough = True  # to name a part: one process sees all hosts, none of which can lie
    _kept: Sequence[str] = ()

    def names(self) -> list[str]:
        return []

    def look(self) -> PlaneVotes:
        """Return the votes since the last look."""
        return PlaneVotes()

    def last_paths(self) -> list[str]:
        """Return the pairs that keep a last path over what was to be avoided."""
        return list(self._kept)

    def refresh(self) -> list[str]:
        """Connect to new endpoints; return their names."""
        return []

    def epoch(self) -> int:
        """Return the greatest epoch that any endpoint has seen."""
        return 0

    def tell(self, epoch: int, links: frozenset[int], lease: float, now: float) -> None:
        """Have all endpoints avoid these links and no others; FencedError."""

    def waiting_for(self, now: float) -> list[str]:
        """Return the hosts that have not applied the last update."""
        return []

    def hit_by(self, plane: int, links: frozenset[int]) -> list[HitEndpoint]:
        """Return who lost packets on paths over these links (numbered from the plane's first), the most first."""
        return []

    def close(self) -> None:
        """Disconnect from the endpoints; their denials lapse."""


class Prober:
    """What sends the probes of a fabric's plan, small and like data."""

    plans: list[ProbeSet]
    paces = False  # whether a step takes its time by itself

    def step(self) -> Sequence[ProbedRows]:
        """Send some probes, and return what became of earlier ones."""
        return []

    def doubts(self) -> Sequence[Ints]:
        """Return the rows, by plane, whose probes should have returned by now."""
        return []

    def recheck(self, plane: int, rows: Ints) -> None:
        """Probe these rows again soon, those like data for a while."""

    def avoid(self, links: frozenset[int]) -> None:
        """Send nothing over these links."""


# Delivered and lost, and lost, when an endpoint was first looked at: by peer, port and EV.
FirstCounts = dict[tuple[str, int, int], tuple[int, int]]


class AgentOfEndpoint:
    """One endpoint: its NIC, its last counts, and what it avoids."""

    def __init__(self, path: Path, index: PathIndex, first: FirstCounts | None = None) -> None:
        """Connect, again with what was counted when it was first looked at; PeerError, CallError."""
        self.name = path.stem
        self._client, self._index = CtlClient(path, CALL_SECONDS), index
        try:
            self.nic = self._find_nic(self._client.call(endpoint_ops.ports).ports)
            found = self._client.call(endpoint_ops.denials)
        except BaseException:
            self.close()
            raise
        self.epoch = found.epoch
        self.told: set[Denial] = set()
        self.kept: list[str] = []  # peers for which a denial was refused: the last path
        self._counted: dict[tuple[str, int, int], tuple[int, int, int]] = {}
        self.first: FirstCounts = {} if first is None else first
        pid = int(self.name.partition("-")[0])
        self.program, self.waits = rank_of(pid), ProcessorWaits(pid)
        self._votes: list[Vote] = []

    def _find_nic(self, ports: list[PortReport]) -> int:
        for port in ports:
            found = self._index.nic(port.address)
            if found is not None:
                return found[1]
        return -1

    def close(self) -> None:
        self._client.close()

    def look(self) -> list[Said]:
        """Return the counts of each path since the last look; PeerError, CallError."""
        first = not self._votes and not self._counted
        self._votes = self._client.call(endpoint_ops.votes).votes
        found = []
        for vote in self._votes:
            key = vote.peer, vote.port, vote.ev
            now = vote.acked + vote.lost, vote.lost - vote.false_losses, vote.marked + vote.trimmed
            before = now if first else self._counted.get(key, (0, 0, 0))
            self._counted[key] = now[0], max(now[1], before[1]), now[2]  # losses that proved false offset later ones
            self.first.setdefault(key, before[:2])
            way = self._links(vote)
            if way is not None and now > before:
                counted, lost, queued = (max(0, at - then) for at, then in zip(now, before, strict=True))
                found.append((vote.port - 1, way, counted, lost, min(queued, counted)))
        return found

    def over(self, plane: int, links: frozenset[int]) -> tuple[int, int]:
        """Return (delivered and lost, lost) on paths over these links of a plane, since we look."""
        counted, lost = 0, 0
        for vote in self._votes:
            way = self._links(vote) if vote.port == plane + 1 else None
            if way is not None and links.intersection(way):
                first = self.first[vote.peer, vote.port, vote.ev]
                counted += vote.acked + vote.lost - first[0]
                lost += max(0, vote.lost - vote.false_losses - first[1])
        return counted, lost

    def tell(self, epoch: int, links: frozenset[int], lease: float) -> None:
        """Have these links (numbers of the topology) avoided for a lease, and no others of ours.

        FencedError: a newer controller was here. What would take a peer's last path is left out (`kept`).
        """
        paths, address = self._paths()
        crossing, self.kept = deniable(paths, links)
        wanted = {Denial(port=each.port, ev=each.ev, peer=address[each.peer, each.port]) for each in crossing}
        gone, self.told = self.told - wanted, self.told & wanted
        try:
            if gone:
                self._lift(sorted(gone, key=_order), epoch)
            self._deny(sorted(wanted, key=_order), epoch, lease)
        except FencedError:
            self.epoch = self._client.call(endpoint_ops.denials).epoch
            raise
        self.epoch = epoch

    def _deny(self, wanted: list[Denial], epoch: int, lease: float) -> None:
        """Deny one after the other what is not refused: an endpoint knows best which path is its last."""
        while wanted:
            try:
                self._client.call(endpoint_ops.deny, denials=wanted, lease=lease, epoch=epoch)
            except BusyError as error:
                done = error.done or 0
                self.told.update(wanted[:done])
                self.kept.append(wanted[done].peer)
                wanted = wanted[done + 1 :]
            else:
                self.told.update(wanted)
                return

    def _lift(self, gone: list[Denial], epoch: int) -> None:
        try:
            self._client.call(endpoint_ops.lift, denials=gone, epoch=epoch)
        except NotFoundError:  # some lapsed: lift those that are left one by one
            for denial in gone:
                try:
                    self._client.call(endpoint_ops.lift, denials=[denial], epoch=epoch)
                except NotFoundError:
                    continue

    def _links(self, vote: Vote) -> PathLinks | None:
        peer = self._index.nic(vote.peer)
        if peer is None or self.nic < 0:
            return None
        return self._index.links(vote.port - 1, self.nic, peer[1], vote.path)

    def _paths(self) -> tuple[dict[str, dict[tuple[int, int], frozenset[int]]], dict[tuple[str, int], str]]:
        """Return for each peer NIC the topology's links of its EVs on all planes, and its address by port."""
        topology = self._index.plan.topology
        paths: dict[str, dict[tuple[int, int], frozenset[int]]] = {}
        address: dict[tuple[str, int], str] = {}
        for vote in self._votes:
            way, peer = self._links(vote), self._index.nic(vote.peer)
            if way is not None and peer is not None:
                name, base = topology.name(peer[1]), topology.planes[vote.port - 1].host_up
                paths.setdefault(name, {})[(vote.port, vote.ev)] = frozenset(link + base for link in way)
                address[name, vote.port] = vote.peer
        return paths, address


def _order(denial: Denial) -> tuple[str, int, int]:
    return denial.peer, denial.port, denial.ev


class Fleet(TellableFleet):
    """All endpoints with a socket in a folder; with `host`, only those of this NIC."""

    def __init__(self, folder: Path, index: PathIndex, host: int | None = None) -> None:
        self.folder, self._index, self._host = folder, index, host
        self.agents: dict[str, AgentOfEndpoint] = {}
        self._late = LateNics(len(index.plan.planes))
        self._left: dict[str, FirstCounts] = {}  # of endpoints that did not answer, which may come back

    def refresh(self) -> list[str]:
        new, paths = [], local_endpoints(str(self.folder))
        self._left = {path.stem: self._left[path.stem] for path in paths if path.stem in self._left}
        for path in paths:
            if path.stem not in self.agents:
                try:
                    found = AgentOfEndpoint(path, self._index, self._left.get(path.stem))
                except (PeerError, CallError) as error:
                    log.info("mrc: %s", error)
                    continue
                if self._host not in (None, found.nic):
                    found.close()
                    continue
                self.agents[path.stem] = found
                new.append(path.stem)
        return new

    def names(self) -> list[str]:
        """Return the names of the endpoints, with their ranks."""
        return [f"{agent.name} ({agent.program})" if agent.program else agent.name for agent in self.agents.values()]

    def epoch(self) -> int:
        return max((agent.epoch for agent in self.agents.values()), default=0)

    def look(self) -> PlaneVotes:
        """Return the votes of all endpoints since the last look."""
        found, said, waited = PlaneVotes(), dict[int, list[Said]](), dict[int, float]()
        for agent in list(self.agents.values()):
            try:
                said.setdefault(agent.nic, []).extend(agent.look())
            except (PeerError, CallError) as error:
                self._leave(agent, error)
            waited[agent.nic] = max(waited.get(agent.nic, 0.0), agent.waits.since())
        self._late.add(found, said, waited)
        return found

    def hit_by(self, plane: int, links: frozenset[int]) -> list[HitEndpoint]:
        topology, found = self._index.plan.topology, list[HitEndpoint]()
        for agent in self.agents.values():
            counted, lost = agent.over(plane, links)
            if lost:
                found.append(HitEndpoint(host=topology.name(agent.nic), endpoint=agent.name, program=agent.program,
                                         counted=counted, lost=lost))  # fmt: skip
        return sorted(found, key=lambda each: -each.lost)

    def tell(self, epoch: int, links: frozenset[int], lease: float, now: float) -> None:
        """Have all endpoints avoid these links; `last_paths` says which keep one over them. FencedError."""
        kept = []
        for agent in list(self.agents.values()):
            try:
                agent.tell(epoch, links, lease)
            except FencedError:
                raise
            except (PeerError, CallError) as error:
                self._leave(agent, error)
            else:
                kept += [f"{agent.name} to {peer}" for peer in agent.kept]
        self._kept = kept

    def close(self) -> None:
        for agent in self.agents.values():
            agent.close()
        self.agents.clear()

    def _leave(self, agent: AgentOfEndpoint, why: Exception) -> None:
        log.info("mrc: %s", why)
        agent.close()
        self._left[agent.name] = agent.first
        self.agents.pop(agent.name, None)
