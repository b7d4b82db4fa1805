"""The localiser on the model of faulty links: what is named, how soon, and that chance is not named."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import msgspec
import numpy as np
import pytest

from harness.loss_history import LossHistory
from harness.probe_model import (
    PROBE_CHANCE,
    ModelTrial,
    PartFault,
    TrialPaths,
    effect_of,
    localisers,
    part_named,
    trial_paths,
)
from openmrc.base.shipped import find
from openmrc.core.arrays import Ints
from openmrc.errors import ConfigError
from openmrc.fabric.model.build import build, load
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Tier
from openmrc.operations.diagnosis.fault_life import KnownFault, news
from openmrc.operations.diagnosis.localise import RATES, Floats, Localiser, _Search, threshold
from openmrc.operations.diagnosis.probe_plan import plan_plane
from openmrc.operations.diagnosis.verdicts import FaultVerdict, WorkOrder, work_order
from openmrc.units import PS_PER_MS


@functools.cache
def paths() -> TrialPaths:
    topology = build(load(find("gpus-1024")))
    return trial_paths(topology, plan_plane(topology, 0))


@functools.cache
def both() -> tuple[Localiser, Localiser]:
    return localisers(paths())


def named(broken: dict[str, dict[str, Any]], seed: int = 1, limit_ms: float = 5000) -> list[FaultVerdict]:
    faults = [PartFault(part_named(paths().parts, name), **what) for name, what in broken.items()]
    return [verdict for _, verdict in ModelTrial(paths(), faults, seed, both()).run(limit_ms, len(faults))]


DEAD: dict[str, Any] = {"loss": 1.0, "large_loss": 1.0}


@pytest.mark.parametrize(
    "part", ["p0-t0-03<>p0-t1-05", "p0-t0-03>p0-t1-05", "p0-t1-05>p0-t0-03", "p0-t1-07", "p0-t0-09"]
)
def test_a_silent_part_between_t0_and_t1_is_named_within_5_ms(part: str) -> None:
    (verdict,) = named({part: DEAD})
    assert (verdict.part, verdict.effect) == (part, "dead")
    assert verdict.at_ps <= 5 * PS_PER_MS
    assert verdict.confidence > 0.99


@pytest.mark.parametrize("part", ["h3-n1<>p0-t0-00", "h3-n1>p0-t0-00", "p0-t0-00>h3-n1"])
def test_a_nic_s_cable_is_told_from_the_uplinks_that_it_probes(part: str) -> None:
    (verdict,) = named({part: DEAD})
    assert verdict.part == part


def test_two_faults_at_a_time_are_both_named() -> None:
    broken = {"p0-t0-03<>p0-t1-05": DEAD, "p0-t0-11>p0-t1-02": {"loss": 0.01}}
    assert {verdict.part for verdict in named(broken)} == set(broken)


def counted(broken: dict[str, float], each: int) -> tuple[Floats, Ints]:
    """Return (sent, lost) of every probe of the plan, `each` sent on every path, with these shares lost."""
    kept = np.ones(len(paths().links))
    for name, loss in broken.items():
        rows, times = both()[0].by_part.of(part_named(paths().parts, name))
        kept[rows] *= (1 - loss) ** times
    return np.full(len(kept), float(each)), np.rint(each * (1 - kept)).astype(np.int64)


@pytest.mark.parametrize("each", [2, 10, 100])
@pytest.mark.parametrize(
    "broken",
    [
        {"p0-t0-03<>p0-t1-05": 1.0, "p0-t0-03<>p0-t1-06": 1.0},
        {"p0-t0-03<>p0-t1-05": 1.0, "p0-t0-04<>p0-t1-05": 1.0},
        {"p0-t0-03>p0-t1-05": 1.0, "p0-t1-05>p0-t0-04": 1.0},
        {"p0-t0-03": 1.0, "p0-t0-04<>p0-t1-05": 1.0},
        {"h3-n1<>p0-t0-00": 1.0, "h3-n2<>p0-t0-00": 1.0},
    ],
)
def test_two_faults_in_one_window_are_named_and_not_the_switch_between_them(
    broken: dict[str, float], each: int
) -> None:
    found = both()[0].explain(*counted(broken, each))
    assert {paths().parts.name(named.part) for named in found} == set(broken)


def test_any_two_dead_cables_of_a_small_plane_are_named_where_a_switch_has_four() -> None:
    """Two packets on each path; both cables of 48 of these pairs lead to one switch."""
    topology = build(load(find("lab")))
    probes = plan_plane(topology, 0)
    parts = trial_paths(topology, probes).parts
    localiser = Localiser(parts, probes.links, np.full(len(probes), 1e-4))
    first = parts.shape.fabric_up - parts.shape.host_up
    cables = parts.links + np.unique(parts.cable_of[first : first + 16])
    for pair in itertools.combinations(cables.tolist(), 2):
        lost = np.zeros(len(probes), dtype=np.int64)
        for cable in pair:
            lost[localiser.rows_of(cable)] = 2
        found = localiser.explain(np.full(len(probes), 2.0), lost)
        assert sorted(named.part for named in found) == list(pair), [parts.name(each) for each in pair]


def test_dead_parts_that_together_let_nothing_through_have_a_finite_worth() -> None:
    localiser, row = both()[0], int(np.flatnonzero((paths().links >= 0).all(axis=1))[0])
    links, lost = paths().links[row].astype(np.int64), np.zeros(len(paths().links), dtype=np.int64)
    lost[row] = 100
    search = _Search(localiser, np.full(len(lost), 100.0), lost, localiser.chance, [])
    every = [*links.tolist(), *(paths().parts.links + paths().parts.cable_of[links]).tolist()]
    with np.errstate(divide="raise", invalid="raise"):
        assert math.isfinite(search._worth(dict.fromkeys(every, 0.999)))


def test_losses_on_paths_that_are_not_known_name_nothing() -> None:
    localiser = Localiser(paths().parts, np.full((3, 2), -1, dtype=np.int32), np.full(3, 1e-4))
    assert localiser.explain(np.full(3, 100.0), np.full(3, 50)) == []


@pytest.mark.parametrize("name", ["p0-t0-03", "p0-t1-05"])
@pytest.mark.parametrize("loss", [1.0, 0.05])
def test_a_faulty_switch_is_not_taken_for_its_cables(name: str, loss: float) -> None:
    (found,) = both()[0].explain(*counted({name: loss}, 100))
    assert paths().parts.name(found.part) == name


def test_what_a_known_part_lost_is_no_news_in_a_window_that_began_before() -> None:
    sent, lost = counted({"p0-t0-03<>p0-t1-05": 1.0, "p0-t0-09<>p0-t1-02": 1.0}, 10)
    lost[np.flatnonzero(lost)[::3]] //= 2
    localiser = both()[0]
    first = next(each for each in localiser.explain(sent, lost) if "t0-03" in paths().parts.name(each.part))
    left = news(localiser, sent, lost, [KnownFault(first, at=8.0)], begin=0.0)
    assert {paths().parts.name(each.part) for each in localiser.explain(*left)} == {"p0-t0-09<>p0-t1-02"}
    later = news(localiser, sent, lost, [KnownFault(first, at=8.0)], begin=9.0)
    assert later[1].tolist() == lost.tolist()


def test_a_tenth_of_a_percent_of_loss_on_one_direction_is_named() -> None:
    (verdict,) = named({"p0-t1-05>p0-t0-03": {"loss": 0.001}}, limit_ms=16_000)
    assert (verdict.part, verdict.effect) == ("p0-t1-05>p0-t0-03", "lossy")
    assert 0.0002 < verdict.rate < 0.005


def test_votes_of_busy_connections_name_it_within_2_seconds() -> None:
    topology = build(
        Fabric(name="busy", hosts=Hosts(count=64), planes=(Plane(host_gbps=100, t0=Tier(down=8), t1=Tier()),))
    )
    busy = trial_paths(topology, plan_plane(topology, 0), load=0.2)
    part = part_named(busy.parts, "p0-t0-03>p0-t1-05")
    ((_, verdict),) = ModelTrial(busy, [PartFault(part, loss=0.001)], 1, localisers(busy)).run(2000, 1)
    assert verdict.part == "p0-t0-03>p0-t1-05"


def test_a_fault_of_large_packets_only_is_called_so() -> None:
    (verdict,) = named({"p0-t0-03>p0-t1-05": {"large_loss": 1.0}})
    assert (verdict.part, verdict.effect) == ("p0-t0-03>p0-t1-05", "one size")


def test_a_slow_port_is_named_by_delays() -> None:
    (verdict,) = named({"p0-t0-03>p0-t1-05": {"late": 0.5}})
    assert (verdict.part, verdict.effect) == ("p0-t0-03>p0-t1-05", "late")


def test_a_host_that_stalls_is_late_and_no_link_is_blamed() -> None:
    trial = ModelTrial(paths(), [PartFault(nic=5, on_ms=200)], 1, both())
    ((part, verdict),) = trial.run(400, 3)
    assert (part, verdict.kind, verdict.part) == (-1, "host", "h1-n1")


def test_chance_alone_names_nothing_in_ten_seconds() -> None:
    assert ModelTrial(paths(), [], 3, both()).run(10_000, 1) == []


def test_ratios_are_those_of_the_definition() -> None:
    localiser = both()[0]
    links = paths().links
    part = part_named(paths().parts, "p0-t0-03>p0-t1-05")
    rows = localiser.rows_of(part)
    assert rows.tolist() == np.flatnonzero((links == part).any(axis=1)).tolist()
    sent, lost = np.full(len(links), 50.0), np.zeros(len(links), dtype=np.int64)
    lost[rows] = 5
    (found,) = localiser.explain(sent, lost)
    count, all_sent = 5 * len(rows), 50 * len(rows)
    best = max(
        count * math.log((1 - (1 - q) * (1 - PROBE_CHANCE)) / PROBE_CHANCE) + (all_sent - count) * math.log1p(-q)
        for q in RATES
    )
    assert found.part == part
    assert found.nats == pytest.approx(best)


def test_what_two_parts_explain_alike_is_not_named() -> None:
    topology = build(load(find("lab")))
    probes = plan_plane(topology, 0)
    loops = trial_paths(topology, probes)
    localiser = Localiser(loops.parts, probes.links[:16], np.full(16, PROBE_CHANCE))  # loops to the T0 only
    lost = np.zeros(16, dtype=np.int64)
    lost[3] = 50
    assert localiser.explain(np.full(16, 50.0), lost) == []


def test_a_window_holds_what_was_sent_and_lost_in_it() -> None:
    history = LossHistory(np.array([1.0, 2.0]))
    history.add(np.array([1, 9]) * PS_PER_MS, np.array([0, 1]))
    history.change_rate(8 * PS_PER_MS, 20 * PS_PER_MS, np.array([1]), np.array([10.0]))
    sent, lost = history.window(10 * PS_PER_MS, 4)
    assert sent.tolist() == [4.0, 8.0 + 20.0]
    assert lost.tolist() == [0, 1]


def test_the_threshold_grows_with_the_parts_and_with_caution() -> None:
    assert threshold(1000) == pytest.approx(threshold(100) + math.log(10))
    assert threshold(100, 0.001) == pytest.approx(threshold(100, 0.01) + math.log(10))


def test_an_effect_needs_packets_to_be_called_one_of_size() -> None:
    assert effect_of(0.1, lost_small=0, expected_small=5, late=False) == "lossy"
    assert effect_of(0.1, lost_small=0, expected_small=15, late=False) == "one size"


def test_a_work_order_names_both_ends_and_reads_back_from_json() -> None:
    (verdict,) = named({"p0-t0-03<>p0-t1-05": DEAD})
    order = work_order(paths().parts, part_named(paths().parts, verdict.part), verdict)
    (cable,) = order.cables
    assert (cable["a_node"], cable["b_node"]) == ("p0-t0-03", "p0-t1-05")
    assert cable["a_rack"]
    assert msgspec.json.decode(msgspec.json.encode(order), type=WorkOrder) == order


@pytest.mark.parametrize("name", ["p0-t0-00<>p0-t0-01", "p1-t0-00", "h0"])
def test_what_is_no_part_of_the_plane_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        part_named(paths().parts, name)
