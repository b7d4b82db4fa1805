"""What SACKs, NACKs and transport ACKs change at the requester: what is settled, in flight, measured, malformed."""

from __future__ import annotations

import pytest

from openmrc.core.rows import column
from openmrc.engine.congestion.qpcc import loss_delay
from openmrc.engine.state.machines import EvState
from openmrc.engine.state.queue_pairs import nominal_size
from openmrc.units import PS_PER_US
from openmrc.wire.codes import NackReason, Opcode
from tests.engine.scripted_peer import (
    MTU,
    Endpoint,
    ack,
    confirm,
    nack,
    psns,
    sack,
)


def test_count_of_messages_that_were_never_sent_is_malformed() -> None:
    endpoint = Endpoint()
    endpoint.write()
    endpoint.all_sent()
    endpoint.receives(ack(2))
    endpoint.receives(sack(5))
    assert endpoint.qp().malformed == 2
    assert endpoint.completions() == []


@pytest.mark.clause("retransmission")
def test_packet_that_is_refused_twice_waits_once() -> None:
    endpoint = Endpoint()
    endpoint.write(3 * MTU)
    endpoint.all_sent()
    for _ in range(2):
        endpoint.receives(nack(1, NackReason.NO_RESOURCE))
    assert (endpoint.qp().lost_count, endpoint.qp().retries) == (1, 1)
    assert psns(endpoint.all_sent()) == [1]
    endpoint.receives(sack(2))
    endpoint.receives(nack(1, NackReason.NO_RESOURCE))
    endpoint.sends_nothing()


@pytest.mark.clause("retransmission")
def test_packet_that_left_less_than_a_round_trip_ago_cannot_have_been_refused_again() -> None:
    endpoint = Endpoint()  # a round trip of 12 us
    endpoint.write(3 * MTU)
    endpoint.all_sent()
    endpoint.receives(sack(0), at_us=12)
    sent = []
    for at_us in range(12, 22):
        endpoint.receives(nack(1, NackReason.TRIMMED), at_us=at_us)
        sent += psns(endpoint.all_sent())
    assert sent == [1]
    endpoint.receives(nack(1, NackReason.TRIMMED), at_us=24)
    assert psns(endpoint.all_sent()) == [1]


@pytest.mark.clause("ev-resurrected")
@pytest.mark.parametrize(
    ("round_trip_us", "copy", "spurious"), [(10, 0, 1), (10, 1, 0), (12, 0, 0)], ids=["sooner", "to the copy", "later"]
)
def test_retransmission_is_in_vain_if_the_answer_comes_sooner_than_any_before(
    round_trip_us: float, copy: int, spurious: int
) -> None:
    endpoint = Endpoint(attributes={"timeout": 10**12})
    before = [endpoint.rotation(rotation) for rotation in range(4)]
    endpoint.write(4 * MTU)
    first = endpoint.all_sent()[1]
    endpoint.receives(sack(0, (2, 3)), at_us=12)
    confirm(endpoint, 0, (2, 3))
    again = endpoint.sends(psn=1, retransmitted=1)
    assert endpoint.evs_in_state(EvState.ASSUMED_BAD) == [first.entropy]
    answer = sack(3, ack_psn_offset=-2 * copy, retransmitted=copy)
    endpoint.receives(answer, at_us=endpoint.now / PS_PER_US + round_trip_us)
    assert endpoint.qp().spurious == spurious
    assert endpoint.ev(again.entropy).acked == 1 - spurious, "the path of the first copy delivered, not this one"
    assert ([endpoint.rotation(rotation) for rotation in range(4)] == before) == bool(spurious), "and stays in use"


def test_in_flight_is_whole_after_packets_that_were_declared_lost_arrive_all_the_same() -> None:
    endpoint = Endpoint(attributes={"timeout": 10**12})
    size = nominal_size(MTU)
    endpoint.write(12 * MTU)
    endpoint.all_sent()
    endpoint.waits(30)
    endpoint.write(3 * MTU)
    endpoint.all_sent()
    endpoint.receives(sack(-1, tuple(range(1, 12)), rcvd_bytes=-(-11 * size // 256)), at_us=40)
    endpoint.waits(60)
    assert endpoint.qp().lost_count == 1, "packet 0 is declared lost, and its bytes are given back"
    assert abs(endpoint.qp().inflight - 3 * size) < 256
    endpoint.receives(sack(11, rcvd_bytes=-(-12 * size // 256)))
    assert endpoint.qp().spurious == 0, "nothing was sent again"
    assert sum(column(endpoint.engine.ports, "false_losses")) == 1
    assert [sum(column(endpoint.engine.ev_failures, name)) for name in ("lost", "false_losses")] == [1, 1]
    assert endpoint.evs_in_state(EvState.ASSUMED_BAD) == []
    assert abs(endpoint.qp().inflight - 3 * size) < 256, "and not a second time when it comes"
    assert endpoint.peer().inflight == endpoint.qp().inflight


def test_what_a_sack_rounds_up_is_owed_by_the_next_packets() -> None:
    endpoint = Endpoint(attributes={"timeout": 10**12})
    size = nominal_size(MTU)
    for count in range(1, 40):
        endpoint.write(MTU)
        endpoint.all_sent()
        endpoint.write(MTU)
        endpoint.all_sent()
        endpoint.receives(sack(2 * count - 2, rcvd_bytes=-(-(2 * count - 1) * size // 256)))
        assert size - 256 < endpoint.qp().inflight <= size, "one packet, never a residue on top"
        endpoint.receives(sack(2 * count - 1, rcvd_bytes=-(-2 * count * size // 256)))
        assert -256 < endpoint.qp().inflight <= 0 == endpoint.peer().inflight, "and none of the shared window"


def test_count_of_received_bytes_that_leaps_opens_no_window() -> None:
    endpoint = Endpoint(attributes={"timeout": 10**12})
    endpoint.write(4 * MTU)
    endpoint.all_sent()
    endpoint.receives(sack(0, rcvd_bytes=1 << 22))
    assert endpoint.qp().inflight == -256


@pytest.mark.clause("loss-delay-timestamps")
def test_an_answer_that_is_faster_than_usual_does_not_make_the_sender_more_patient() -> None:
    endpoint = Endpoint(attributes={"timeout": 10**12})
    at_us = 0.0
    for psn, took_us in enumerate([200.0] * 40 + [20.0] * 2):
        endpoint.waits(at_us)
        endpoint.write(MTU)
        sent = endpoint.sends(Opcode.WRITE_ONLY)
        at_us += took_us
        endpoint.receives(sack(psn, tx_timestamp=sent.tx_timestamp), at_us=at_us)
        if psn == 39:
            before = loss_delay(endpoint.engine, 0)
    assert loss_delay(endpoint.engine, 0) < before


@pytest.mark.clause("loss-delay-timestamps")
def test_round_trip_is_measured_only_where_it_is_known_which_copy_arrived() -> None:
    endpoint = Endpoint()
    endpoint.write(3 * MTU)
    endpoint.all_sent()
    endpoint.receives(nack(1, NackReason.TRIMMED_LASTHOP), at_us=1)
    stamp = endpoint.all_sent()[0].tx_timestamp
    endpoint.receives(sack(-1, (1,), retransmitted=0, tx_timestamp=stamp), at_us=15)
    assert endpoint.peer().srtt == 0, "sent twice, and the answer does not say to which"
    endpoint.receives(sack(-1, (1,), retransmitted=1, tx_timestamp=stamp + 9), at_us=16)
    assert endpoint.peer().srtt == 0, "the time of another packet, which asked for the report"
    endpoint.receives(sack(-1, (1,), retransmitted=1, tx_timestamp=stamp), at_us=16)
    assert endpoint.peer().srtt > 0
    late = Endpoint()
    late.write(MTU)
    stamp = late.all_sent()[0].tx_timestamp
    late.receives(sack(0, tx_timestamp=stamp + 9), at_us=16)
    late.receives(sack(0, tx_timestamp=stamp), at_us=5000)
    assert late.peer().srtt == 0, "not the first answer for the packet, and older than half the stamp's range"


@pytest.mark.clause("dynamic-mpr")
def test_sack_that_was_overtaken_does_not_change_the_window() -> None:
    endpoint = Endpoint(attributes={"mpr_dest": 2, "dynamic_mpr": 1})
    endpoint.write(600 * MTU)
    endpoint.all_sent()
    endpoint.receives(sack(9, mpr=1))
    endpoint.receives(sack(5, mpr=8))
    assert endpoint.qp().mpr_dest == 1


@pytest.mark.clause("dynamic-mpr")
def test_window_in_a_sack_means_nothing_when_it_was_not_agreed_or_is_zero() -> None:
    for agreed, summary in ((0, 1), (1, 0)):
        endpoint = Endpoint(attributes={"mpr_dest": 2, "dynamic_mpr": agreed})
        endpoint.write(300 * MTU)
        endpoint.all_sent()
        endpoint.receives(sack(99, mpr=summary))
        assert len(endpoint.all_sent()) == 44
