"""Faults that data meets and small probes do not, on counts that a model makes; and whether a host was late."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from openmrc.core.arrays import Ints
from openmrc.fabric.addressing.usid import UsidPlan, usid_plan
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Tier
from openmrc.operations.diagnosis.elements import PlaneParts
from openmrc.operations.diagnosis.localise import Floats
from openmrc.operations.diagnosis.path_index import PathIndex
from openmrc.operations.diagnosis.plane_rows import ProbedRows
from openmrc.operations.diagnosis.plane_watch import PlaneWatch
from openmrc.operations.diagnosis.probe_plan import plan_plane
from openmrc.operations.fleets.fleet import LATE_WAIT_S, LateNics, PlaneVotes, ProcessorWaits, Said
from tests.waiting import await_true

SWEEP_S, DATA_SWEEPS, JUDGED = 0.04, 16, 10  # s; in which every row is sent like data; between two looks
FABRIC = Fabric(
    name="grey", hosts=Hosts(count=12), planes=(Plane(count=2, host_gbps=100, t0=Tier(down=4, up=4), t1=Tier()),)
)


@pytest.fixture(scope="module")
def plan() -> UsidPlan:
    return usid_plan(build(FABRIC))


class Model:
    """A plane whose probes are sent in both sizes; what happens to them is drawn."""

    def __init__(self, plan: UsidPlan) -> None:
        self.plan, self.probes = plan, plan_plane(plan.topology, 0)
        parts = PlaneParts(plan.topology, plan.topology.planes[0])
        self.watch, self.now, self.draw = PlaneWatch(parts, self.probes, 0.0), 0.0, np.random.default_rng(7)

    def links(self, part: str) -> Ints:
        """Return the links of a part, numbered from the plane's first."""
        parts = self.watch.parts
        number = next(each for each in range(parts.count) if parts.name(each) == part)
        return np.asarray(parts.links_of(number) - parts.shape.host_up)

    def crossing(self, part: str) -> Floats:
        """Return 1.0 for each row that crosses a part."""
        return np.asarray(np.isin(self.probes.links, self.links(part)).any(axis=1), dtype=np.float64)

    def run(self, seconds: float, small: Floats, data: Floats, queued: Floats | None = None) -> list[tuple[str, str]]:
        """Send sweeps; `small` and `data` are shares of loss by row, `queued` of marks; return parts and effects."""
        said, rows = list[tuple[str, str]](), np.arange(len(self.probes))
        for _ in range(round(seconds / SWEEP_S)):
            self.now += SWEEP_S
            sweep = round(self.now / SWEEP_S)
            like_data = rows[(rows + sweep) % DATA_SWEEPS == 0]
            for first, sent, lost, marks in ((0, rows, small, None), (len(rows), like_data, data, queued)):
                drawn = (self.draw.random(len(sent)) < lost[sent]).astype(np.int64)
                marked = None if marks is None else (self.draw.random(len(sent)) < marks[sent]).astype(np.int64)
                self.watch.probed(self.now, ProbedRows(0, sent + first, drawn, marked))
            if sweep % JUDGED == 0:
                said += [(verdict.part, verdict.effect) for _, verdict in self.watch.judge(self.now)]
        return said


@pytest.mark.parametrize("part", ["p0-t0-00>p0-t1-02", "p0-t0-01<>p0-t1-02", "h3>p0-t0-00"])
def test_what_only_data_meets_is_named_by_probes_like_data(plan: UsidPlan, part: str) -> None:
    model = Model(plan)
    none = np.zeros(len(model.probes))
    assert model.run(2.0, none, none) == []
    assert model.run(8.0, none, 0.5 * model.crossing(part)) == [(part, "one size")]
    assert model.watch.repaired(model.now) == [], "that small probes pass is no repair"
    model.run(16.0, none, none)
    assert [model.watch.parts.name(each) for each in model.watch.repaired(model.now)] == [part]


def test_what_every_size_meets_is_of_no_size(plan: UsidPlan) -> None:
    model = Model(plan)
    lost = 0.5 * model.crossing("p0-t0-00>p0-t1-02")
    assert [part for part, effect in model.run(4.0, lost, lost) if effect != "one size"] == ["p0-t0-00>p0-t1-02"]


@pytest.mark.parametrize(("others", "own"), [(0.05, 0.8), (0.3, 1.0)])
def test_a_slow_port_is_named_by_what_it_queues(plan: UsidPlan, others: float, own: float) -> None:
    model, part = Model(plan), "p0-t0-00>p0-t1-02"
    none = np.zeros(len(model.probes))
    busy = np.full(len(model.probes), others)
    assert model.run(10.0, none, none, busy) == []
    assert model.run(10.0, none, none, np.maximum(busy, own * model.crossing(part))) == [(part, "slow")]


@pytest.mark.parametrize("target", ["p0-t0-01>h5", "p0-t0-01"])
def test_where_many_send_to_one_place_no_port_is_slow(plan: UsidPlan, target: str) -> None:
    model = Model(plan)
    none = np.zeros(len(model.probes))
    assert model.run(20.0, none, none, 0.6 * np.minimum(1, model.crossing(target))) == []


def test_a_link_that_endpoints_shun_is_probed_like_data(plan: UsidPlan) -> None:
    """They send a twentieth of what goes over the other ways of the same pairs of NICs."""
    model, part, index = Model(plan), "p0-t1-02>p0-t0-01", PathIndex(plan)
    slow, pairs = set(model.links(part).tolist()), ((0, 4), (1, 6), (9, 5), (10, 7), (0, 8))
    ways = [way for pair in pairs for way in index._all(0, *pair).values()]
    for tick in range(20):
        votes = {way: (5 if slow & set(way) else 100, 0, 0) for way in ways}
        model.watch.voted(tick * 0.1, votes)
    asked = set(model.watch.unproven(2.0).tolist())
    over = set((np.flatnonzero(model.crossing(part)) + len(model.probes)).tolist())
    assert over <= asked
    assert len(asked) < 2 * len(over) + 1, "those of one pair alone are shunned with it"


def late(everywhere: bool, waited: float) -> tuple[list[int], int]:
    """Return who is called late of one NIC that loses on all planes or on one, and what it is believed to have lost."""
    found = PlaneVotes()
    said: dict[int, list[Said]] = {
        3: [(plane, (plane, 9), 100, 5 if everywhere or plane == 0 else 0, 0) for plane in range(2)]
    }
    LateNics(2).add(found, said, {3: waited})
    return found.late, sum(lost for votes in found.by_plane.values() for _, lost, _ in votes.values())


def test_a_host_is_late_by_its_own_evidence() -> None:
    assert late(everywhere=True, waited=LATE_WAIT_S) == ([3], 0)
    assert late(everywhere=True, waited=0.0) == ([], 0), "nobody is called late, and nothing is believed either"
    assert late(everywhere=False, waited=LATE_WAIT_S) == ([], 5)


def test_the_kernel_says_how_long_a_process_waited_for_its_processor() -> None:
    """Two processes that never sleep share one processor: each waits for about half of the time."""
    both = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        for each in both:
            os.sched_setaffinity(each.pid, {min(os.sched_getaffinity(0))})
        waits, total = ProcessorWaits(both[0].pid), [0.0]

        def has_waited() -> bool:
            total[0] += waits.since()
            return total[0] >= LATE_WAIT_S

        await_true(has_waited, 60)
    finally:
        for each in both:
            each.kill()
            each.wait()
    assert ProcessorWaits(both[0].pid).since() == 0.0, "a process that has ended"
