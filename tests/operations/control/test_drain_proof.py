"""Maintenance proven beforehand."""

from __future__ import annotations

import numpy as np
import pytest

from openmrc.base.shipped import find
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import UsidPlan, usid_plan
from openmrc.fabric.model.build import build, load
from openmrc.fabric.model.naming import links_at
from openmrc.operations.control.drain_proof import keeps_every_pair, prove_drain, rolling_t1


def lab() -> UsidPlan:
    return usid_plan(build(load(find("lab"))))


def test_a_t1_can_be_drained_and_the_share_that_remains_is_counted() -> None:
    plan = lab()
    shape, planes = plan.topology.planes[0], len(plan.topology.planes)
    proof = prove_drain(plan, ["p0-t1-03"], links_at(plan.topology, "p0-t1-03"), keep=0.5)
    assert proof.allowed
    assert proof.pairs_cut == 0
    assert proof.worst_share == pytest.approx(1 - 1 / (shape.t0_up * planes), abs=1e-3)


def test_a_drain_that_takes_the_last_path_is_refused_with_a_pair() -> None:
    plan = lab()
    proof = prove_drain(plan, ["h0"], links_at(plan.topology, "h0"))
    assert not proof.allowed
    assert "h0" in proof.why


def test_a_drain_that_takes_more_than_asked_is_refused() -> None:
    plan = lab()
    proof = prove_drain(plan, ["plane 0"], links_at(plan.topology, "plane 0"), keep=0.99)
    assert not proof.allowed
    assert "99.0%" in proof.why


def test_a_rolling_plan_takes_every_t1_once() -> None:
    plan = lab()
    found = rolling_t1(plan, minutes=10, keep=0.5)
    out = [name for wave in found.waves for name in wave.switches]
    assert found.allowed
    assert len(out) == len(set(out)) == sum(shape.t1_count for shape in plan.topology.planes)
    assert found.minutes == 10 * len(found.waves)


def test_a_share_that_leaves_room_for_no_switch_is_refused() -> None:
    with pytest.raises(ConfigError, match="leaves room for none"):
        rolling_t1(lab(), minutes=10, keep=0.99)


def test_the_proof_for_a_controller_says_whether_every_pair_keeps_a_path() -> None:
    plan = lab()
    keeps = keeps_every_pair(plan)
    assert keeps(frozenset([int(plan.topology.planes[0].fabric_up)]))
    assert not keeps(frozenset(np.flatnonzero(plan.topology.link_source == 0).tolist()))
