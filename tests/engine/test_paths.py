"""Which values are in rotation, how bad ones are replaced, probed and brought back."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from openmrc.core.rows import column, table
from openmrc.engine.paths import ev_states
from openmrc.engine.state.machines import EvEvent, EvState
from openmrc.engine.state.queue_pairs import active_rows
from openmrc.engine.state.tables import RotationSlot
from openmrc.wire.codes import EndpointOp, Opcode, PathMark
from tests.engine.scripted_peer import (
    MTU,
    Endpoint,
    entropy_of,
    only,
    probe_answer,
    request,
    rotation_of,
    sack,
    steady,
    us,
)

SECOND = 1e6  # us


def probing(**changes: float) -> Endpoint:
    summary = {"probe_interval_us": 1000.0, "probe_interval_max_us": SECOND, **changes}
    return Endpoint(settings=steady(**summary))


def fail(endpoint: Endpoint, value: int) -> int:
    """Lose an EV now."""
    ev = endpoint.ev_row(value)
    ev_states.transition(endpoint.engine, endpoint.now, ev, EvEvent.LOST)
    return ev


@pytest.mark.clause("ev-replacement")
def test_bad_value_is_replaced_from_the_reserve_of_the_same_plane() -> None:
    endpoint = Endpoint()
    before = [endpoint.rotation(rotation) for rotation in range(4)]
    reserve = ({entropy_of(2, k) for k in range(4)} - before[2]).pop()
    gone = sorted(before[2])[0]
    fail(endpoint, gone)
    assert endpoint.rotation(2) == before[2] - {gone} | {reserve}
    assert [endpoint.rotation(rotation) for rotation in (0, 1, 3)] == [before[rotation] for rotation in (0, 1, 3)]


@pytest.mark.clause("ev-replacement")
def test_rotation_is_one_shorter_when_the_reserve_of_the_plane_is_spent_and_planes_still_take_turns() -> None:
    endpoint = Endpoint()
    for k in range(2):
        fail(endpoint, entropy_of(1, k))
    assert endpoint.rotation(1) == {entropy_of(1, 2), entropy_of(1, 3)}
    endpoint.write(40 * MTU)
    shares = [rotation_of(packet.entropy) for packet in endpoint.all_sent()]
    assert [shares.count(rotation) for rotation in range(4)] == [10] * 4


@pytest.mark.clause("ev-replacement")
def test_value_that_comes_back_fills_the_rotation_or_joins_the_reserve() -> None:
    endpoint = Endpoint()
    for k in range(2):
        fail(endpoint, entropy_of(0, k))
    for k, size in ((0, 3), (1, 3)):
        ev_states.transition(endpoint.engine, 0, endpoint.ev_row(entropy_of(0, k)), EvEvent.PROBES_ANSWERED)
        assert len(endpoint.rotation(0)) == size
    assert endpoint.qp().good_evs == 16


@pytest.mark.clause("ev-replacement")
def test_values_that_come_back_replace_those_that_stood_in_for_them() -> None:
    endpoint = Endpoint(planes=1, evs=24, active=16)
    before = endpoint.rotation(0)
    failed = [entropy_of(0, k) for k in range(0, 16, 4)]
    for value in failed:
        fail(endpoint, value)
    assert len(endpoint.rotation(0) - before) == 4
    for value in failed:
        ev_states.transition(endpoint.engine, 0, endpoint.ev_row(value), EvEvent.PROBES_ANSWERED)
    assert endpoint.rotation(0) == before


@pytest.mark.clause("ev-replacement")
def test_a_value_that_comes_back_replaces_the_one_that_was_used_least() -> None:
    endpoint = Endpoint(planes=1, evs=24, active=16)
    first, second = (fail(endpoint, entropy_of(0, k)) for k in (2, 7))
    stood_in = endpoint.rotation(0) - {entropy_of(0, k) for k in range(16)}
    endpoint.write(16 * MTU)
    endpoint.all_sent()
    third = fail(endpoint, entropy_of(0, 5))
    for ev in (first, third):
        ev_states.transition(endpoint.engine, 0, ev, EvEvent.PROBES_ANSWERED)
        assert len(endpoint.rotation(0) & stood_in) == (2 if ev == first else 1)
    ev_states.transition(endpoint.engine, 0, second, EvEvent.PROBES_ANSWERED)
    assert endpoint.rotation(0) == {entropy_of(0, k) for k in range(16)}


@pytest.mark.clause("ev-resurrected")
def test_a_value_is_taken_back_when_the_packet_it_was_left_for_arrives_and_for_no_other() -> None:
    endpoint = probing()
    lost, marked = (endpoint.ev_row(entropy_of(1, k)) for k in range(2))
    ev_states.on_lost(endpoint.engine, us(1), lost, 10, 0)
    ev_states.transition(endpoint.engine, us(1), marked, EvEvent.SACK_ALWAYS_SKIP)
    for psn in (0, 9, 11):
        ev_states.on_arrived(endpoint.engine, us(2), 0, psn)
    assert len(endpoint.evs_in_state(EvState.ASSUMED_BAD)) == 2
    endpoint.engine.qps[0].silent_ports = 1 << endpoint.engine.evs[lost].port
    ev_states.on_arrived(endpoint.engine, us(2), 0, 10)
    assert len(endpoint.evs_in_state(EvState.ASSUMED_BAD)) == 2, "on a silent port another copy has arrived"
    endpoint.engine.qps[0].silent_ports = 0
    ev_states.on_arrived(endpoint.engine, us(2), 0, 10)
    assert endpoint.evs_in_state(EvState.ASSUMED_BAD) == [entropy_of(1, 1)]
    fail(endpoint, entropy_of(1, 0))
    needed = 0
    while endpoint.engine.evs[lost].state == EvState.ASSUMED_BAD:
        asked = endpoint.sends(Opcode.PROBE)
        needed += asked.entropy == entropy_of(1, 0)
        endpoint.receives(probe_answer(asked.probe_id, -1))
    assert needed == 3, "that was no failure, so this one is no relapse"


@pytest.mark.clause("ev-no-data-on-bad")
def test_data_never_travels_on_a_bad_or_denied_value() -> None:
    endpoint = Endpoint()
    bad = {entropy_of(rotation, k) for rotation in range(4) for k in (0, 3)}
    for value in bad:
        fail(endpoint, value)
    ev_states.transition(endpoint.engine, 0, endpoint.ev_row(entropy_of(0, 1)), EvEvent.DENY)
    endpoint.write(100 * MTU)
    used = {packet.entropy for packet in endpoint.all_sent()}
    assert used == {entropy_of(rotation, k) for rotation in range(4) for k in (1, 2)} - {entropy_of(0, 1)}


@pytest.mark.clause("ev-min-active")
def test_values_in_use_never_fall_below_the_minimum() -> None:
    endpoint = Endpoint(min_active=5)
    for number in range(40):
        good = [ev.value for ev in endpoint.engine.evs if ev.state <= EvState.SKIP]
        assert len(good) >= 5
        endpoint.now += us(10)
        fail(endpoint, good[number % len(good)])
    assert endpoint.qp().good_evs == 5
    assert len(endpoint.evs_in_state(EvState.GOOD)) == 5


@pytest.mark.clause("ev-min-active")
def test_last_value_of_all_is_kept() -> None:
    endpoint = Endpoint(planes=1, evs=1, active=1, min_active=1)
    fail(endpoint, entropy_of(0, 0))
    endpoint.write()
    endpoint.sends(Opcode.WRITE_ONLY, entropy=entropy_of(0, 0))


def test_losses_of_packets_sent_before_a_value_came_back_say_nothing_new() -> None:
    endpoint = Endpoint(planes=1, evs=2, active=2)
    ev = fail(endpoint, entropy_of(0, 0))
    endpoint.now = us(50)
    ev_states.transition(endpoint.engine, endpoint.now, ev, EvEvent.PROBES_ANSWERED)
    ev_states.on_lost(endpoint.engine, us(60), ev, 0, us(49))
    assert endpoint.engine.evs[ev].state == EvState.GOOD
    ev_states.on_lost(endpoint.engine, us(60), ev, 0, us(51))
    assert endpoint.engine.evs[ev].state == EvState.ASSUMED_BAD


# Probing


@pytest.mark.clause("probe-backoff")
def test_unanswered_probes_double_their_gap_up_to_a_second_and_never_stop() -> None:
    endpoint = probing()
    fail(endpoint, entropy_of(1, 0))
    times = []
    for _ in range(40):
        endpoint.sends(Opcode.PROBE, entropy=entropy_of(1, 0))
        times.append(endpoint.now / us(1000))
    gaps = [round(later - earlier) for earlier, later in pairwise(times)]
    assert times[0] == 1
    assert gaps[:11] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000]
    assert set(gaps[10:]) == {1000}


@pytest.mark.clause("probe-backoff")
def test_probes_are_no_more_frequent_than_ten_round_trips() -> None:
    endpoint = probing(probe_interval_us=10.0)
    endpoint.peer().srtt = us(50)
    fail(endpoint, entropy_of(0, 0))
    endpoint.sends(Opcode.PROBE, at_us=500)


@pytest.mark.clause("ev-resurrected")
def test_three_answers_in_a_row_bring_a_value_back() -> None:
    endpoint = probing()
    ev = fail(endpoint, entropy_of(1, 0))
    for answered in range(3):
        assert endpoint.engine.evs[ev].state == EvState.ASSUMED_BAD
        asked = endpoint.sends(Opcode.PROBE, at_us=1000 * (answered + 1))
        endpoint.receives(probe_answer(asked.probe_id, -1))
    assert endpoint.engine.evs[ev].state == EvState.GOOD
    endpoint.sends_nothing(until_us=10 * SECOND)


@pytest.mark.clause("ev-resurrected")
def test_a_value_that_fails_soon_again_needs_twice_as_many_answers_each_time() -> None:
    endpoint = probing()
    needed = []
    for held in (0, 1, 5, 9, 9, 11):  # seconds between its return and its next failure
        endpoint.waits(endpoint.now / us(1) + held * SECOND)
        ev = fail(endpoint, entropy_of(1, 0))
        answers = 0
        while endpoint.engine.evs[ev].state == EvState.ASSUMED_BAD:
            endpoint.receives(probe_answer(endpoint.sends(Opcode.PROBE).probe_id, -1))
            answers += 1
        needed.append(answers)
    assert needed == [3, 6, 12, 24, 24, 3]


@pytest.mark.clause("ev-resurrected")
def test_silence_between_answers_starts_the_count_again() -> None:
    endpoint = probing()
    ev = fail(endpoint, entropy_of(1, 0))
    for answer in (True, True, False, True, True):
        asked = endpoint.sends(Opcode.PROBE)
        if answer:
            endpoint.receives(probe_answer(asked.probe_id, -1))
    assert endpoint.engine.evs[ev].state == EvState.ASSUMED_BAD
    endpoint.receives(probe_answer(endpoint.sends(Opcode.PROBE).probe_id, -1))
    assert endpoint.engine.evs[ev].state == EvState.GOOD


@pytest.mark.clause("probe-late")
def test_late_answer_is_ignored() -> None:
    endpoint = Endpoint(settings=steady(probe_interval_us=1000.0, probe_successes=1), evs=32, active=32)
    for rotation in range(4):
        for k in range(8):
            fail(endpoint, entropy_of(rotation, k))
    endpoint.waits(1000)
    early = {packet.entropy: packet.probe_id for packet in only(endpoint.all_sent(), Opcode.PROBE)}
    endpoint.waits(2000)
    late = {packet.entropy: packet.probe_id for packet in only(endpoint.all_sent(), Opcode.PROBE)}
    assert set(early) == set(late)
    for value, probe_id in early.items():
        assert late[value] != probe_id
        endpoint.receives(probe_answer(probe_id, -1))
    assert len(endpoint.evs_in_state(EvState.ASSUMED_BAD)) == 32
    for probe_id in late.values():
        endpoint.receives(probe_answer(probe_id, -1))
    assert endpoint.evs_in_state(EvState.ASSUMED_BAD) == []


def test_answer_to_a_probe_of_no_value_is_malformed() -> None:
    endpoint = probing()
    endpoint.receives(probe_answer(1000, -1))
    assert endpoint.qp().malformed == 1


@pytest.mark.clause("probe-wakes-plane")
def test_first_answer_has_all_bad_values_of_the_plane_probed_soon() -> None:
    endpoint = probing()
    for k in range(3):
        fail(endpoint, entropy_of(1, k))
    fail(endpoint, entropy_of(2, 0))
    endpoint.waits(100 * SECOND)
    endpoint.all_sent()
    asked = endpoint.sends(Opcode.PROBE)
    rest = only(endpoint.all_sent(), Opcode.PROBE)
    first = next(packet for packet in (asked, *rest) if rotation_of(packet.entropy) == 1)
    endpoint.receives(probe_answer(first.probe_id, -1))
    heard = endpoint.now
    soon = [endpoint.sends(Opcode.PROBE) for _ in range(3)]
    assert endpoint.now - heard <= us(1001)
    assert {rotation_of(packet.entropy) for packet in soon} == {1}


@pytest.mark.clause("probe-port-down")
def test_values_of_a_port_that_is_down_are_not_probed_and_are_when_it_is_back() -> None:
    endpoint = probing()
    fail(endpoint, entropy_of(1, 0))
    endpoint.set_port(1, 0)
    endpoint.all_sent()
    endpoint.peer().status_pending = False
    endpoint.sends_nothing(until_us=50 * SECOND)
    endpoint.set_port(1, 1)
    endpoint.peer().status_pending = False
    back = endpoint.now
    endpoint.sends(Opcode.PROBE, entropy=entropy_of(1, 0))
    assert endpoint.now - back <= us(1001)


@pytest.mark.clause("recovery-hour")
@pytest.mark.needs("jit")  # an hour of probes
def test_plane_that_was_dead_for_an_hour_is_back_within_one_probe_period() -> None:
    from bench.engine.recovery_hour import MARK_MS, recovery_ms

    assert 100 < recovery_ms(outage_s=3600.03) <= MARK_MS + 20  # a probe was just missed


@pytest.mark.parametrize("base", [0, 32_760, 33_000])
def test_evs_in_rotation_are_told_however_many_an_endpoint_has(base: int) -> None:
    """Offsets of a rotation take 16 bits, rows 32."""
    endpoint = Endpoint(planes=1, evs=16, active=16)
    engine = endpoint.engine._replace(slots=table(RotationSlot, base + 16))
    column(engine.slots, "ev")[base:] = np.arange(16)
    engine.rotations[0].ev_base = base
    assert active_rows(engine, 0) == set(range(base, base + 16))


def test_acknowledged_value_serves_the_control_packets_of_its_plane() -> None:
    endpoint = Endpoint(planes=1, evs=4, active=4)
    endpoint.write(4 * MTU)
    newest = endpoint.all_sent()[-1]
    endpoint.receives(sack(3))
    rotation = endpoint.engine.rotations[0]
    assert endpoint.engine.evs[rotation.ev_base + rotation.reverse].value == newest.entropy
    fail(endpoint, newest.entropy)
    assert endpoint.engine.evs[rotation.ev_base + rotation.reverse].state == EvState.GOOD


@pytest.mark.parametrize("port_first", [True, False])
@pytest.mark.parametrize("is_local", [True, False])
def test_a_bad_value_is_used_again_when_all_good_ones_are_on_ports_that_are_down(
    port_first: bool, is_local: bool
) -> None:
    endpoint = Endpoint(planes=2, evs=1, active=1)

    def lose_port() -> None:
        if is_local:
            endpoint.set_port(0, 0)
        else:
            update = request(EndpointOp.PORT_STATUS_UPDATE, 0xF000, port_status_mask=0b100)
            endpoint.receives(update, port=1)

    if port_first:
        lose_port()
    ev_states.transition(endpoint.engine, 0, endpoint.ev_row(entropy_of(1, 0)), EvEvent.LOST)
    if not port_first:
        lose_port()
    endpoint.write()
    data = [packet for packet in endpoint.all_sent() if packet.opcode <= Opcode.WRITE_ONLY_IMM]
    assert [packet.port for packet in data] == [1]


def test_a_denied_value_is_not_used_again_even_when_no_other_port_works() -> None:
    endpoint = Endpoint(planes=2, evs=1, active=1)
    ev_states.transition(endpoint.engine, 0, endpoint.ev_row(entropy_of(1, 0)), EvEvent.DENY)
    endpoint.set_port(0, 0)
    endpoint.write()
    assert [packet for packet in endpoint.all_sent() if packet.opcode <= Opcode.WRITE_ONLY_IMM] == []


def test_a_mark_of_a_copy_that_was_overtaken_by_its_repetition_blames_the_path_of_that_copy() -> None:
    endpoint = Endpoint(planes=2)
    endpoint.write()
    first = endpoint.sends(Opcode.WRITE_ONLY)
    second = endpoint.sends(Opcode.WRITE_ONLY)  # after a timeout
    assert first.port != second.port
    endpoint.receives(sack(0, path_mark=PathMark.SKIP_ONCE, reflected_entropy=first.entropy))
    assert endpoint.evs_in_state(EvState.SKIP) == [first.entropy]
    assert (endpoint.ev(first.entropy).marked, endpoint.ev(second.entropy).marked) == (1, 0)
