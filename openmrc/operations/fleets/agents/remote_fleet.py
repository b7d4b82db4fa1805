"""What a controller knows of the hosts of a fabric through their agents: one report, one answer, without a socket.

    report of a host --checked--> votes, probes, its epoch, what it follows --.
                                                                              >--> the controller's loop
    orders <--links, epoch, lease, when to report again-- `tell` -------------'

A host speaks for itself alone: paths that begin at its NIC, loops of its own, one-way probes at one of its ends. A
report about anything else is no report. What it may make us believe about the network is bounded by
`openmrc.operations.diagnosis.witnesses`; about epochs here: one host alone neither fences a controller off nor drives
its epoch up.

Reports come when the orders before said so: the more hosts, the later. The controller's loop is given whole rounds of
them, in which every host that is alive has spoken: of half a round, what the other half saw unharmed would be missing.
"""

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from openmrc.core.arrays import Ints
from openmrc.ctl.errors import FencedError
from openmrc.errors import ConfigError, Malformed
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.operations.diagnosis.path_index import PathLinks
from openmrc.operations.diagnosis.plane_rows import PROBE_SIZES, ProbedRows
from openmrc.operations.diagnosis.probe_plan import plan_fabric
from openmrc.operations.diagnosis.verdicts import HitEndpoint
from openmrc.operations.fleets.agents.messages import MOST_ROWS, HostOrders, HostReport, LoopsSeen, OneWays, PathVote
from openmrc.operations.fleets.agents.one_way_join import OneWayJoin
from openmrc.operations.fleets.fleet import PlaneVotes, Prober, TellableFleet
from openmrc.operations.fleets.lab_prober import BOOST_S, MOST_BOOSTED
from openmrc.operations.fleets.state_folder import EPOCH_DRAWN

REPORTS_A_SECOND = 500.0  # of all hosts; an assumption, as no controller has been measured with that many
WAIT_S = 0.1  # between two reports of a host, at least
PATIENCE_S = 1.0  # or five waits: reports of other hosts wait so long for that of one
PASSED_ON_S = 1.0  # after which a host has reported what it sent: rounds around it are judged first
GONE_S = 5.0  # without a report, or ten waits if that is longer: the host is gone
MOST_PATHS = 4096  # of a host on a plane
MOST_COUNT = 1 << 32  # packets of a path in one report
MOST_EPOCH_JUMP = 1000 << EPOCH_DRAWN  # that one host's word may make


@dataclass
class _RemoteHost:
    """A host, by its last report."""

    nic: int
    heard_at: float
    since: float = np.inf  # it has reported over this connection
    proven: float = -np.inf  # its last report was made after this time: it answers orders of then
    answered_at: float = -np.inf
    epoch: int = 0
    obeyed: int = 0
    kept: list[str] = field(default_factory=list)
    endpoints: list[str] = field(default_factory=list)
    paths: dict[tuple[int, PathLinks], tuple[int, int]] = field(default_factory=dict)  # (delivered and lost, lost)


class RemoteFleet(TellableFleet, Prober):
    """The hosts of a fabric. `take` may be called from another thread than the rest."""

    one_is_enough = False
    look_s = 0.0  # votes are judged with the probes of their round

    def __init__(self, plan: UsidPlan, absent: Collection[str] = ()) -> None:
        """`absent`: hosts that are known to be off, for which nothing waits."""
        self._topology, self.plans = plan.topology, plan_fabric(plan.topology)
        self._expected = set(range(plan.topology.nics)) - {plan.topology.node_named(each) for each in absent}
        self.hosts: dict[int, _RemoteHost] = {}
        self._new: list[str] = []
        self._lock = threading.Lock()  # of everything
        self._votes, self._probed = PlaneVotes(), list[ProbedRows]()  # of the round that is under way
        self._reported: set[int] = set()  # in it
        self._whole_votes, self._whole_probed = PlaneVotes(), list[ProbedRows]()  # of whole rounds
        self._join = OneWayJoin(self.plans)
        self._orders, self._unprobed = HostOrders(heard=0, number=0, wait=0.0), frozenset[int]()
        self._often: list[list[int]] = [[] for _ in self.plans]  # rows to be sent often like data
        self._often_until = [-np.inf for _ in self.plans]
        self._now = 0.0

    # For the agents

    def nic_of(self, name: str) -> int | None:
        """Return the NIC of a host's name, None if there is none."""
        try:
            node = self._topology.node_named(name)
        except ConfigError:
            return None
        return node if node < self._topology.nics and self._topology.name(node) == name else None

    def take(self, nic: int, report: HostReport, now: float) -> HostOrders:
        """Process a host's report and return its orders; Malformed if it reports on paths that are not its own."""
        self._check(nic, report)
        with self._lock:
            host = self.hosts.setdefault(nic, _RemoteHost(nic, now))
            is_first = host.answered_at == -np.inf
            sent_after = -np.inf if is_first else host.heard_at - PASSED_ON_S
            host.since = now if is_first else host.since
            host.heard_at, host.proven = now, host.answered_at
            name = self._topology.name(nic)
            self._new += [f"{name} {each}" for each in report.endpoints if each not in host.endpoints]
            host.epoch, host.obeyed, host.endpoints = report.epoch, report.obeyed, report.endpoints
            host.kept = [f"{name} to {peer}" for peer in report.kept]
            self._take_counts(host, report, now, sent_after)
            host.answered_at = now
            return msgspec.structs.replace(
                self._orders, heard=report.number, wait=self._wait(), unprobed=sorted(self._unprobed), often=self._often
            )

    def left(self, nic: int) -> None:
        """Note that a host's connection has ended: its next report does not answer orders."""
        with self._lock:
            if nic in self.hosts:
                self.hosts[nic].answered_at = -np.inf

    # For the controller

    def last_paths(self) -> list[str]:
        with self._lock:
            return [pair for host in self.hosts.values() for pair in host.kept]

    def refresh(self) -> list[str]:
        """Return the endpoints that hosts have newly named."""
        with self._lock:
            new, self._new = self._new, []
        return new

    def names(self) -> list[str]:
        with self._lock:
            return [f"{self._topology.name(nic)} {each}" for nic, host in self.hosts.items() for each in host.endpoints]

    def epoch(self) -> int:
        """Return the greatest epoch that hosts have seen; a single one that is far ahead of all others is no proof."""
        with self._lock:
            seen = sorted((host.epoch for host in self.hosts.values()), reverse=True)
        second = seen[1] if len(seen) > 1 else 0
        return next((each for each in seen if each <= second + MOST_EPOCH_JUMP), 0)

    def look(self) -> PlaneVotes:
        """Return the votes of the rounds that have ended since the last look."""
        with self._lock:
            self._end_round()
            votes, self._whole_votes = self._whole_votes, PlaneVotes()
        return votes

    def tell(self, epoch: int, links: frozenset[int], lease: float, now: float) -> None:
        """Order these links to be avoided; FencedError if two hosts, or the only one, follow a newer controller."""
        with self._lock:
            newer = [host.epoch for host in self.hosts.values() if host.epoch > epoch]
            if newer and len(newer) >= min(2, len(self.hosts)):
                raise FencedError(f"epoch: {epoch}; a controller with epoch {min(newer)} has taken over")
            before, wanted = self._orders, sorted(links)
            number = before.number + ((wanted, epoch) != (before.links, before.epoch))
            self._orders = HostOrders(heard=0, number=number, wait=0.0, epoch=epoch, lease=lease, links=wanted)

    def waiting_for(self, now: float) -> list[str]:
        """Return the hosts that do not follow the newest orders, are gone, or have never been heard of."""
        with self._lock:
            late = now - max(GONE_S, 10 * self._wait())
            done = {
                nic for nic, host in self.hosts.items() if host.obeyed >= self._orders.number and host.heard_at >= late
            }
        return [self._topology.name(nic) for nic in sorted(self._expected - done)]

    def hit_by(self, plane: int, links: frozenset[int]) -> list[HitEndpoint]:
        """Return the hosts that lost packets on paths over these links (from the plane's first), the most first."""
        found = list[HitEndpoint]()
        with self._lock:
            for host in self.hosts.values():
                over = [
                    counts for (where, way), counts in host.paths.items() if where == plane and links.intersection(way)
                ]
                found.append(HitEndpoint(
                    host=self._topology.name(host.nic), endpoint=", ".join(host.endpoints), program="",
                    counted=sum(counted for counted, _ in over), lost=sum(lost for _, lost in over),
                ))  # fmt: skip
        return sorted((each for each in found if each.lost), key=lambda each: -each.lost)

    def step(self) -> Sequence[ProbedRows]:
        """Return what became of probes in the rounds that have ended since the last step."""
        with self._lock:
            self._end_round()
            probed, self._whole_probed = self._whole_probed, []
            return probed

    def recheck(self, plane: int, rows: Ints) -> None:
        """Have some of those that are like data sent often for a while.

        Small ones are left to the hosts' rounds: a report and its answer take longer than one of them.
        """
        like_data = rows[rows >= len(self.plans[plane])] - len(self.plans[plane])
        with self._lock:
            if self._now >= self._often_until[plane]:
                draw = np.random.default_rng(int(self._now * 1000))
                self._often[plane] = draw.permutation(like_data)[:MOST_BOOSTED].tolist()
                self._often_until[plane] = self._now + BOOST_S * bool(self._often[plane])

    def avoid(self, links: frozenset[int]) -> None:
        """Let no host probe over these links."""
        self._unprobed = links

    # Internals

    def _wait(self) -> float:
        return max(WAIT_S, len(self.hosts) / REPORTS_A_SECOND)

    def _end_round(self) -> None:
        """End the round once every host that is alive has reported: pass on its votes and probes."""
        oldest = self._now - max(PATIENCE_S, 5 * self._wait())
        living = {nic for nic, host in self.hosts.items() if host.heard_at >= oldest}
        if not living or living - self._reported:
            return
        self._reported.clear()
        since, proven = np.full(self._topology.nics, np.inf), np.full(self._topology.nics, -np.inf)
        for nic, host in self.hosts.items():
            since[nic], proven[nic] = host.since, host.proven
        self._whole_probed += self._probed + self._join.settled(self._now, since, proven)
        self._whole_votes.merge(self._votes)
        self._votes, self._probed = PlaneVotes(), []

    def _take_counts(self, host: _RemoteHost, report: HostReport, now: float, sent_after: float) -> None:
        self._now = max(self._now, now)
        self._reported.add(host.nic)
        for vote in report.votes:
            way = tuple(vote.links)
            if (vote.plane, way) not in host.paths and len(host.paths) >= MOST_PATHS * len(self.plans):
                continue
            before = host.paths.get((vote.plane, way), (0, 0))
            host.paths[vote.plane, way] = before[0] + vote.counted, before[1] + vote.lost
            self._votes.add(vote.plane, way, vote.counted, vote.lost, vote.queued)
        if report.late and host.nic not in self._votes.late:
            self._votes.late.append(host.nic)
        for loops in report.loops:
            rows = np.array(loops.rows, dtype=np.int64)
            lost, queued = (
                np.isin(rows, np.array(each, dtype=np.int64)).astype(np.int64) for each in (loops.lost, loops.queued)
            )
            self._probed.append(ProbedRows(loops.plane, rows, lost, queued))
        for sent in report.sent:
            self._join.sent(host.nic, sent, now, sent_after)
        for arrived in report.arrived:
            self._join.arrived(arrived, now)

    def _check(self, nic: int, report: HostReport) -> None:
        if report.epoch < 0 or report.obeyed < 0:
            raise Malformed("report: an epoch or number below 0")
        lists = (report.votes, report.loops, report.sent, report.arrived, report.kept, report.endpoints)
        if any(len(each) > MOST_ROWS for each in lists):
            raise Malformed(f"report: more than {MOST_ROWS} entries")
        known = self.hosts[nic].paths if nic in self.hosts else {}
        for vote in report.votes:
            if not (0 <= vote.lost <= vote.counted <= MOST_COUNT and 0 <= vote.queued <= vote.counted):
                raise Malformed(f"report: {vote.lost} of {vote.counted} packets lost, {vote.queued} queued")
            if (vote.plane, tuple(vote.links)) not in known:
                self._check_path(nic, vote)
        for loops in report.loops:
            self._check_rows(loops, loops.rows, nic, at=("source", "destination"))
            for rows in (loops.lost, loops.queued):
                self._check_rows(loops, rows, nic, at=("source",))
        for sent in report.sent:
            self._check_rows(sent, sent.rows, nic, at=("source",))
        for arrived in report.arrived:
            for rows in (arrived.rows, arrived.queued):
                self._check_rows(arrived, rows, nic, at=("destination",))

    def _check_path(self, nic: int, vote: PathVote) -> None:
        topology = self._topology
        if not 0 <= vote.plane < len(self.plans):
            raise Malformed(f"report: plane {vote.plane}")
        shape = self.plans[vote.plane].shape
        links, node = [link + shape.host_up for link in vote.links], nic
        if not 1 < len(links) <= 8 or min(vote.links) < 0 or max(links) >= topology.links:
            raise Malformed("report: a path of no links, of more than 8, or of links that do not exist")
        for link in links:
            if int(topology.link_source[link]) != node or int(topology.link_plane[link]) != vote.plane:
                raise Malformed(f"report: a path that does not lead from {topology.name(nic)} over neighbouring links")
            node = int(topology.link_destination[link])
        if node >= topology.nics:
            raise Malformed("report: a path that ends at no host")

    def _check_rows(self, what: LoopsSeen | OneWays, rows: list[int], nic: int, at: tuple[str, ...]) -> None:
        if not 0 <= what.plane < len(self.plans):
            raise Malformed(f"report: plane {what.plane}")
        plan = self.plans[what.plane]
        most = PROBE_SIZES * len(plan)
        if len(rows) > most or (rows and not 0 <= min(rows) <= max(rows) < most):
            raise Malformed("report: probes that are not in the plan")
        wanted = np.array(rows, dtype=np.int64) % len(plan)
        for end in at:
            if (getattr(plan, end)[wanted] != nic).any():
                raise Malformed(f"report: probes that are not of {self._topology.name(nic)}")
