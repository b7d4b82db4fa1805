"""One retry budget: linear, then exponential, then ERROR with the right status."""

from __future__ import annotations

from itertools import pairwise

import pytest

from openmrc.engine import lifecycle
from openmrc.engine.congestion import qpcc
from openmrc.engine.paths import ev_states
from openmrc.engine.state.machines import EvEvent, QpEvent, QpState
from openmrc.engine.state.queue_pairs import INFINITE_RETRIES
from openmrc.engine.state.tables import Cause, CompletionKind, EventKind, WcStatus
from openmrc.engine.user_timeout import LONGEST_PAUSE
from openmrc.units import PS_PER_S
from openmrc.wire.codes import NackReason, Opcode, Syndrome
from tests.engine.scripted_peer import MTU, QPN, Endpoint, ack, data, nack, sack, steady, us, write_imm

T = 1000.0  # us: the timeout of the diary's endpoint; 2 linear retries, 3 exponential


@pytest.mark.clause("timer-linear-exponential")
def test_timeouts_are_linear_then_exponential_then_the_end() -> None:
    endpoint = Endpoint(settings=steady(loss_threshold=100))
    endpoint.write()
    endpoint.sends(Opcode.WRITE_ONLY, at_us=0, retransmitted=0)
    for at in (1, 2, 3, 5, 9):
        endpoint.sends(Opcode.WRITE_ONLY, at_us=at * T, retransmitted=1)
    endpoint.sends_nothing(until_us=17 * T - 1)
    assert endpoint.qp().state == QpState.RTS
    endpoint.sends_nothing(until_us=17 * T)
    assert (endpoint.qp().state, endpoint.qp().cause) == (QpState.ERROR, Cause.USER_TIMEOUT)
    assert [c.status for c in endpoint.completions()] == [WcStatus.RETRY_EXC_ERR]
    assert endpoint.qp().timeouts == 5


@pytest.mark.clause("timer-linear-exponential")
def test_timeout_is_at_least_what_the_measured_round_trips_ask_for() -> None:
    endpoint = Endpoint()
    endpoint.peer().srtt, endpoint.peer().rttvar = round(2 * T) * 1_000_000, round(T / 4) * 1_000_000
    endpoint.write()
    endpoint.sends(Opcode.WRITE_ONLY, at_us=0, retransmitted=0)
    endpoint.sends_nothing(until_us=3 * T - 1)
    endpoint.sends(Opcode.WRITE_ONLY, at_us=3 * T, retransmitted=1)
    assert endpoint.qp().timeouts == 1


def silent_peer(timeouts: int = 4, **attributes: int) -> Endpoint:
    """Two queue pairs with one peer, a packet in flight on each; the peer takes so many timeouts to answer at all."""
    settings = steady(silent_timeouts=timeouts, loss_threshold=100)
    endpoint = Endpoint(settings=settings, peer_of=(0, 0), attributes=attributes)
    for qp in range(2):
        endpoint.write(qp=qp)
    assert len(endpoint.all_sent()) == 2
    return endpoint


@pytest.mark.clause("timer-silent-peer")
@pytest.mark.parametrize("timeouts", [2, 4])
def test_a_peer_that_is_kept_from_its_processor_causes_no_timeouts(timeouts: int) -> None:
    endpoint = silent_peer(timeouts)
    endpoint.sends_nothing(until_us=timeouts * T - 1)
    for qp in range(2):
        endpoint.receives(sack(0, dest_qpn=endpoint.qp(qp).qpn))
        endpoint.receives({**ack(1), "dest_qpn": endpoint.qp(qp).qpn})
    endpoint.sends_nothing(until_us=20 * T)
    assert [endpoint.qp(qp).timeouts for qp in range(2)] == [0, 0]
    assert len(endpoint.completions()) == 2


@pytest.mark.clause("timer-silent-peer")
def test_a_peer_that_stays_silent_is_given_up_after_as_many_attempts() -> None:
    endpoint = silent_peer()
    for at in (4, 8, 12, 16, 20):  # the last attempt, doubled three times, is longer by itself
        for _ in range(2):
            endpoint.sends(Opcode.WRITE_ONLY, at_us=at * T, retransmitted=1)
    endpoint.sends_nothing(until_us=28 * T)
    assert [endpoint.qp(qp).cause for qp in range(2)] == [Cause.USER_TIMEOUT] * 2


@pytest.mark.clause("timer-silent-peer")
def test_a_long_timeout_gives_a_silent_peer_no_longer_pause() -> None:
    endpoint = silent_peer(timeout=PS_PER_S, linear_count=2, exponential_count=0)
    each = us(1e6) + LONGEST_PAUSE
    for attempt in (1, 2):
        for _ in range(2):
            endpoint.sends(Opcode.WRITE_ONLY, at_us=attempt * each / us(1), retransmitted=1)
    endpoint.sends_nothing(until_us=3 * each / us(1) - 1)
    assert endpoint.qp().state == QpState.RTS
    endpoint.sends_nothing(until_us=3 * each / us(1))
    assert [endpoint.qp(qp).cause for qp in range(2)] == [Cause.USER_TIMEOUT] * 2


@pytest.mark.clause("timer-silent-peer")
def test_an_answer_to_another_queue_pair_shows_that_a_packet_is_missing() -> None:
    endpoint = silent_peer()
    endpoint.waits(until_us=T / 2)
    endpoint.write(qp=1)
    endpoint.sends(at_us=T / 2)
    endpoint.receives(sack(1, dest_qpn=endpoint.qp(1).qpn), at_us=0.6 * T)
    endpoint.sends(Opcode.WRITE_ONLY, at_us=T, retransmitted=1)
    assert [endpoint.qp(qp).timeouts for qp in range(2)] == [1, 0]


@pytest.mark.clause("timer-silent-peer")
def test_answers_after_a_silence_come_one_after_the_other() -> None:
    endpoint = silent_peer()
    delay = qpcc.loss_delay(endpoint.engine, 0) / us(1)
    endpoint.waits(until_us=0.99 * T)
    endpoint.write(qp=1)
    endpoint.sends(at_us=0.99 * T)
    endpoint.receives(sack(1, dest_qpn=endpoint.qp(1).qpn), at_us=T - 1)
    endpoint.sends_nothing(until_us=T - 2 + delay)
    endpoint.sends(Opcode.WRITE_ONLY, at_us=T - 1 + delay, retransmitted=1)


@pytest.mark.clause("timer-linear-exponential")
def test_infinite_retries_go_on_at_the_longest_timeout() -> None:
    attributes = {"exponential_count": INFINITE_RETRIES, "linear_count": 0, "timeout": 10**12}
    endpoint = Endpoint(settings=steady(loss_threshold=100), attributes=attributes)
    endpoint.write()
    endpoint.sends()
    times = []
    for _ in range(12):
        endpoint.sends(retransmitted=1)
        times.append(endpoint.now)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[-1] == gaps[-2] == 17_179_869_184_000
    assert endpoint.qp().state == QpState.RTS


@pytest.mark.clause("retry-budget")
def test_packets_of_one_attempt_that_time_out_one_after_the_other_are_one_failure() -> None:
    endpoint = Endpoint(settings=steady(loss_threshold=100))
    for number in range(8):
        endpoint.waits(until_us=number * T / 10)
        endpoint.write()
        endpoint.sends(at_us=number * T / 10)
    for number in range(8):
        endpoint.sends(retransmitted=1, at_us=T + number * T / 10)
    assert endpoint.qp().retries == endpoint.qp().timeouts == 1
    endpoint.sends(retransmitted=1, at_us=2 * T)
    assert endpoint.qp().retries == 2


@pytest.mark.clause("retry-budget")
def test_refusals_and_timeouts_are_failures_of_attempts_alike() -> None:
    endpoint = Endpoint()
    endpoint.write()
    endpoint.sends()
    for failed in range(1, 6):
        if failed % 2:
            endpoint.receives(nack(0, NackReason.NO_RESOURCE))
        endpoint.sends(retransmitted=1)
        assert endpoint.qp().retries == failed


@pytest.mark.clause("retry-budget")
@pytest.mark.parametrize("reason", [NackReason.TRIMMED, NackReason.TRIMMED_LASTHOP], ids=["trimmed", "last-hop"])
def test_trims_spend_nothing(reason: NackReason) -> None:
    endpoint = Endpoint()
    endpoint.write()
    for _ in range(20):
        packet = endpoint.sends()
        endpoint.receives(nack(0, reason, packet.entropy))
    assert endpoint.qp().retries == 0


@pytest.mark.clause("retry-budget")
def test_progress_ends_the_back_off_of_what_is_in_flight() -> None:
    endpoint = Endpoint(settings=steady(loss_threshold=100))
    endpoint.write(2 * MTU)
    endpoint.all_sent()
    endpoint.waits(until_us=10 * T)  # the next timeout would be at 17 T
    endpoint.all_sent()
    endpoint.receives(sack(0))
    assert endpoint.qp().retries == 0
    endpoint.sends(psn=1, retransmitted=1, at_us=11 * T)


@pytest.mark.clause("timer-restart")
def test_retransmitted_packet_has_its_time_from_when_it_left() -> None:
    endpoint = Endpoint()
    endpoint.write(2 * MTU)
    endpoint.all_sent()
    endpoint.receives(nack(1, NackReason.TRIMMED_LASTHOP), at_us=600)
    endpoint.sends(psn=1, retransmitted=1, at_us=600)
    endpoint.sends(psn=0, retransmitted=1, at_us=1000)
    endpoint.sends_nothing(until_us=1599)
    endpoint.sends(psn=1, retransmitted=1, at_us=1600)


# Why a queue pair is in ERROR, and what its oldest request says then

REMOTE = [
    (Syndrome.INVALID_REQUEST, Cause.REMOTE_INVALID_REQUEST, WcStatus.REM_INV_REQ_ERR),
    (Syndrome.REMOTE_ACCESS_ERROR, Cause.REMOTE_ACCESS, WcStatus.REM_ACCESS_ERR),
    (Syndrome.REMOTE_OPERATIONAL_ERROR, Cause.REMOTE_OPERATIONAL, WcStatus.REM_OP_ERR),
]


@pytest.mark.clause("error-status")
@pytest.mark.parametrize(("syndrome", "cause", "status"), REMOTE, ids=[cause.name for _, cause, _ in REMOTE])
def test_refusal_ends_the_connection_with_its_status(syndrome: Syndrome, cause: Cause, status: WcStatus) -> None:
    endpoint = Endpoint()
    for wr_id in range(3):
        endpoint.write(wr_id=wr_id)
    endpoint.all_sent()
    endpoint.receives(ack(1, syndrome))
    assert (endpoint.qp().state, endpoint.qp().cause) == (QpState.ERROR, cause)
    summary = [(c.wr_id, c.status) for c in endpoint.completions()]
    assert summary == [(0, WcStatus.SUCCESS), (1, status), (2, WcStatus.WR_FLUSH_ERR)]


@pytest.mark.clause("error-status")
def test_unexpected_event_at_the_responder_is_a_remote_operation_error() -> None:
    endpoint = Endpoint()
    endpoint.write()
    endpoint.all_sent()
    endpoint.receives(nack(0, NackReason.UNEXP_EVENT))
    assert endpoint.qp().cause == Cause.UNEXPECTED_EVENT
    assert [c.status for c in endpoint.completions()] == [WcStatus.REM_OP_ERR]
    endpoint.sends_nothing(until_us=100_000)


def end_here(endpoint: Endpoint, cause: Cause) -> None:
    """Bring this side to ERROR by what the peer, or the user, does."""
    match cause:
        case Cause.WIMM_OVERFLOW:
            endpoint.receives(write_imm(0, 9))
        case Cause.NO_RECEIVE:
            endpoint.receives(write_imm(0, 0))
        case Cause.ACCESS_VIOLATION:
            endpoint.receives(data(0, r_key=1))
        case _:
            assert lifecycle.move(endpoint.engine, endpoint.now, 0, QpEvent.FAIL) == 1


@pytest.mark.clause("error-flush")
@pytest.mark.parametrize(
    "cause",
    [Cause.WIMM_OVERFLOW, Cause.NO_RECEIVE, Cause.ACCESS_VIOLATION, Cause.LOCAL],
    ids=lambda cause: cause.name,
)
def test_own_requests_are_flushed_when_the_failure_is_not_theirs(cause: Cause) -> None:
    endpoint = Endpoint()
    endpoint.write(wr_id=1)
    endpoint.all_sent()
    end_here(endpoint, cause)
    assert endpoint.qp().cause == cause
    assert [(c.wr_id, c.status) for c in endpoint.completions()] == [(1, WcStatus.WR_FLUSH_ERR)]
    assert [event.state for event in endpoint.events() if event.kind == EventKind.QP_ERROR] == [cause]
    assert endpoint.qp().inflight == endpoint.peer().inflight == 0


@pytest.mark.clause("error-flush")
def test_everything_posted_is_flushed_on_error_and_so_is_what_is_posted_later() -> None:
    from openmrc.engine import endpoint as doors

    endpoint = Endpoint()
    for wr_id in range(2):
        endpoint.write(wr_id=wr_id)
        doors.post_receive(endpoint.engine, 0, 10 + wr_id)
    assert lifecycle.move(endpoint.engine, 0, 0, QpEvent.FAIL) == 1
    endpoint.write(wr_id=2)
    doors.post_receive(endpoint.engine, 0, 12)
    summary = [(c.kind, c.wr_id, c.status) for c in endpoint.completions()]
    flushed = WcStatus.WR_FLUSH_ERR
    assert summary == [
        *((CompletionKind.SEND, wr_id, flushed) for wr_id in range(2)),
        *((CompletionKind.RECEIVE, 10 + wr_id, flushed) for wr_id in range(2)),
        (CompletionKind.SEND, 2, flushed),
        (CompletionKind.RECEIVE, 12, flushed),
    ]
    endpoint.sends_nothing(until_us=100_000)


@pytest.mark.clause("error-flush")
def test_reports_that_wait_when_the_connection_fails_are_not_sent() -> None:
    endpoint = Endpoint()
    endpoint.receives(data(0, marked=1))
    endpoint.receives(data(1, trimmed=1))
    end_here(endpoint, Cause.LOCAL)
    assert {packet.opcode for packet in endpoint.all_sent()} <= {Opcode.ACKNOWLEDGE}


@pytest.mark.clause("reset-number")
def test_reset_gives_a_new_number_and_stale_packets_miss() -> None:
    endpoint = Endpoint()
    endpoint.write()
    endpoint.all_sent()
    assert lifecycle.move(endpoint.engine, 0, 0, QpEvent.TO_RESET) == 1
    assert endpoint.completions() == []
    endpoint.connect(0)
    renewed = endpoint.qp().qpn
    assert renewed == QPN + endpoint.node().qpn_slot_mask + 1
    endpoint.receives(data(0))
    endpoint.receives(sack(0))
    assert endpoint.node().unknown_qp == 2
    endpoint.receives(data(0, dest_qpn=renewed))
    assert endpoint.qp().received_packets == 1
    assert endpoint.peer().inflight == 0


def test_reset_forgets_the_answers_that_were_waiting() -> None:
    endpoint = Endpoint()
    endpoint.receives(data(0, trimmed=1))
    assert lifecycle.move(endpoint.engine, 0, 0, QpEvent.TO_RESET) == 1
    endpoint.sends_nothing()
    endpoint.connect(0)
    endpoint.sends_nothing()


def test_connection_works_again_after_error_and_reset() -> None:
    endpoint = Endpoint()
    for event in (QpEvent.FAIL, QpEvent.TO_RESET):
        assert lifecycle.move(endpoint.engine, 0, 0, event) == 1
    endpoint.connect(0)
    endpoint.write(3 * MTU)
    assert [packet.psn for packet in endpoint.all_sent()] == [0, 1, 2]
    endpoint.receives(ack(1) | {"dest_qpn": endpoint.qp().qpn})
    assert [c.status for c in endpoint.completions()][-1] == WcStatus.SUCCESS


def test_write_posted_while_no_port_works_fails_by_the_retry_budget() -> None:
    endpoint = Endpoint(planes=2)
    for port in range(2):
        endpoint.set_port(port, 0)
    endpoint.write(wr_id=7)
    endpoint.waits(1e6)
    assert [(done.wr_id, done.status) for done in endpoint.completions()] == [(7, WcStatus.RETRY_EXC_ERR)]
    assert endpoint.qp().cause == Cause.USER_TIMEOUT


def test_write_posted_while_no_port_works_leaves_when_one_is_back_in_time() -> None:
    endpoint = Endpoint(planes=2)
    for port in range(2):
        endpoint.set_port(port, 0)
    endpoint.write()
    endpoint.waits(16 * T)
    assert endpoint.qp().retries == 0  # nothing has left that could have failed
    endpoint.set_port(1, 1)
    endpoint.sends(Opcode.WRITE_ONLY, port=1)
    endpoint.receives(sack(0))
    endpoint.receives(ack(1))
    endpoint.waits(1e6)
    assert [done.status for done in endpoint.completions()] == [WcStatus.SUCCESS]
    assert endpoint.qp().retries == 0


def _one_path(endpoint: Endpoint, kept: int) -> None:
    for ev in range(len(endpoint.engine.evs)):
        if ev != kept:
            ev_states.transition(endpoint.engine, 0, ev, EvEvent.DENY)


@pytest.mark.parametrize("posted_first", [True, False])
def test_write_whose_only_path_is_on_a_dead_port_fails_by_the_retry_budget(posted_first: bool) -> None:
    endpoint = Endpoint(planes=2, evs=1, active=1)
    _one_path(endpoint, kept=0)
    if posted_first:
        endpoint.write(wr_id=7)
        endpoint.sends(Opcode.WRITE_ONLY, port=0)
    endpoint.set_port(0, 0)
    if not posted_first:
        endpoint.write(wr_id=7)
    endpoint.waits(1e6)
    assert [(done.wr_id, done.status) for done in endpoint.completions()] == [(7, WcStatus.RETRY_EXC_ERR)]


def test_write_that_waits_for_its_turn_spends_no_retry() -> None:
    endpoint = Endpoint()
    endpoint.write()
    endpoint.waits(10 * T)
    assert endpoint.qp().retries == endpoint.qp().timeouts == 0
