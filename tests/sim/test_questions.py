"""The questions of `mrc sim ask`: their points can be run, and their answers are read from results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from openmrc.errors import ConfigError
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric
from openmrc.fabric.model.topology import Topology
from openmrc.sim.network.reach import reaches
from openmrc.sim.questions import FOLDER, NAMES, fabric, question
from openmrc.sim.scenario.description import Scenario
from openmrc.sim.scenario.transport_options import transport_of
from openmrc.sim.simulate import prepare
from openmrc.sim.sweep import Point, points_of

SIZES = (32, 64, 1024)


def points(name: str, gpus: int) -> list[Point]:
    asked = question(name)
    return points_of(asked.sweep(gpus), msgspec.convert(asked.scenario(gpus), Scenario), Path("ask"))


@pytest.mark.parametrize("gpus", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_every_point_can_be_run(name: str, gpus: int) -> None:
    made = points(name, gpus)
    assert len({point.digest for point in made}) == len(made)
    for point in made if gpus == SIZES[0] else made[-1:]:
        prepared = prepare(point.scenario)
        topology: Topology = prepared.topology
        assert topology.nics == gpus
        transport_of(point.scenario.transport, topology)


@pytest.mark.parametrize("planes", [1, 2, 4, 8])
def test_a_nic_has_the_same_rate_on_any_number_of_planes(planes: int) -> None:
    made = msgspec.convert(fabric(16384, planes), Fabric)
    assert [plane.host_gbps * plane.count for plane in made.planes] == [800]
    assert made.planes[0].t0.down == 256


def test_a_number_of_gpus_that_forms_no_groups_is_refused() -> None:
    with pytest.raises(ConfigError, match="--gpus: 50: expected a multiple of 16"):
        question("planes").scenario(50)


def test_every_shipped_question_has_its_name() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("gpus", SIZES)
def test_the_windows_are_bandwidth_delay_products_of_a_nic(gpus: int) -> None:
    topology = build(msgspec.convert(fabric(gpus, 8), Fabric))
    product = sum(port.bdp for port in reaches(topology, 4096, 64))
    windows = question("window").vary["transport.settings.max_cwnd"]
    assert windows == [int(product * share) for share in (0.5, 1.0, 1.5, 2.0, 3.0)]


def test_a_share_of_the_links_is_a_number_of_them() -> None:
    (group,) = question("evs").sweep(1024).together
    assert group["name"][1] == "256 T0-T1 links are lost"
    assert group["faults"][1][0]["down"] == "256 random fabric links of all"
    names = question("roce").sweep(16_384).together[0]["name"]
    assert [name.partition(", ")[2].partition(", ")[2] for name in names[1::2]] == [
        "512 of 131,072 links flap",
        "64 of 16,384 links flap",
    ]


def result(name: str, mean: float, finished: int = 5, **values: Any) -> dict[str, Any]:
    step = {"count": 5, "finished": finished, "mean": mean, "p99": 2 * mean}
    return {"values": {"name": name, **values}, "summary": {"step_us": step}}


def test_the_best_value_is_named_for_each_case() -> None:
    path = "fabric.planes.0.count"
    results = [result("calm", 200.0, **{path: 4}), result("calm", 150.0, **{path: 8}),
               result("lost", 300.0, **{path: 4}, finished=2), result("lost", 180.0, **{path: 8})]  # fmt: skip
    said = question("planes").answer(results)
    assert "calm: shortest steps with 8 planes, mean 150 us; 200 us (+50 us, +33.3%) with 4" in said
    assert "lost: shortest steps with 8 planes, mean 180 us (+30 us, +20.0%) beside calm; 1 of 2 runs did not" in said


def test_the_number_of_flaps_that_are_survived_is_named() -> None:
    results = [result("0 links", 100.0), result("4 links", 105.0), result("16 links", 140.0)]
    flaps = question("flaps")
    said = flaps.answer(results)
    assert said == (
        "The mean step of 100 us stays within 10% with up to 4 links flapping: 105 us (+5 us, +5.0%); "
        "with 16 links, 140 us (+40 us, +40.0%)."
    )
    said = flaps.answer([*results[:2], result("16 links", 140.0, 3)])
    assert said.endswith("with 16 links, the steps did not finish.")


def test_transports_are_compared_with_themselves() -> None:
    results = [result("MRC, no flaps", 100.0), result("MRC, flaps", 102.0),
               result("RoCE, no flaps", 100.0), result("RoCE, flaps", 500.0, finished=1)]  # fmt: skip
    said = question("roce").answer(results)
    assert said == (
        "MRC: steps of 100 us with no flaps; 102 us (+2 us, +2.0%) under flaps, 10 us over 5 steps. "
        "RoCE: the steps did not finish."
    )
    results[3] = result("RoCE, flaps", 15_749.0)
    said = question("roce").answer(results)
    assert "15,749 us (+15,649 us, 157.5 times as long) under flaps, 78,245 us over 5 steps." in said
    assert said.endswith("MRC beside it: 100 us (+0 us, +0.0%) with no flaps, 102 us (-15,647 us, -99.4%) under flaps.")


def test_why_small_steps_take_longer_on_eight_planes_is_said_where_they_do() -> None:
    results = [result("MRC, no flaps", 242.0), result("MRC, flaps", 247.0),
               result("RoCE, no flaps", 211.0), result("RoCE, flaps", 1210.0)]  # fmt: skip
    assert "takes eight times as long to leave a port of 100G" in question("roce").answer(results)
    results[0] = result("MRC, no flaps", 200.0)
    assert "eight times" not in question("roce").answer(results)


def test_a_failed_t1_is_compared_with_the_same_network_without_it() -> None:
    results = [result("MRC, no fault", 100.0), result("MRC, a T1 fails", 102.0),
               result("RoCE, no fault", 150.0), result("RoCE, a T1 fails", 1500.0)]  # fmt: skip
    said = question("t1").answer(results)
    assert "MRC: steps of 100 us with no fault; 102 us (+2 us, +2.0%) when a T1 fails, 10 us over 5 steps." in said
    assert "RoCE: steps of 150 us with no fault; 1,500 us (+1,350 us, 10.0 times as long) when a T1 fails" in said
    assert "MRC beside it: 100 us (-50 us, -33.3%) with no fault, 102 us (-1,398 us, -93.2%) when a T1 fails." in said
    assert said.endswith("RoCE's routing reacts after 1,000 us here; the default is 100 ms.")


def test_a_drained_plane_is_told_beside_one_that_fails() -> None:
    results = [result(f"{name}, {what}", mean) for name, what, mean in (
        ("MRC", "no fault", 100.0), ("MRC", "plane 0 is drained", 104.0), ("MRC", "plane 0 fails", 110.0),
        ("RoCE", "no fault", 80.0), ("RoCE", "plane 0 is drained", 100.0), ("RoCE", "plane 0 fails", 200.0),
    )]  # fmt: skip
    said = question("drain").answer(results)
    assert "MRC: steps of 100 us with no fault; 104 us (+4 us, +4.0%) with a drained plane, 20 us over 5" in said
    assert "MRC beside it: 100 us (+20 us, +25.0%) with no fault, 104 us (+4 us, +4.0%) with a drained plane, " in said
    drained, failing = (point.scenario.faults[0] for point in points("drain", 32)[1:3])
    assert "at" not in drained  # from the beginning
    assert failing["at"] == "200us"
