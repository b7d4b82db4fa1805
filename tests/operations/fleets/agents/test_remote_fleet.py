"""Agents and controller without sockets: leases, epochs, what hosts may say, liars, kills and partitions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from harness.agent_hosts import NICS, ModelEndpoints, twelve
from harness.kill_schedule import run_schedule
from openmrc.ctl.errors import FencedError
from openmrc.errors import Malformed
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.operations.control.controller import ControllerEvent, FabricController
from openmrc.operations.diagnosis.denial import DenialLimits
from openmrc.operations.diagnosis.path_index import PathIndex
from openmrc.operations.diagnosis.probe_plan import ProbeKind, ProbeSet
from openmrc.operations.fleets.agents.host_agent import HostAgent
from openmrc.operations.fleets.agents.messages import HostOrders, HostReport, LoopsSeen, OneWays, PathVote
from openmrc.operations.fleets.agents.remote_fleet import GONE_S, MOST_EPOCH_JUMP, PASSED_ON_S, PATIENCE_S, RemoteFleet

APPLY = DenialLimits(dry_run=False)
BROKEN = "p0-t0-00>p0-t1-02"


@pytest.fixture(scope="module")
def plan() -> UsidPlan:
    return twelve()


@pytest.fixture(scope="module")
def index(plan: UsidPlan) -> PathIndex:
    return PathIndex(plan)


def link_named(plan: UsidPlan, name: str) -> int:
    return next(link for link in range(plan.topology.links) if plan.topology.link_name(link) == name)


class Site:
    """All hosts with agents, and one controller, in one clock that tests advance."""

    def __init__(self, plan: UsidPlan, index: PathIndex, state: Path) -> None:
        self.plan, self.state = plan, state
        self.hosts = [ModelEndpoints(plan, nic, index) for nic in range(NICS)]
        self.agents = [HostAgent(host) for host in self.hosts]
        self.fleet, self.now = RemoteFleet(plan), 0.0
        self.report()
        self.controller = FabricController(plan, state, self.now, APPLY, None, None, self.fleet)

    def report(self, liar: int = -1, lie: list[PathVote] | None = None) -> None:
        for nic, agent in enumerate(self.agents):
            said = agent.report(self.now)
            if nic == liar:
                said.votes = lie or []
            agent.obey(self.fleet.take(nic, said, self.now), self.now)

    def run(self, seconds: float, liar: int = -1, lie: list[PathVote] | None = None) -> list[ControllerEvent]:
        events = list[ControllerEvent]()
        for _ in range(round(seconds / 0.1)):
            self.now += 0.1
            self.report(liar, lie)
            events += self.controller.step(self.now)
        return events


class ModelProbes:
    """The probes of a host in both sizes, of which those like data are lost over some links of plane 0."""

    def __init__(self, probes: ProbeSet, nic: int, arriving: list[list[OneWays]]) -> None:
        self.probes, self.broken = probes, frozenset[int]()
        self.often, self._nic, self._arriving, self._number = list[int](), nic, arriving, 0

    def taken(self) -> tuple[list[LoopsSeen], list[OneWays], list[OneWays]]:
        count, self._number = len(self.probes), self._number + 1
        arrived, self._arriving[self._nic] = self._arriving[self._nic], []
        seen, sent = list[LoopsSeen](), list[OneWays]()
        of_host = np.flatnonzero(self.probes.source == self._nic)
        for first in (0, count):
            mine = of_host[(of_host + self._number) % 16 == 0] if first else of_host
            loops = self.probes.kind[mine] != ProbeKind.ONE_WAY
            rows, lost = first + mine, self.probes.crossing(self.broken)[mine] & (first > 0)
            seen.append(LoopsSeen(0, rows[loops].tolist(), rows[loops & lost].tolist()))
            sent.append(OneWays(0, 2 * self._number + bool(first), rows[~loops].tolist()))
            for row in rows[~loops & ~lost].tolist():
                there = int(self.probes.destination[row % count])
                self._arriving[there].append(OneWays(0, sent[-1].number, [row]))
        return seen, sent, arrived

    def avoid(self, links: frozenset[int]) -> None:
        """Nothing is denied here."""

    def hasten(self, rows: Sequence[Sequence[int]]) -> None:
        self.often += rows[0]


@pytest.fixture
def site(plan: UsidPlan, index: PathIndex, tmp_path: Path) -> Site:
    return Site(plan, index, tmp_path / "state")


def test_a_fault_that_several_hosts_see_is_named_and_denied_by_all(site: Site, plan: UsidPlan) -> None:
    link = link_named(plan, BROKEN)
    for host in site.hosts:
        host.broken = frozenset([link])
    events = [event for event in site.run(1.0) if event.what == "named"]
    assert [(event.part, event.outcome) for event in events] == [(BROKEN, "denied")]
    assert all(host.denied(site.now) for host in site.hosts[:4]), "those under the T0"
    assert site.controller.is_settled


def test_what_only_probes_like_data_meet_is_named_through_agents(
    plan: UsidPlan, index: PathIndex, tmp_path: Path
) -> None:
    fleet, cable = RemoteFleet(plan), "p0-t0-00<>p0-t1-02"
    arriving: list[list[OneWays]] = [[] for _ in range(NICS)]
    models = [ModelProbes(fleet.plans[0], nic, arriving) for nic in range(NICS)]
    agents = [HostAgent(ModelEndpoints(plan, nic, index, packets=0), probes) for nic, probes in enumerate(models)]
    controller, said = FabricController(plan, tmp_path, 0.0, APPLY, fleet, None, fleet), list[ControllerEvent]()
    way = link_named(plan, BROKEN)
    for turn in range(80):
        for model in models if turn == 20 else ():
            model.broken = frozenset([way, int(plan.topology.link_reverse[way])])
        for nic, agent in enumerate(agents):
            agent.obey(fleet.take(nic, agent.report(turn / 10), turn / 10), turn / 10)
        said += controller.step(turn / 10)
    named = [event for event in said if event.what == "named"]
    assert [(each.part, each.verdict and each.verdict.effect) for each in named] == [(cable, "one size")]
    asked = {row for model in models for row in model.often}
    assert asked
    assert asked <= set(np.flatnonzero(fleet.plans[0].crossing(models[0].broken)).tolist()), "to see its repair"


def test_a_host_alone_names_its_own_cable_and_nothing_else(site: Site, plan: UsidPlan) -> None:
    own, shared = link_named(plan, "h1>p0-t0-00"), link_named(plan, BROKEN)
    site.hosts[1].broken = frozenset([shared])
    assert [event.part for event in site.run(2.0) if event.what == "named"] == []
    site.hosts[1].broken = frozenset([own])
    said = [event.part for event in site.run(2.0) if event.what == "named"]
    assert said in (["h1>p0-t0-00"], ["h1<>p0-t0-00"])


def lies_about(plan: UsidPlan, host: ModelEndpoints, name: str, size: int) -> list[PathVote]:
    base, link = plan.topology.planes[0].host_up, link_named(plan, name)
    return [
        PathVote(0, list(way), size, size if link - base in way else 0)
        for (plane, _), ways in host.ways.items()
        if plane == 0
        for way in ways
    ]


@pytest.mark.parametrize("size", [40, 1 << 30])
@pytest.mark.parametrize("framed", [BROKEN, "p0-t1-02>p0-t0-01", "p0-t0-01>h5"])
def test_a_liar_frames_nobody_and_is_doubted(site: Site, plan: UsidPlan, framed: str, size: int) -> None:
    lie = lies_about(plan, site.hosts[1], framed, size)
    events = site.run(6.0, liar=1, lie=lie)
    assert [event.part for event in events if event.what == "named"] == []
    assert [event.part for event in events if event.what == "doubted"] in (["h1"], [])


def test_a_liar_hides_no_fault_that_others_see(site: Site, plan: UsidPlan) -> None:
    link = link_named(plan, BROKEN)
    for host in site.hosts:
        host.broken = frozenset([link])
    lie = [PathVote(0, list(way), 1 << 30, 0)
           for (plane, _), ways in site.hosts[1].ways.items() if plane == 0 for way in ways]  # fmt: skip
    assert [event.part for event in site.run(3.0, liar=1, lie=lie) if event.what == "named"] == [BROKEN]


def test_a_lease_counts_from_the_report_that_the_orders_answer(plan: UsidPlan, index: PathIndex) -> None:
    host = ModelEndpoints(plan, 0, index)
    agent = HostAgent(host)
    link = link_named(plan, BROKEN)
    number = agent.report(100.0).number
    agent.obey(HostOrders(heard=number, number=1, wait=0.1, epoch=1, lease=30.0, links=[link]), 125.0)
    assert host.denied(129.9)
    assert not host.denied(130.0)
    number = agent.report(200.0).number
    agent.obey(HostOrders(heard=number, number=2, wait=0.1, epoch=1, lease=30.0, links=[link]), 230.0)
    assert not host.denied(230.0), "they were under way for as long as they would have held"


def test_orders_that_answer_no_report_are_none(plan: UsidPlan, index: PathIndex) -> None:
    agent = HostAgent(ModelEndpoints(plan, 0, index))
    number = agent.report(0.0).number
    with pytest.raises(Malformed, match="no report"):
        agent.obey(HostOrders(heard=number + 1, number=1, wait=0.1), 0.0)
    with pytest.raises(Malformed, match="lease"):
        agent.obey(HostOrders(heard=number, number=1, wait=0.1, lease=3600.0), 0.0)


def test_an_older_controller_is_not_obeyed_even_by_a_host_without_endpoints(plan: UsidPlan, index: PathIndex) -> None:
    host = ModelEndpoints(plan, 0, index)
    agent = HostAgent(host)
    link = link_named(plan, BROKEN)
    agent.obey(HostOrders(heard=agent.report(0.0).number, number=1, wait=0.1, epoch=9, lease=30.0), 0.0)
    host.guard.denials.epoch = 0  # another program with a new endpoint
    agent.obey(HostOrders(heard=agent.report(1.0).number, number=5, wait=0.1, epoch=8, lease=30.0, links=[link]), 1.0)
    assert not host.denied(1.0)
    assert agent.report(2.0).epoch == 9


def test_a_host_speaks_for_itself_alone(plan: UsidPlan, index: PathIndex) -> None:
    fleet, way = RemoteFleet(plan), next(iter(index._all(0, 1, 6).values()))
    fleet.take(1, HostReport(number=1, votes=[PathVote(0, list(way), 5, 1)]), 0.0)
    loops = np.flatnonzero(fleet.plans[0].kind != ProbeKind.ONE_WAY)
    other = int(loops[fleet.plans[0].source[loops] != 1][0])
    for wrong in (
        HostReport(number=1, votes=[PathVote(0, list(way)[1:], 5, 1)]),
        HostReport(number=1, votes=[PathVote(0, list(way)[:-1], 5, 1)]),
        HostReport(number=1, votes=[PathVote(0, [way[0], way[2], way[1], way[3]], 5, 1)]),
        HostReport(number=1, votes=[PathVote(7, list(way), 5, 1)]),
        HostReport(number=1, votes=[PathVote(0, [10**9, 2], 5, 1)]),
        HostReport(number=1, votes=[PathVote(0, list(way), 5, 6)]),
        HostReport(number=1, votes=[PathVote(0, list(way), -5, -6)]),
        HostReport(number=1, loops=[LoopsSeen(0, [other], [other])]),
        HostReport(number=1, loops=[LoopsSeen(0, [], [other])]),
        HostReport(number=1, loops=[LoopsSeen(0, [1 << 63], [])]),
        HostReport(number=1, loops=[LoopsSeen(0, [other + len(fleet.plans[0])], [])]),
        HostReport(number=1, loops=[LoopsSeen(0, [2 * len(fleet.plans[0])], [])]),
        HostReport(number=1, loops=[LoopsSeen(0, [], [], [other])]),
        HostReport(number=1, arrived=[OneWays(0, 1, [], [1 << 40])]),
        HostReport(number=1, loops=[LoopsSeen(0, [], [1 << 63])]),
        HostReport(number=1, sent=[OneWays(0, 1, [other])]),
        HostReport(number=1, arrived=[OneWays(0, 1, [-1])]),
        HostReport(number=1, epoch=-1),
    ):
        with pytest.raises(Malformed):
            fleet.take(1, wrong, 0.0)


def test_a_one_way_probe_is_lost_only_if_its_receiver_has_reported_since(plan: UsidPlan) -> None:
    fleet = RemoteFleet(plan)
    plans = fleet.plans[0]
    row = int(np.flatnonzero(plans.kind == ProbeKind.ONE_WAY)[0])
    source, there = int(plans.source[row]), int(plans.destination[row])
    for nic, at in ((there, -2 * PASSED_ON_S), (source, -0.1), (there, 0.0)):
        fleet.take(nic, HostReport(number=0), at)
    fleet.take(source, HostReport(number=1, sent=[OneWays(0, 77, [row]), OneWays(0, 78, [row])]), 0.0)
    assert fleet.step() == []
    for nic, report in ((there, HostReport(number=2, arrived=[OneWays(0, 77, [row])])), (source, HostReport(number=2))):
        fleet.take(nic, report, 0.2)
    (done,) = fleet.step()
    assert (done.rows.tolist(), done.lost.tolist()) == ([row], [0])
    for nic in (there, source):
        fleet.take(nic, HostReport(number=3), 0.4)
    (done,) = fleet.step()
    assert (done.rows.tolist(), done.lost.tolist()) == ([row], [1])


def test_what_was_sent_before_an_agent_was_there_is_not_lost(plan: UsidPlan) -> None:
    """Neither at its start nor at its restart does a host's silence speak against its links."""
    fleet, lost = RemoteFleet(plan), list[float]()
    row = int(np.flatnonzero(fleet.plans[0].kind == ProbeKind.ONE_WAY)[0])
    source, there = int(fleet.plans[0].source[row]), int(fleet.plans[0].destination[row])
    for tick in range(100):
        now = 0.1 * tick
        if 20 <= tick < 40 or tick >= 60:  # its process is started, ends, and is started again
            fleet.take(there, HostReport(number=tick), now)
        elif tick == 40:
            fleet.left(there)
        fleet.take(source, HostReport(number=tick, sent=[OneWays(0, tick, [row])]), now)
        lost += [now for done in fleet.step() if done.lost.any()]
    assert lost, "all are lost, and known to be while the receiver is there"
    assert [at for at in lost if not (2.0 + PASSED_ON_S < at < 4.2 or at > 6.0 + PASSED_ON_S)] == []


def test_a_one_way_probe_like_data_may_wait_in_queues(plan: UsidPlan) -> None:
    fleet = RemoteFleet(plan)
    plans = fleet.plans[0]
    row = int(np.flatnonzero(plans.kind == ProbeKind.ONE_WAY)[0])
    source, there, like_data = int(plans.source[row]), int(plans.destination[row]), row + len(plans)
    sent = [OneWays(0, 77, [like_data]), OneWays(0, 78, [like_data])]
    for nic, began in ((there, -2 * PASSED_ON_S), (source, -0.1)):
        fleet.take(nic, HostReport(number=0), began)
    for number, at in enumerate((0.0, 0.1, 0.2)):  # the receiver's report of 0.2 s says nothing yet of what was lost
        arrived = [OneWays(0, 77, [like_data], [like_data])] if number == 2 else []
        fleet.take(there, HostReport(number=number, arrived=arrived), at)
        fleet.take(source, HostReport(number=number, sent=[] if number else sent), at)
    (done,) = fleet.step()
    assert done.queued is not None
    assert (done.rows.tolist(), done.lost.tolist(), done.queued.tolist()) == ([like_data], [0], [1])
    for number in (3, 4):
        for nic in (there, source):
            fleet.take(nic, HostReport(number=number), 0.1 * number + 0.01)
    (done,) = fleet.step()
    assert (done.rows.tolist(), done.lost.tolist()) == ([like_data], [1])


def test_what_hosts_say_is_passed_on_when_all_that_are_alive_have_spoken(plan: UsidPlan, index: PathIndex) -> None:
    fleet, way = RemoteFleet(plan), list(next(iter(index._all(0, 1, 6).values())))
    for nic in (0, 1):
        fleet.take(nic, HostReport(number=1), 0.0)
    fleet.look()
    fleet.take(1, HostReport(number=2, votes=[PathVote(0, way, 5, 1)]), 0.1)
    assert fleet.look().by_plane == {}
    fleet.take(0, HostReport(number=2), 0.15)
    assert fleet.look().by_plane == {0: {tuple(way): (5, 1, 0)}}
    fleet.take(1, HostReport(number=3, votes=[PathVote(0, way, 7, 0)]), 0.2)
    fleet.take(1, HostReport(number=4), 0.15 + PATIENCE_S)
    assert fleet.look().by_plane == {}
    fleet.take(1, HostReport(number=5), 0.2 + PATIENCE_S)
    assert fleet.look().by_plane == {0: {tuple(way): (7, 0, 0)}}, "h0 is gone"


def test_one_host_neither_fences_a_controller_off_nor_drives_its_epoch_up(plan: UsidPlan) -> None:
    fleet = RemoteFleet(plan)
    for nic in range(3):
        fleet.take(nic, HostReport(number=1, epoch=7), 0.0)
    fleet.take(3, HostReport(number=1, epoch=(1 << 63) - 1), 0.0)
    assert fleet.epoch() == 7
    fleet.tell(8, frozenset(), 30.0, 0.0)
    fleet.take(2, HostReport(number=2, epoch=9 + MOST_EPOCH_JUMP), 0.0)
    with pytest.raises(FencedError):
        fleet.tell(8, frozenset(), 30.0, 0.0)


def test_links_are_avoided_when_every_host_that_is_not_absent_says_so(plan: UsidPlan) -> None:
    fleet = RemoteFleet(plan, absent=[f"h{nic}" for nic in range(2, NICS)])
    assert fleet.waiting_for(0.0) == ["h0", "h1"]
    fleet.tell(1, frozenset([5]), 30.0, 0.0)
    for nic in range(2):
        orders = fleet.take(nic, HostReport(number=1), 0.0)
        fleet.take(nic, HostReport(number=2, obeyed=orders.number), 0.0)
    assert fleet.waiting_for(0.0) == []
    assert fleet.waiting_for(GONE_S + 0.1) == ["h0", "h1"], "their agents are gone"


@pytest.mark.parametrize("seed", range(4))
def test_kills_and_partitions_of_agents_and_controllers_never_leave_a_pair_without_a_path(
    plan: UsidPlan, index: PathIndex, tmp_path: Path, seed: int
) -> None:
    run_schedule(plan, index, tmp_path, seed)
