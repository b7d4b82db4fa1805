"""Every pair of state and event of the endpoint's tables, and how real packets walk them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from openmrc.engine import lifecycle
from openmrc.engine.paths import ev_states
from openmrc.engine.state.machines import (
    EV_TRANSITIONS,
    ILLEGAL,
    NACK_ACTIONS,
    QP_TRANSITIONS,
    EvEvent,
    EvState,
    NackAction,
    QpEvent,
    QpState,
    ev_after,
    nack_action,
    qp_after,
)
from openmrc.engine.state.tables import EventKind
from openmrc.wire.codes import NackReason, Opcode, PathMark
from tests.engine.scripted_peer import Endpoint, data, nack, probe_answer, sack, steady


def named(pair: tuple[Any, Any]) -> str:
    return f"{pair[0].name}-{pair[1].name}"


QP_PAIRS = list(itertools.product(QpState, QpEvent))
EV_PAIRS = list(itertools.product(EvState, EvEvent))


@pytest.mark.clause("qp-states")
@pytest.mark.parametrize("pair", QP_PAIRS, ids=named)
def test_queue_pair_moves_as_the_table_says_and_not_otherwise(pair: tuple[QpState, QpEvent]) -> None:
    state, event = pair
    endpoint = in_state(state)
    following = QP_TRANSITIONS.get(pair)
    moved = lifecycle.move(endpoint.engine, 0, 0, event)
    assert moved == int(following is not None)
    assert endpoint.qp().state == (state if following is None else following)
    assert qp_after(state, event) == (ILLEGAL if following is None else following)


@pytest.mark.clause("ev-states")
@pytest.mark.parametrize("pair", EV_PAIRS, ids=named)
def test_entropy_value_moves_as_the_table_says_and_not_otherwise(pair: tuple[EvState, EvEvent]) -> None:
    state, event = pair
    endpoint = Endpoint()
    ev = put(endpoint, state)
    counted = endpoint.qp().good_evs
    ev_states.transition(endpoint.engine, 0, ev, event)
    following = EV_TRANSITIONS.get(pair, state)
    assert endpoint.engine.evs[ev].state == following
    assert ev_after(state, event) == EV_TRANSITIONS.get(pair, ILLEGAL)
    usable = {EvState.GOOD, EvState.SKIP}
    assert endpoint.qp().good_evs - counted == (following in usable) - (state in usable)


@pytest.mark.clause("nack-codes")
@pytest.mark.parametrize("reason", NackReason, ids=lambda reason: reason.name)
def test_nack_is_acted_on_as_its_row_says(reason: NackReason) -> None:
    endpoint = Endpoint()
    endpoint.write(10 * 256)
    sent = endpoint.all_sent()
    refused = sent[3]
    path = endpoint.ev(refused.entropy)
    endpoint.receives(nack(refused.psn, reason, refused.entropy))
    action = NACK_ACTIONS[reason]
    assert nack_action(reason) == action
    failed = bool(action & NackAction.FAIL)
    assert (endpoint.qp().state == QpState.ERROR) == failed
    assert path.state == (EvState.SKIP if action & NackAction.SKIP_PATH else EvState.GOOD)
    assert endpoint.qp().retries == int(bool(action & NackAction.SPEND_RETRY))
    assert endpoint.qp().nacks_received == 1
    if action & NackAction.RESEND:
        endpoint.sends(psn=refused.psn, retransmitted=1)
    endpoint.sends_nothing()


def test_unknown_nack_reason_changes_nothing() -> None:
    endpoint = Endpoint()
    endpoint.write()
    endpoint.all_sent()
    row = nack(0, NackReason.TRIMMED) | {"nack_reason": 0x44}
    endpoint.receives(row)
    endpoint.sends_nothing()
    assert endpoint.qp().malformed == 1


def in_state(state: QpState) -> Endpoint:
    """A queue pair brought to a state by the events that lead there."""
    steps = {QpState.RESET: QpEvent.TO_RESET, QpState.INIT: QpEvent.TO_INIT, QpState.RTR: QpEvent.TO_RTR}
    endpoint = Endpoint(until=steps.get(state, QpEvent.TO_RTS))
    if state in (QpState.ERROR, QpState.RESET):
        assert lifecycle.move(endpoint.engine, 0, 0, QpEvent.FAIL if state == QpState.ERROR else QpEvent.TO_RESET)
    assert endpoint.qp().state == state
    return endpoint


def put(endpoint: Endpoint, state: EvState) -> int:
    """Bring the EV row 0 to a state through the table."""
    events = {EvState.SKIP: EvEvent.TRIMMED, EvState.ASSUMED_BAD: EvEvent.LOST, EvState.DENIED: EvEvent.DENY}
    if state in events:
        ev_states.transition(endpoint.engine, 0, 0, events[state])
    assert endpoint.engine.evs[0].state == state
    return 0


# How packets reach each row of the table. One message of ten packets is out; its fourth tells the story.


@pytest.fixture
def story() -> tuple[Endpoint, Any, Any]:
    endpoint = Endpoint(settings=steady(probe_interval_us=100.0, probe_successes=1))
    endpoint.write(10 * 256)
    packet = endpoint.all_sent()[3]
    return endpoint, packet, endpoint.ev(packet.entropy)


def marked(packet: Any, mark: PathMark, **fields: Any) -> dict[str, Any]:
    return sack(-1, (packet.psn,), path_mark=mark, reflected_entropy=packet.entropy, **fields)


def packet_ev(endpoint: Endpoint, packet: Any) -> int:
    return ev_states.find(endpoint.engine, 0, packet.entropy)


def lose(endpoint: Endpoint, packet: Any) -> None:
    """Report everything but this packet, later than a round trip varies."""
    others = tuple(psn for psn in range(10) if psn != packet.psn)
    endpoint.receives(sack(-1, others), at_us=endpoint.now / 1e6 + 100)
    endpoint.waits(endpoint.now / 1e6)


@pytest.mark.clause("ev-skip-once")
def test_good_value_is_skipped_when_a_sack_says_skip_once(story: tuple[Endpoint, Any, Any]) -> None:
    endpoint, packet, ev = story
    endpoint.receives(marked(packet, PathMark.SKIP_ONCE))
    assert ev.state == EvState.SKIP
    assert ev.marked == 1


@pytest.mark.clause("ev-trimmed")
def test_good_value_is_skipped_when_a_nack_says_trimmed(story: tuple[Endpoint, Any, Any]) -> None:
    endpoint, packet, ev = story
    endpoint.receives(nack(packet.psn, NackReason.TRIMMED, packet.entropy))
    assert ev.state == EvState.SKIP
    assert ev.trimmed == 1


@pytest.mark.clause("ev-lasthop")
def test_last_hop_trim_is_nobodys_fault_but_the_receivers(story: tuple[Endpoint, Any, Any]) -> None:
    endpoint, packet, ev = story
    endpoint.receives(nack(packet.psn, NackReason.TRIMMED_LASTHOP, packet.entropy))
    assert ev.state == EvState.GOOD


@pytest.mark.clause("ev-always-skip")
@pytest.mark.parametrize("before", [EvState.GOOD, EvState.SKIP], ids=lambda state: state.name)
def test_value_is_assumed_bad_when_a_sack_says_always_skip(before: EvState, story: tuple[Endpoint, Any, Any]) -> None:
    endpoint, packet, ev = story
    if before == EvState.SKIP:
        endpoint.receives(marked(packet, PathMark.SKIP_ONCE))
    endpoint.receives(marked(packet, PathMark.ALWAYS_SKIP))
    assert ev.state == EvState.ASSUMED_BAD


def test_the_unassigned_mark_counts_as_always_skip(story: tuple[Endpoint, Any, Any]) -> None:
    endpoint, packet, ev = story
    endpoint.receives(marked(packet, PathMark.NONE) | {"path_mark": 3})
    assert ev.state == EvState.ASSUMED_BAD


@pytest.mark.clause("ev-lost")
@pytest.mark.parametrize("before", [EvState.GOOD, EvState.SKIP], ids=lambda state: state.name)
def test_value_is_assumed_bad_when_its_packet_vanished(before: EvState, story: tuple[Endpoint, Any, Any]) -> None:
    endpoint, packet, ev = story
    if before == EvState.SKIP:
        ev_states.transition(endpoint.engine, endpoint.now, packet_ev(endpoint, packet), EvEvent.TRIMMED)
    assert ev.state == before
    lose(endpoint, packet)
    assert ev.state == EvState.ASSUMED_BAD
    assert endpoint.engine.ev_failures[packet_ev(endpoint, packet)].lost == 1
    summary = [event for event in endpoint.events() if event.kind == EventKind.EV_STATE]
    assert [(event.entropy, event.state, event.cause) for event in summary] == [
        (packet.entropy, EvState.ASSUMED_BAD, EvEvent.LOST)
    ]


@pytest.mark.clause("ev-lost-threshold")
@pytest.mark.parametrize(("lost", "state"), [(1, EvState.GOOD), (2, EvState.ASSUMED_BAD)])
def test_two_losses_in_a_row_retire_the_value_when_the_threshold_is_two(lost: int, state: EvState) -> None:
    endpoint = Endpoint(settings=steady(loss_threshold=2), planes=1, evs=2, active=1)
    ev = endpoint.ev_row(0xC000)
    endpoint.write(3 * 256)
    endpoint.all_sent()
    endpoint.receives(sack(-1, tuple(range(lost, 3))), at_us=100)
    endpoint.waits(100)
    assert (endpoint.engine.evs[ev].state, endpoint.engine.ev_failures[ev].lost) == (state, lost)


@pytest.mark.clause("ev-lost-threshold")
def test_an_arrival_between_two_losses_starts_the_count_again() -> None:
    endpoint = Endpoint(settings=steady(loss_threshold=2))
    ev = endpoint.engine.evs[0]
    ev_states.on_lost(endpoint.engine, 10, 0, 0, 5)
    ev_states.on_acked(endpoint.engine, 0)
    ev_states.on_lost(endpoint.engine, 20, 0, 0, 15)
    assert ev.state == EvState.GOOD
    ev_states.on_lost(endpoint.engine, 30, 0, 0, 25)
    assert ev.state == EvState.ASSUMED_BAD


@pytest.mark.clause("ev-skip-restored")
def test_skipped_value_is_good_again_when_the_rotation_has_passed_it() -> None:
    endpoint = Endpoint(planes=1, evs=3, active=3)
    ev_states.transition(endpoint.engine, 0, 1, EvEvent.TRIMMED)
    skipped = endpoint.engine.evs[1]
    endpoint.write(5 * 256)
    rotation = [packet.entropy for packet in endpoint.all_sent()]
    assert skipped.state == EvState.GOOD
    assert sorted(rotation[:2]) == [0xC000, 0xC002], "the rotation passes over it"
    assert sorted(rotation[2:]) == [0xC000, 0xC001, 0xC002], "and uses it in the next"


@pytest.mark.clause("ev-resurrected")
def test_bad_value_is_good_again_when_its_probe_is_answered(story: tuple[Endpoint, Any, Any]) -> None:
    endpoint, packet, ev = story
    lose(endpoint, packet)
    asked = next(p for p in drained(endpoint) if p.opcode == Opcode.PROBE)
    assert asked.entropy == packet.entropy
    endpoint.receives(probe_answer(asked.probe_id, -1))
    assert ev.state == EvState.GOOD


@pytest.mark.clause("ev-probe-marked")
def test_bad_value_is_skipped_once_when_its_probe_comes_back_marked(story: tuple[Endpoint, Any, Any]) -> None:
    endpoint, packet, ev = story
    lose(endpoint, packet)
    asked = next(p for p in drained(endpoint) if p.opcode == Opcode.PROBE)
    endpoint.receives(probe_answer(asked.probe_id, -1, path_mark=PathMark.SKIP_ONCE))
    assert ev.state == EvState.SKIP


def test_bad_value_stays_bad_when_its_probe_says_always_skip(story: tuple[Endpoint, Any, Any]) -> None:
    endpoint, packet, ev = story
    lose(endpoint, packet)
    asked = next(p for p in drained(endpoint) if p.opcode == Opcode.PROBE)
    endpoint.receives(probe_answer(asked.probe_id, -1, path_mark=PathMark.ALWAYS_SKIP))
    assert ev.state == EvState.ASSUMED_BAD


@pytest.mark.clause("ev-min-active")
def test_the_value_that_failed_longest_ago_returns_when_too_few_are_left() -> None:
    endpoint = Endpoint(planes=1, evs=4, active=4, min_active=2)
    for at, ev in ((10, 3), (20, 1), (30, 0)):
        ev_states.transition(endpoint.engine, at, ev, EvEvent.LOST)
    bad, good = EvState.ASSUMED_BAD, EvState.GOOD
    assert [ev.state for ev in endpoint.engine.evs] == [bad, bad, good, good]
    summary = [(event.entropy & 0xF, event.state, event.cause) for event in endpoint.events()]
    assert summary == [
        (3, bad, EvEvent.LOST),
        (1, bad, EvEvent.LOST),
        (0, bad, EvEvent.LOST),
        (3, good, EvEvent.LEAST_BAD),
    ]


@pytest.mark.clause("ev-resurrected")
@pytest.mark.parametrize(("min_active", "answers"), [(2, 1), (1, 3)], ids=["short", "enough"])
def test_one_answer_restores_a_value_where_untried_ones_would_return(min_active: int, answers: int) -> None:
    settings = steady(probe_interval_us=100.0, probe_interval_max_us=100.0)
    endpoint = Endpoint(settings=settings, planes=1, evs=4, active=4, min_active=min_active)
    for ev in (0, 1):
        ev_states.transition(endpoint.engine, 0, ev, EvEvent.LOST)
    given = 0
    while endpoint.engine.evs[1].state == EvState.ASSUMED_BAD:
        asked = endpoint.sends(Opcode.PROBE)
        if asked.entropy == endpoint.engine.evs[1].value:
            endpoint.receives(probe_answer(asked.probe_id, -1))
            given += 1
    assert given == answers


@pytest.mark.clause("ev-denied")
def test_denied_value_never_returns_by_itself_however_few_are_left() -> None:
    endpoint = Endpoint(planes=1, evs=2, active=2, min_active=2)
    ev_states.transition(endpoint.engine, 0, 0, EvEvent.DENY)
    assert endpoint.engine.evs[0].state == EvState.DENIED
    endpoint.write(6 * 256)
    assert {packet.entropy & 0xF for packet in endpoint.all_sent()} == {1}
    endpoint.sends_nothing(until_us=900)
    ev_states.transition(endpoint.engine, 0, 0, EvEvent.ALLOW)
    assert endpoint.rotation() == {0xC000, 0xC001}


@pytest.mark.clause("ev-denied")
def test_denied_value_ignores_the_answer_to_an_earlier_probe(story: tuple[Endpoint, Any, Any]) -> None:
    endpoint, packet, ev = story
    lose(endpoint, packet)
    asked = next(p for p in drained(endpoint) if p.opcode == Opcode.PROBE)
    ev_states.transition(endpoint.engine, endpoint.now, endpoint.ev_row(packet.entropy), EvEvent.DENY)
    endpoint.receives(probe_answer(asked.probe_id, -1))
    assert ev.state == EvState.DENIED


def test_marks_for_a_value_that_is_skipped_already_say_nothing_new(story: tuple[Endpoint, Any, Any]) -> None:
    endpoint, packet, ev = story
    for _ in range(2):
        endpoint.receives(marked(packet, PathMark.SKIP_ONCE))
    assert ev.state == EvState.SKIP
    assert ev.marked == 2


def test_a_mark_names_its_value_even_when_the_packet_has_moved_to_another(story: tuple[Endpoint, Any, Any]) -> None:
    endpoint, packet, _ = story
    other = endpoint.engine.evs[(endpoint.ev_row(packet.entropy) + 1) % 16]
    endpoint.receives(marked(packet, PathMark.SKIP_ONCE) | {"reflected_entropy": other.value})
    assert other.state == EvState.SKIP


def drained(endpoint: Endpoint) -> list[Any]:
    """Everything sent until the first probe is due."""
    packets = endpoint.all_sent()
    endpoint.waits(endpoint.now / 1e6 + 150)
    return packets + endpoint.all_sent()


def test_responder_takes_data_from_ready_to_receive_on() -> None:
    for state, takes in ((QpState.INIT, False), (QpState.RTR, True), (QpState.RTS, True), (QpState.ERROR, False)):
        endpoint = in_state(state)
        endpoint.receives(data(0))
        assert endpoint.qp().received_packets == int(takes)
