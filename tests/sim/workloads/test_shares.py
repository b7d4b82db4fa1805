"""Workloads on some of the hosts, again and again; stragglers; checkpoints."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from openmrc.errors import ConfigError
from openmrc.sim.scenario.description import Matrix
from openmrc.sim.workloads.collectives.hierarchical import HierarchicalAllReduce
from openmrc.sim.workloads.collectives.permutation import Permutation
from openmrc.sim.workloads.collectives.ring import RingAllReduce
from openmrc.sim.workloads.families import Checkpoint
from openmrc.sim.workloads.plan import NOWHERE, WorkloadHosts
from openmrc.sim.workloads.shares import members_of, part_of, plan_of
from openmrc.sim.workloads.training_step import TrainingStep, lengths, straggling
from openmrc.units import PS_PER_US

SIXTEEN = WorkloadHosts(16, domain=4)


def test_ranges_name_hosts_in_the_order_given() -> None:
    assert members_of("12-15, 0-6/3", 16).tolist() == [12, 13, 14, 15, 0, 3, 6]


@pytest.mark.parametrize("text", ["", "a", "3-1", "0-16", "0-3,3", "0-8/0", "-4"])
def test_what_names_no_hosts_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="hosts"):
        members_of(text, 16)


def test_a_workload_stays_on_its_hosts() -> None:
    nodes = plan_of(SIXTEEN, RingAllReduce(size=8000, hosts="1-15/2"), 1).nodes()
    used = np.unique(np.concatenate([nodes.source, nodes.destination[nodes.destination != NOWHERE]]))
    assert used.tolist() == list(range(1, 16, 2))


def test_two_jobs_on_two_halves_are_the_same_but_for_their_hosts() -> None:
    step = TrainingStep(steps=2, compute="5us", collectives=(RingAllReduce(size=8000),))
    first, second = (
        plan_of(SIXTEEN, msgspec.structs.replace(step, hosts=hosts), 3).nodes() for hosts in ("0-7", "8-15")
    )
    assert (first.source + 8 == second.source).all()
    assert (first.size == second.size).all()


def test_scale_up_domains_are_kept_by_whole_ones() -> None:
    assert part_of(SIXTEEN, members_of("4-11", 16)).domain == 4
    assert part_of(SIXTEEN, members_of("2-9", 16)).domain == 1
    assert plan_of(SIXTEEN, HierarchicalAllReduce(size=8000, hosts="8-15"), 1).count > 0


def test_a_workload_begins_again_every_so_often() -> None:
    nodes = plan_of(SIXTEEN, Permutation(size=1000, start="3us", every="10us", times=3), 1).nodes()
    assert np.unique(nodes.start).tolist() == [3 * PS_PER_US, 13 * PS_PER_US, 23 * PS_PER_US]


@pytest.mark.parametrize("words", [{"every": "5us"}, {"times": 3}])
def test_a_schedule_needs_both_words(words: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError, match="needs both"):
        msgspec.convert({"size": 1000, "kind": "permutation", **words}, Permutation)


def test_a_matrix_has_its_own_hosts() -> None:
    with pytest.raises(msgspec.ValidationError, match="names its hosts"):
        msgspec.convert({"file": "a.cm", "kind": "matrix", "hosts": "0-3"}, Matrix)


def test_stragglers_are_the_same_in_every_step() -> None:
    work = TrainingStep(compute="10us", stragglers=2, straggling=3.0, collectives=(Permutation(size=1),))
    slow = straggling(16, work, 5)
    assert sorted(slow.tolist())[-3:] == [1.0, 3.0, 3.0]
    each = lengths(slow, work, np.random.default_rng(1))
    assert (each == lengths(slow, work, np.random.default_rng(2))).all()
    assert each.max() == 30 * PS_PER_US
    with pytest.raises(ConfigError, match="17 of 16"):
        straggling(16, msgspec.structs.replace(work, stragglers=17), 5)


def test_a_checkpoint_is_written_in_pieces_to_storage_alone() -> None:
    plan = plan_of(SIXTEEN, Checkpoint(size=10_000, storage=3, piece=4096, window=1, over="30us"), 1)
    nodes = plan.nodes()
    assert set(nodes.destination.tolist()) == {13, 14, 15}
    assert set(nodes.source.tolist()) == set(range(13))
    assert int(nodes.size.sum()) == 13 * 10_000
    assert np.unique(nodes.start).tolist() == [0, 10 * PS_PER_US, 20 * PS_PER_US]
    before, after, acknowledged = plan.edges()
    assert (nodes.source[before] == nodes.source[after]).all()
    assert acknowledged.all()


def test_somebody_has_to_write() -> None:
    with pytest.raises(ConfigError, match="some have to write"):
        plan_of(SIXTEEN, Checkpoint(size=1, storage=16), 1)
