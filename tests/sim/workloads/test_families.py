"""Every family moves what it says, between the hosts it says, in an order that lets the data flow."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.errors import ConfigError
from openmrc.sim.workloads.collectives.all_to_all import AllToAll
from openmrc.sim.workloads.collectives.hierarchical import HierarchicalAllReduce
from openmrc.sim.workloads.collectives.moe import MixtureOfExperts
from openmrc.sim.workloads.collectives.permutation import Permutation
from openmrc.sim.workloads.collectives.pipeline import Pipeline, order
from openmrc.sim.workloads.collectives.ring import AllGather, ReduceScatter, RingAllReduce
from openmrc.sim.workloads.collectives.tree import TreeAllReduce
from openmrc.sim.workloads.families import Background, Checkpoint, Incast, Outcast, Workload
from openmrc.sim.workloads.joined import joined, never_started
from openmrc.sim.workloads.plan import NOWHERE, Parameters, WorkloadGraph, WorkloadHosts
from openmrc.sim.workloads.shares import plan_of
from openmrc.sim.workloads.training_step import TrainingStep

EIGHT = WorkloadHosts(8, domain=4)

EVERY_FAMILY = [
    Permutation(size=1000, messages=3),
    Incast(size=1000, senders=5),
    Outcast(size=1000, receivers=5),
    AllToAll(size=1000, group=4, placement="strided", window=2),
    RingAllReduce(size=8000),
    ReduceScatter(size=8000, group=4, placement="random"),
    AllGather(size=8000),
    TreeAllReduce(size=8000, chunks=3),
    HierarchicalAllReduce(size=8000),
    MixtureOfExperts(size=8000, skew=1.2, layers=2, expert="3us"),
    Pipeline(size=1000, stages=4, microbatches=6, forward="2us", backward="4us"),
    Background(size=100_000, load=0.5, duration="100us"),
    Checkpoint(size=50_000, storage=2, piece="4KiB", window=2, over="20us"),
    RingAllReduce(size=8000, hosts="1-7/2", every="50us", times=3),
    TrainingStep(steps=2, compute="10us", jitter=0.1, collectives=(RingAllReduce(size=8000), AllToAll(size=100))),
]


def sent(plan: WorkloadGraph) -> dict[int, int]:
    nodes = plan.nodes()
    moves = nodes.destination != NOWHERE
    return {host: int(nodes.size[moves & (nodes.source == host)].sum()) for host in range(plan.hosts)}


def knowledge(plan: WorkloadGraph) -> list[set[int]]:
    """Return whose data each host has in the end, if every message carries all that its sender was waiting for."""
    nodes, (before, after, _) = plan.nodes(), plan.edges()
    causes: list[list[int]] = [[] for _ in range(plan.count)]
    for first, second in zip(before.tolist(), after.tolist(), strict=True):
        causes[second].append(first)
    known: dict[int, set[int]] = {}

    def carried(node: int) -> set[int]:
        if node not in known:
            known[node] = {int(nodes.source[node])}.union(*(carried(cause) for cause in causes[node]))
        return known[node]

    held = [{host} for host in range(plan.hosts)]
    for node in range(plan.count):
        if nodes.destination[node] != NOWHERE:
            held[nodes.destination[node]] |= carried(node)
    return held


@pytest.mark.parametrize("parameters", EVERY_FAMILY, ids=lambda parameters: type(parameters).__name__)
def test_every_message_can_start_and_the_same_seed_gives_the_same_plan(parameters: Parameters) -> None:
    first, second = (joined([("it", plan_of(EIGHT, parameters, 5))]) for _ in range(2))
    assert first.moving.size > 0
    for name in ("source", "destination", "size", "start", "waits", "released", "release_delay"):
        assert np.array_equal(getattr(first.traffic, name), getattr(second.traffic, name))


@pytest.mark.parametrize("parameters", EVERY_FAMILY, ids=lambda parameters: type(parameters).__name__)
def test_parameters_survive_being_written_and_read(parameters: Parameters) -> None:
    assert msgspec.json.decode(msgspec.json.encode(parameters), type=Workload) == parameters


@given(st.integers(2, 40), st.integers(0, 2**32))
def test_a_permutation_is_one_and_nobody_sends_to_itself(hosts: int, seed: int) -> None:
    nodes = plan_of(WorkloadHosts(hosts), Permutation(size=7), seed).nodes()
    assert sorted(nodes.destination.tolist()) == list(range(hosts))
    assert (nodes.source != nodes.destination).all()


def test_an_incast_has_the_senders_asked_for_and_a_victim() -> None:
    plan = plan_of(WorkloadHosts(16), Incast(size=7, senders=7, receiver=3, victim=(1, 2)), 1)
    nodes = plan.nodes()
    assert (nodes.destination == 3).sum() == 7
    assert len(set(nodes.source[:7].tolist())) == 7
    assert (nodes.source[7], nodes.destination[7]) == (1, 2)
    assert plan.marks == {"victim": [7]}


def test_neighbouring_senders_follow_the_first() -> None:
    nodes = plan_of(WorkloadHosts(8), Incast(size=7, senders=3, receiver=6, first_sender=5), 1).nodes()
    assert nodes.source.tolist() == [5, 7, 0]


def test_an_all_to_all_has_each_pair_of_a_group_once() -> None:
    nodes = plan_of(WorkloadHosts(8), AllToAll(size=7, group=4), 1).nodes()
    pairs = set(zip(nodes.source.tolist(), nodes.destination.tolist(), strict=True))
    assert len(pairs) == len(nodes.source) == 2 * 4 * 3
    assert all(a // 4 == b // 4 for a, b in pairs)


def test_an_all_to_all_of_some_rounds_stops_after_the_nearest_partners() -> None:
    nodes = plan_of(WorkloadHosts(8), AllToAll(size=7, group=8, rounds=3), 1).nodes()
    assert len(nodes.source) == 8 * 3
    assert set(((nodes.destination - nodes.source) % 8).tolist()) == {1, 2, 3}


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 20))
def test_a_ring_all_reduce_brings_everybodys_data_to_everybody(hosts: int) -> None:
    plan = plan_of(WorkloadHosts(hosts), RingAllReduce(size=1000 * hosts), 1)
    assert plan.count == 2 * (hosts - 1) * hosts
    assert set(sent(plan).values()) == {2 * (hosts - 1) * 1000}
    assert knowledge(plan) == [set(range(hosts))] * hosts


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 20), st.integers(1, 3))
def test_a_tree_all_reduce_brings_everybodys_data_to_everybody(hosts: int, chunks: int) -> None:
    plan = plan_of(WorkloadHosts(hosts), TreeAllReduce(size=3000, chunks=chunks), 1)
    assert plan.count == 2 * (hosts - 1) * chunks
    assert knowledge(plan) == [set(range(hosts))] * hosts


def test_half_a_ring_takes_half_the_steps() -> None:
    assert (
        plan_of(WorkloadHosts(8), ReduceScatter(size=8), 1).count
        == plan_of(WorkloadHosts(8), AllGather(size=8), 1).count
        == 56
    )


def test_a_hierarchical_all_reduce_brings_everybodys_data_to_everybody() -> None:
    plan = plan_of(EIGHT, HierarchicalAllReduce(size=8000), 1)
    assert knowledge(plan) == [set(range(8))] * 8
    nodes = plan.nodes()
    sizes = nodes.size[nodes.destination >= 0]
    assert sorted(set(sizes.tolist())) == [1000, 2000]  # a half of a quarter across, a quarter inside
    assert len(sizes) == 2 * 8 * 1 + 2 * 8 * 3


def test_a_hierarchical_all_reduce_without_a_network_inside_takes_the_time_given() -> None:
    given_rate = HierarchicalAllReduce(size=8000, domain=4, domain_gbps=8000, domain_latency_ns=500)
    plan = plan_of(WorkloadHosts(8), given_rate, 1)
    assert knowledge(plan) == [{place, place + 4} for place in range(4)] * 2
    inside = plan.nodes().length
    # (4 - 1) steps of 2,000 B at 8 Tb/s and 500 ns
    assert set(inside[inside > 0].tolist()) == {3 * (2_000 + 500_000)}


def test_popular_experts_get_more_in_proportion_to_their_rank() -> None:
    nodes = plan_of(WorkloadHosts(4), MixtureOfExperts(size=100_000, skew=1.0, combine=False), 3).nodes()
    to = sorted((int(nodes.size[nodes.destination == host].sum()) // 3 for host in range(4)), reverse=True)
    assert to == [48_000, 24_000, 16_000, 12_000]


def test_combine_returns_what_dispatch_sent() -> None:
    assert knowledge(plan_of(WorkloadHosts(4), MixtureOfExperts(size=100_000), 3)) == [set(range(4))] * 4


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("stage", range(4))
def test_every_stage_computes_every_micro_batch_both_ways_and_forward_first(schedule: str, stage: int) -> None:
    work = order(stage, Pipeline(size=1, stages=4, microbatches=6, schedule=schedule))  # type: ignore[arg-type]
    assert sorted(work) == sorted((way, batch) for way in ("forward", "backward") for batch in range(6))
    assert all(work.index(("forward", batch)) < work.index(("backward", batch)) for batch in range(6))


def test_one_forward_one_backward_starts_the_first_backward_earlier() -> None:
    parameters = Pipeline(size=1, stages=4, microbatches=6)
    assert order(3, parameters)[:4] == [("forward", 0), ("backward", 0), ("forward", 1), ("backward", 1)]
    assert order(0, parameters)[:5] == [*(("forward", batch) for batch in range(4)), ("backward", 0)]


def test_background_offers_the_load_asked_for() -> None:
    plan = plan_of(WorkloadHosts(64, nic_bits_per_s=10**11), Background(size=10_000, load=0.5, duration="2ms"), 4)
    offered = sum(sent(plan).values()) * 8 / (64 * 10**11 * 2e-3)
    assert offered == pytest.approx(0.5, rel=0.05)
    assert plan.nodes().single_path.all()


def test_a_training_step_waits_for_the_slowest_host() -> None:
    parameters = TrainingStep(steps=3, compute="10us", collectives=(RingAllReduce(size=8000),))
    plan = plan_of(EIGHT, parameters, 1)
    assert len(plan.marks["step"]) == 3
    before, after, _ = plan.edges()
    first_gate = plan.marks["step"][0]
    assert (after == first_gate).sum() == 8
    second = set(after[before == first_gate].tolist())
    assert {int(plan.nodes().source[node]) for node in second} == set(range(8))
    assert set(plan.nodes().length[sorted(second)].tolist()) == {10_000_000}


def test_plans_run_side_by_side_on_connections_of_their_own() -> None:
    work = joined([("a", plan_of(EIGHT, Permutation(size=7), 1)), ("b", plan_of(EIGHT, Permutation(size=7), 1))])
    assert work.traffic.connection.tolist() == [0] * 8 + [1] * 8
    assert work.workload.tolist() == [0] * 8 + [1] * 8


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        (Incast(size=7, senders=8), "senders: 8"),
        (Outcast(size=7, receivers=8), "receivers: 8"),
        (AllToAll(size=7, group=3), "group: 3"),
        (Pipeline(size=7, stages=3, microbatches=1), "stages: 3"),
        (HierarchicalAllReduce(size=7, domain=3), "domain: 3"),
        (HierarchicalAllReduce(size=7, domain=8), "domain: 8 without domain_gbps"),
        (Permutation(size=1 << 32), "4294967296 bytes"),
        (Permutation(size=7, stride=8), "sends to itself"),
        (Incast(size=7, senders=2, receiver=3, victim=(8, 1)), "host 8"),
    ],
)
def test_what_cannot_be_is_refused_with_its_value(parameters: Parameters, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        plan_of(EIGHT, parameters, 1)


def test_messages_that_wait_for_each_other_are_found() -> None:
    plan = WorkloadGraph(4)
    ids = plan.messages([0, 1, 2], [1, 2, 3], 9)
    plan.follow([ids[1], ids[2]], [ids[2], ids[1]])
    before, after, _ = plan.edges()
    assert never_started(3, before, after, np.zeros(3, np.int64)).tolist() == [1, 2]
    with pytest.raises(ConfigError, match="2 of 3 messages wait for each other"):
        joined([("x", plan)])
