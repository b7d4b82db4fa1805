"""The controller of a lab: faults under real traffic are named, denied, and lifted after repair."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from openmrc.base.faults import Schedule
from openmrc.lab.faults import Breaker
from openmrc.lab.layout import Lab
from openmrc.operations.control.controller import FabricController
from openmrc.operations.control.controllers import lab_controller
from openmrc.operations.diagnosis import denial
from openmrc.operations.diagnosis.denial import DenialLimits
from openmrc.operations.diagnosis.verdicts import HitEndpoint
from tests.operations.control.traffic import perf, slow_lab, snapshots, stepped, until
from tests.programs.in_process import run_here

pytestmark = pytest.mark.needs("lab")
CABLE = "p0-t0-00<>p0-t1-01"
HIT = {("h0", "rank 0 of job 17"), ("h3", "rank 3 of job 17")}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with slow_lab(tmp_path_factory.mktemp("lab"), f"t{os.getpid()}-ctl") as lab:
        yield lab


@pytest.fixture
def breaker(lab: Lab) -> Iterator[Breaker]:
    made = Breaker(lab.name)
    yield made
    made.clear()


@pytest.fixture
def short_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denial, "HALF_LIFE_S", 2.0)


def crossing(lab: Lab, folder: Path, name: str) -> int:
    """Return the data packets sent so far on EVs over a switch of the path; losses are known only later."""
    sent = 0
    number = 1 if name.endswith("t1-01") else 0
    for endpoint in snapshots(folder):
        for pair in endpoint.queue_pairs:
            sent += sum(ev.sent for ev in pair.evs if ev.port == 1 and f":200{number}:" in ev.path)
    return sent


@pytest.mark.usefixtures("short_penalty")
@pytest.mark.parametrize("words", [f"loss: 100%, on: {CABLE}", f"loss: 20%, on: {CABLE}"], ids=["dead", "lossy"])
def test_a_bad_cable_is_named_denied_and_lifted_after_its_repair(lab: Lab, breaker: Breaker, words: str) -> None:
    with perf(lab) as folder:
        before = _named_and_denied(lab, breaker, folder, words)
        _taken_over_and_lifted(lab, breaker, folder, before)


def _named_and_denied(lab: Lab, breaker: Breaker, folder: Path, words: str) -> int:
    with lab_controller(lab.name, limits=DenialLimits(dry_run=False)) as controller:
        assert not [event for event in stepped(controller, 1.5) if event.what == "named"]
        breaker.run(Schedule.parse(words))
        events = until(controller, "named", 20)
        assert [(event.part, event.outcome) for event in events if event.what == "named"] == [(CABLE, "denied")]
        stepped(controller, 1.0)
        before = crossing(lab, folder, CABLE)
        stepped(controller, 2.0)
        assert crossing(lab, folder, CABLE) == before, "nothing is sent over it"
    return before


def _taken_over_and_lifted(lab: Lab, breaker: Breaker, folder: Path, sent_over_it: int) -> None:
    """A second controller goes on where the first one died."""
    with lab_controller(lab.name, limits=DenialLimits(dry_run=False)) as controller:
        assert until(controller, "adopted", 5)[0].part == CABLE
        stepped(controller, 1.0)
        assert crossing(lab, folder, CABLE) == sent_over_it
        breaker.clear()
        events = until(controller, "lifted", 40)
        said = [
            (each.what, each.part) for each in events if not each.what.startswith("host ")
        ]  # true of a busy machine
        assert said == [("repaired", CABLE), ("lifted", CABLE)]
        stepped(controller, 1.0)
        assert crossing(lab, folder, CABLE) > sent_over_it, "it is used again"


def _note(lab: Lab, target: str, words: str) -> None:
    status, _, said = run_here("map", "note", lab.name, target, *words.split())
    assert status == 0, said


def _await_hit(controller: FabricController, hit: Sequence[HitEndpoint]) -> Sequence[HitEndpoint]:
    """Return who lost packets on the cable; on a busy machine endpoints find that out after the work order."""
    watch, end = controller.planes[0], time.monotonic() + 30
    links = watch.parts.links_of(next(part for part in watch.faults if watch.parts.name(part) == CABLE))
    while not hit:
        assert time.monotonic() < end, "MRC leaves the cable because packets are lost on it"
        stepped(controller, 0.2)
        hit = controller.fleet.hit_by(0, frozenset((links - watch.parts.shape.host_up).tolist()))
    return hit


def test_a_dry_run_names_and_denies_nothing(lab: Lab, breaker: Breaker) -> None:
    with perf(lab) as folder, lab_controller(lab.name) as controller:
        _note(lab, "p0-t1-01", "replaced the module of Ethernet0")
        _note(lab, "p1-t1-01", "elsewhere")
        stepped(controller, 0.5)  # what was lost before it first looks is nobody's hit
        breaker.run(Schedule.parse(f"loss: 100%, on: {CABLE}"))
        named = until(controller, "named", 20)[-1]
        assert (named.part, named.outcome) == (CABLE, "dry run")
        order = until(controller, "work order", 20)[-1].order
        assert order is not None
        assert order.last_change.endswith("UTC, p0-t1-01: replaced the module of Ethernet0")
        assert {(each.host, each.program) for each in order.hit} <= HIT
        hit = _await_hit(controller, order.hit)
        assert {(each.host, each.program) for each in hit} <= HIT
        assert all(0 < each.lost <= each.counted for each in hit)
        stepped(controller, 0.5)
        assert not [
            ev for each in snapshots(folder) for pair in each.queue_pairs for ev in pair.evs if ev.state == "DENIED"
        ]
