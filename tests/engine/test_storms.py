"""Whatever the network does, nothing that was acknowledged is lost, and every connection ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.engine_pair import MEMORY, REGION_AT, NetworkConditions, Pair
from openmrc.engine.responder.sacks import RCVD_UNIT
from openmrc.engine.state.machines import QpState
from openmrc.engine.state.params import Settings
from openmrc.engine.state.tables import Cause, WcStatus
from tests.draws import examples

SHARES = st.sampled_from([0.0, 0.0, 0.01, 0.1, 0.3])
SILENCES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2000), st.sampled_from([50, 500, 5000, 100_000])), max_size=6
)


@st.composite
def weathers(draw: st.DrawFn) -> NetworkConditions:
    return NetworkConditions(
        loss=draw(SHARES),
        duplicate=draw(SHARES),
        corrupt=draw(st.sampled_from([0.0, 0.02])),
        mark=draw(SHARES),
        trim=draw(SHARES),
        jitter_us=draw(st.sampled_from([0.0, 3.0, 60.0])),
        silences=tuple((plane, at, at + lasting) for plane, at, lasting in draw(SILENCES)),
    )


@st.composite
def writes(draw: st.DrawFn) -> list[tuple[int, bool]]:
    lengths = st.one_of(st.sampled_from([0, 1, 255, 256, 257]), st.integers(0, 6000))
    return draw(st.lists(st.tuples(lengths, st.booleans()), min_size=1, max_size=10))


def storm(pair: Pair, plan: list[tuple[int, bool]]) -> list[tuple[int, int, int]]:
    """Post the writes to disjoint places and let the network rage; return local, place and length of each."""
    spots, offset = [], 0
    for wr_id, (length, has_immediate) in enumerate(plan):
        local = pair.random.randrange(0, MEMORY - 6000)
        if has_immediate:
            assert pair.receive(wr_id) == 0
        assert pair.write(wr_id, local, length, offset, 1000 + wr_id if has_immediate else -1) == 0
        spots.append((local, REGION_AT + offset, length))
        offset += length + 64
    pair.run(until_us=60e6, stop=lambda: pair.is_done() or pair.is_in_error(0))
    pair.run(until_us=pair.now / 1e6 + 3000.0)  # late duplicates must not matter
    return spots


def judge(pair: Pair, plan: list[tuple[int, bool]], spots: list[tuple[int, int, int]]) -> None:
    """Check everything that must hold whatever happened."""
    sends = pair.sends()
    assert [c.wr_id for c in sends] == list(range(len(plan))), "each write completes once, in order"
    failed = pair.is_in_error(0)
    succeeded = [c for c in sends if c.status == WcStatus.SUCCESS]
    assert failed or len(succeeded) == len(plan)
    if failed:
        assert pair.row(0).cause == Cause.USER_TIMEOUT
        assert sends[len(succeeded)].status == WcStatus.RETRY_EXC_ERR
    for c in succeeded:
        local, place, length = spots[c.wr_id]
        assert pair.memory[1][place : place + length] == pair.memory[0][local : local + length]
        late = [p for p in pair.placed if p[0] > c.at and p[1] < place + length and p[2] > place]
        assert not late, "written after the completion was reported"
    immediates = [c for c in pair.receives() if c.status == WcStatus.SUCCESS]
    wanted = [1000 + wr_id for wr_id, (_, has_immediate) in enumerate(plan) if has_immediate]
    assert [c.immediate for c in immediates] == wanted[: len(immediates)], "immediates are in order, once"
    assert failed or len(immediates) == len(wanted)
    _nothing_outside(pair, spots)
    assert -RCVD_UNIT <= pair.row(0).inflight <= 0 == pair.peer(0).inflight, (
        "what SACKs round up is owed by the queue pair alone"
    )


def _nothing_outside(pair: Pair, spots: list[tuple[int, int, int]]) -> None:
    touched = np.frombuffer(pair.memory[1], dtype=np.uint8).copy()
    for _, place, length in spots:
        touched[place : place + length] = 0
    assert not touched.any(), "a byte outside every message was written"


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(conditions=weathers(), plan=writes(), seed=st.integers(0, 1 << 30), trimming=st.booleans())
def test_every_byte_arrives_once_or_the_connection_says_why(
    conditions: NetworkConditions, plan: list[tuple[int, bool]], seed: int, trimming: bool
) -> None:
    pair = Pair(conditions=conditions, seed=seed, settings=Settings(link_gbps=100.0, trimming=trimming))
    spots = storm(pair, plan)
    judge(pair, plan, spots)


@pytest.mark.needs("jit")
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(conditions=weathers(), plan=writes(), seed=st.integers(0, 1 << 30))
def test_compiled_and_interpreted_engines_end_in_the_same_state(
    conditions: NetworkConditions, plan: list[tuple[int, bool]], seed: int
) -> None:
    compare(conditions, plan, seed)


@pytest.mark.exhaustive
@pytest.mark.needs("jit")
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(conditions=weathers(), plan=writes(), seed=st.integers(0, 1 << 30))
def test_compiled_and_interpreted_engines_end_in_the_same_state_in_many_storms(
    conditions: NetworkConditions, plan: list[tuple[int, bool]], seed: int
) -> None:
    compare(conditions, plan, seed)


def compare(conditions: NetworkConditions, plan: list[tuple[int, bool]], seed: int) -> None:
    """Run the same storm over both engines; every table must end equal."""
    twins = [Pair(conditions=conditions, seed=seed, compiled=compiled) for compiled in (False, True)]
    for pair in twins:
        storm(pair, plan)
    assert twins[0].diary == twins[1].diary
    for name, interpreted, compiled in zip(twins[0].engine._fields, twins[0].engine, twins[1].engine, strict=True):
        assert np.array_equal(np.asarray(interpreted), np.asarray(compiled)), name


def test_the_same_seed_gives_the_same_run() -> None:
    conditions = NetworkConditions(loss=0.1, duplicate=0.05, mark=0.1, trim=0.1, jitter_us=30.0)
    diaries = []
    for _ in range(2):
        pair = Pair(conditions=conditions, seed=7)
        storm(pair, [(5000, True), (3000, False), (1, True)])
        diaries.append(pair.diary)
    assert diaries[0] == diaries[1]


def test_a_dead_network_ends_in_error_with_the_reason() -> None:
    pair = Pair(conditions=NetworkConditions(silences=tuple((plane, 0, 10**9) for plane in range(4))))
    spots = storm(pair, [(1000, False), (1000, True)])
    judge(pair, [(1000, False), (1000, True)], spots)
    assert pair.row(0).state == QpState.ERROR
    assert [c.status for c in pair.sends()] == [WcStatus.RETRY_EXC_ERR, WcStatus.WR_FLUSH_ERR]
