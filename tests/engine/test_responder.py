"""What the responder does with each arriving write: acceptance, placement, refusal, order of immediates."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.engine import endpoint as doors
from openmrc.engine.messages import PostStatus
from openmrc.engine.responder import regions
from openmrc.engine.state.machines import QpState
from openmrc.engine.state.tables import Cause, CompletionKind, WcStatus
from openmrc.wire.codes import NackReason, Opcode, Syndrome, TrafficClass, Trim
from tests.draws import examples
from tests.engine.scripted_peer import (
    MTU,
    R_KEY,
    REGION_LENGTH,
    REGION_LOCAL,
    REGION_VA,
    Endpoint,
    ack,
    data,
    is_placed,
    only,
    steady,
    write_imm,
)

WINDOW = 8 * 128  # PSNs


@pytest.mark.clause("psn-new")
def test_new_packet_is_placed_in_any_order() -> None:
    endpoint = Endpoint()
    for psn in (3, 0, 2, 1):
        assert endpoint.receives(data(psn)) == REGION_LOCAL + psn * MTU
    assert endpoint.qp().expected_psn == 4
    assert endpoint.qp().ooo_count == 0


@pytest.mark.clause("psn-window")
def test_window_ends_mpr_times_128_packets_after_the_left_edge() -> None:
    endpoint = Endpoint()
    assert is_placed(endpoint.receives(data(WINDOW - 1)))
    assert not is_placed(endpoint.receives(data(WINDOW)))
    assert endpoint.qp().out_of_window == 1
    endpoint.receives(data(0))
    assert is_placed(endpoint.receives(data(WINDOW)))


@pytest.mark.clause("psn-out-of-window")
def test_packet_beyond_the_window_is_dropped_silently() -> None:
    endpoint = Endpoint()
    endpoint.receives(data(WINDOW))
    endpoint.receives(data(1 << 22))
    endpoint.sends_nothing()


@pytest.mark.clause("psn-out-of-window")
def test_packet_beyond_the_window_is_refused_when_the_deployment_says_so() -> None:
    endpoint = Endpoint(settings=steady(refuse_out_of_window=True))
    endpoint.receives(data(WINDOW, entropy=0xE123))
    endpoint.sends(
        Opcode.NACK, nack_reason=NackReason.PSN_OOR_WINDOW, nack_psn=WINDOW, reflected_entropy=0xE123, tx_timestamp=77
    )


@pytest.mark.clause("psn-old")
def test_duplicate_behind_the_left_edge_gets_a_sack_and_an_ack_and_is_not_written() -> None:
    endpoint = Endpoint()
    endpoint.receives(data(0))
    endpoint.all_sent()
    assert not is_placed(endpoint.receives(data(0)))
    endpoint.sends(Opcode.SACK, cack_psn=0, ack_psn_offset=0)
    endpoint.sends(Opcode.ACKNOWLEDGE, syndrome=Syndrome.ACK, acked_messages=1)
    endpoint.sends_nothing()
    assert endpoint.qp().duplicates == 1


@pytest.mark.clause("psn-duplicate-ahead")
def test_duplicate_beyond_the_left_edge_gets_a_sack_only() -> None:
    endpoint = Endpoint()
    endpoint.receives(data(0))
    endpoint.receives(data(5))
    endpoint.all_sent()
    assert not is_placed(endpoint.receives(data(5)))
    endpoint.sends(Opcode.SACK, cack_psn=0, ack_psn_offset=5)
    endpoint.sends_nothing()


@pytest.mark.clause("psn-old")
@pytest.mark.parametrize(("behind", "answered"), [((1 << 23) - 1, True), (1 << 23, False)])
def test_half_the_ring_behind_the_left_edge_is_old_and_no_more(behind: int, answered: bool) -> None:
    endpoint = Endpoint(expected_psn=1 << 23)
    endpoint.receives(data((1 << 23) - behind))
    assert len(endpoint.all_sent()) == (2 if answered else 0)
    assert endpoint.qp().out_of_window == int(not answered)


@pytest.mark.clause("psn-wrap")
def test_packet_numbers_wrap() -> None:
    endpoint = Endpoint(expected_psn=0xFFFFFE)
    for psn in (0xFFFFFE, 0xFFFFFF, 0, 1):
        assert is_placed(endpoint.receives(data(psn)))
    reported = only(endpoint.all_sent(), Opcode.SACK)
    assert reported[0].cack_psn == 1
    endpoint.receives(data(0xFFFFFF))
    assert endpoint.qp().duplicates == 1


@pytest.mark.clause("wimm-numbers")
def test_message_numbers_of_immediates_wrap() -> None:
    endpoint = Endpoint()
    endpoint.qp().expected_rqmsn = 0xFFFF
    for wr_id in range(2):
        doors.post_receive(endpoint.engine, 0, wr_id)
    endpoint.receives(write_imm(1, 0x10000, immediate=22))
    endpoint.receives(write_imm(0, 0xFFFF, immediate=11))
    assert [done.immediate for done in endpoint.completions()] == [11, 22]


@pytest.mark.clause("trim-nack")
@pytest.mark.parametrize(
    ("trim", "reason"),
    [(Trim.TRIMMED, NackReason.TRIMMED), (Trim.TRIMMED_LASTHOP, NackReason.TRIMMED_LASTHOP)],
    ids=["trimmed", "last-hop"],
)
def test_trimmed_packet_is_refused_with_where_it_was_trimmed(trim: Trim, reason: NackReason) -> None:
    endpoint = Endpoint()
    endpoint.receives(data(0))
    endpoint.all_sent()
    assert not is_placed(endpoint.receives(data(1, trimmed=trim, entropy=0xE055)))
    endpoint.sends(Opcode.NACK, nack_reason=reason, nack_psn=1, reflected_entropy=0xE055)
    assert endpoint.qp().expected_psn == 1
    assert endpoint.qp().trimmed_arrivals == 1
    assert is_placed(endpoint.receives(data(1, retransmitted=1)))


@pytest.mark.clause("trim-duplicate")
@pytest.mark.parametrize("held", [0, 5], ids=["behind", "ahead"])
def test_trimmed_duplicate_is_answered_by_a_sack(held: int) -> None:
    endpoint = Endpoint()
    endpoint.receives(data(held))
    endpoint.all_sent()
    endpoint.receives(data(held, trimmed=Trim.TRIMMED))
    answers = endpoint.all_sent()
    assert len(only(answers, Opcode.SACK)) == 1
    assert not only(answers, Opcode.NACK)


# Access

OUTSIDE: list[tuple[str, dict[str, Any]]] = [
    ("before the region", {"va": REGION_VA - 1}),
    ("across its end", {"va": REGION_VA + REGION_LENGTH - MTU + 1}),
    ("beyond its end", {"va": REGION_VA + REGION_LENGTH}),
    ("far away", {"va": (1 << 62)}),
    ("at a negative address", {"va": -(1 << 62)}),
    ("with a wrong key", {"r_key": R_KEY + 1}),
    ("with the key zero", {"r_key": 0}),
]


@pytest.mark.clause("access-checked")
@pytest.mark.parametrize("fields", [fields for _, fields in OUTSIDE], ids=[name for name, _ in OUTSIDE])
def test_write_outside_what_the_peer_may_write_is_refused_and_nothing_is_written(fields: dict[str, Any]) -> None:
    endpoint = Endpoint()
    assert not is_placed(endpoint.receives(data(0, **fields)))
    assert_refused(endpoint, Syndrome.REMOTE_ACCESS_ERROR, Cause.ACCESS_VIOLATION)


@pytest.mark.clause("access-checked")
@pytest.mark.parametrize("fields", [{"pd": 2}, {"access": regions.Access.LOCAL_WRITE}], ids=["domain", "rights"])
def test_write_by_a_queue_pair_without_the_right_is_refused(fields: dict[str, int]) -> None:
    endpoint = Endpoint(attributes=fields)
    assert not is_placed(endpoint.receives(data(0)))
    assert_refused(endpoint, Syndrome.REMOTE_ACCESS_ERROR, Cause.ACCESS_VIOLATION)


@pytest.mark.clause("access-checked")
def test_write_to_a_region_without_the_right_or_after_its_end_is_refused() -> None:
    for change in ("rights", "end"):
        endpoint = Endpoint()
        if change == "rights":
            endpoint.engine.regions[R_KEY % 4].access = regions.Access.LOCAL_WRITE
        else:
            assert regions.deregister(endpoint.engine, 0, R_KEY) >= 0
        assert not is_placed(endpoint.receives(data(0)))
        assert_refused(endpoint, Syndrome.REMOTE_ACCESS_ERROR, Cause.ACCESS_VIOLATION)


@pytest.mark.clause("access-checked")
def test_last_byte_of_the_region_may_be_written_and_an_empty_write_needs_no_region() -> None:
    endpoint = Endpoint()
    end = REGION_LENGTH - MTU
    assert endpoint.receives(data(0, va=REGION_VA + end)) == REGION_LOCAL + end
    endpoint.receives(data(1, payload_length=0, dma_length=0, va=1, r_key=0))
    assert endpoint.qp().state == QpState.RTS


@pytest.mark.clause("length-checked")
@pytest.mark.parametrize("fields", [{"payload_length": MTU + 1}, {"dma_length": MTU - 1}], ids=["mtu", "message"])
def test_payload_longer_than_packet_or_message_may_be_is_an_invalid_request(fields: dict[str, int]) -> None:
    endpoint = Endpoint()
    assert not is_placed(endpoint.receives(data(0, **fields)))
    assert_refused(endpoint, Syndrome.INVALID_REQUEST, Cause.ACCESS_VIOLATION)


def assert_refused(endpoint: Endpoint, syndrome: Syndrome, cause: Cause) -> None:
    endpoint.sends(Opcode.ACKNOWLEDGE, syndrome=syndrome, acked_messages=0)
    endpoint.sends_nothing()
    assert (endpoint.qp().state, endpoint.qp().cause) == (QpState.ERROR, cause)
    endpoint.receives(data(1))
    endpoint.sends(Opcode.ACKNOWLEDGE, syndrome=syndrome)  # the refusal may have been lost


# WriteIMM


@pytest.mark.clause("wimm-order")
def test_immediates_complete_in_order_while_their_data_lands_in_any_order() -> None:
    endpoint = Endpoint()
    for wr_id in range(3):
        doors.post_receive(endpoint.engine, 0, 70 + wr_id)
    for psn in (2, 1):
        assert is_placed(endpoint.receives(write_imm(psn, psn, immediate=500 + psn)))
    assert endpoint.completions() == []
    endpoint.receives(write_imm(0, 0, immediate=500, solicited=1))
    done = endpoint.completions()
    assert [(c.kind, c.wr_id, c.immediate, c.length) for c in done] == [
        (CompletionKind.RECEIVE, 70 + n, 500 + n, MTU) for n in range(3)
    ]
    assert [c.solicited for c in done] == [1, 0, 0]


@pytest.mark.clause("wimm-order")
def test_immediate_waits_for_earlier_plain_writes_too() -> None:
    endpoint = Endpoint()
    doors.post_receive(endpoint.engine, 0, 1)
    endpoint.receives(write_imm(1, 0))
    assert endpoint.completions() == []
    endpoint.receives(data(0))
    assert len(endpoint.completions()) == 1


@pytest.mark.clause("wimm-overflow")
@pytest.mark.parametrize("rqmsn", [4, 5, -1], ids=["limit", "beyond", "used"])
def test_more_immediates_in_flight_than_advertised_is_an_invalid_request(rqmsn: int) -> None:
    endpoint = Endpoint()
    endpoint.receives(write_imm(9, rqmsn))
    assert_refused(endpoint, Syndrome.INVALID_REQUEST, Cause.WIMM_OVERFLOW)


def test_two_packets_that_claim_one_immediate_are_an_invalid_request() -> None:
    endpoint = Endpoint()
    endpoint.receives(write_imm(2, 1))
    endpoint.receives(write_imm(3, 1))
    answers = only(endpoint.all_sent(), Opcode.ACKNOWLEDGE)
    assert [answer.syndrome for answer in answers] == [Syndrome.INVALID_REQUEST]


LIES = [
    *(
        (opcode, MTU, claimed)
        for opcode in (Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM)
        for claimed in (0, 8, 0xFFFFFFFF)
    ),
    *((opcode, MTU - 1, MTU) for opcode in (Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM)),
    *((opcode, 0, 1) for opcode in (Opcode.WRITE_ONLY, Opcode.WRITE_ONLY_IMM)),
    *((opcode, MTU, MTU) for opcode in (Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE)),
    *((opcode, MTU - 1, 3 * MTU) for opcode in (Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE)),
    *((opcode, 8, 8) for opcode in (Opcode.WRITE_LAST, Opcode.WRITE_LAST_IMM)),
    *((opcode, 8, 2 * MTU) for opcode in (Opcode.WRITE_LAST, Opcode.WRITE_LAST_IMM)),
    *((opcode, 8, 0xFFFFFFFF) for opcode in (Opcode.WRITE_LAST, Opcode.WRITE_LAST_IMM)),
]


@pytest.mark.parametrize(("opcode", "sent", "claimed"), LIES)
def test_a_packet_that_is_not_as_long_as_its_message_says_is_an_invalid_request(
    opcode: Opcode, sent: int, claimed: int
) -> None:
    endpoint = Endpoint()
    doors.post_receive(endpoint.engine, 0, 1)
    refused = write_imm(0, 0, opcode=opcode, payload_length=sent, dma_length=claimed)
    assert not is_placed(endpoint.receives(refused))
    assert [c.length for c in endpoint.completions() if c.status == WcStatus.SUCCESS] == []
    assert_refused(endpoint, Syndrome.INVALID_REQUEST, Cause.ACCESS_VIOLATION)


@pytest.mark.parametrize("packets", [2, 3, 5])
def test_a_message_with_more_or_fewer_packets_than_its_length_says_is_an_invalid_request(packets: int) -> None:
    for said in (2, 3, 5):
        endpoint = Endpoint()
        doors.post_receive(endpoint.engine, 0, 1)
        length = (said - 1) * MTU + 8
        for psn in range(packets - 1):
            opcode = Opcode.WRITE_MIDDLE if psn else Opcode.WRITE_FIRST
            endpoint.receives(data(psn, opcode=opcode, dma_length=length))
        last = {"opcode": Opcode.WRITE_LAST_IMM, "payload_length": 8, "dma_length": length}
        endpoint.receives(write_imm(packets - 1, 0, **last))
        arrived = [c.length for c in endpoint.completions() if c.status == WcStatus.SUCCESS]
        assert arrived == ([length] if said == packets else [])
        if said != packets:
            assert endpoint.qp().cause == Cause.ACCESS_VIOLATION


PLACES = {"F": Opcode.WRITE_FIRST, "M": Opcode.WRITE_MIDDLE, "L": Opcode.WRITE_LAST, "O": Opcode.WRITE_ONLY}


@given(places=st.text("FMLO", min_size=1, max_size=12), order=st.randoms(use_true_random=False))
@settings(max_examples=examples(200), deadline=None)
def test_a_message_begins_after_the_end_of_the_last_and_nowhere_else(places: str, order: random.Random) -> None:
    """The oracle is a grammar: whole messages, then perhaps the beginning of one."""
    good = max(n for n in range(len(places) + 1) if re.fullmatch("(O|FM*L)*(FM*)?", places[:n]))
    endpoint = Endpoint()
    psns = list(range(len(places)))
    order.shuffle(psns)
    for psn in psns:
        length = MTU if places[psn] == "O" else 100 * MTU
        endpoint.receives(data(psn, opcode=PLACES[places[psn]], dma_length=length))
    assert endpoint.qp().completed_messages == sum(place in "LO" for place in places[:good])
    refused = [ack.syndrome for ack in only(endpoint.all_sent(), Opcode.ACKNOWLEDGE) if ack.syndrome != Syndrome.ACK]
    assert refused == ([Syndrome.INVALID_REQUEST] if good < len(places) else [])
    assert (endpoint.qp().state == QpState.ERROR) == (good < len(places))


@pytest.mark.clause("wimm-no-receive")
def test_immediate_without_a_posted_receive_ends_the_connection() -> None:
    endpoint = Endpoint()
    endpoint.receives(write_imm(0, 0))
    assert_refused(endpoint, Syndrome.REMOTE_OPERATIONAL_ERROR, Cause.NO_RECEIVE)


def test_receives_may_be_posted_before_the_connection_sends_and_not_in_reset() -> None:
    endpoint = Endpoint()
    depth = endpoint.qp().receive_mask + 1
    posted = [doors.post_receive(endpoint.engine, 0, n) for n in range(depth + 1)]
    assert posted == [PostStatus.OK] * depth + [PostStatus.FULL]


# Window, as the responder may change it


@pytest.mark.clause("dynamic-mpr")
def test_sack_tells_the_window_only_when_both_sides_agreed_that_it_may_change() -> None:
    for agreed, summary in ((0, 0), (1, 8)):
        endpoint = Endpoint(attributes={"dynamic_mpr": agreed})
        endpoint.receives(data(0))
        endpoint.sends(Opcode.SACK, mpr=summary)


# Transport acknowledgements


@pytest.mark.clause("transport-ack")
def test_transport_ack_counts_whole_messages_behind_the_left_edge() -> None:
    endpoint = Endpoint()
    endpoint.receives(data(1, opcode=Opcode.WRITE_LAST, dma_length=2 * MTU))
    assert not only(endpoint.all_sent(), Opcode.ACKNOWLEDGE)
    endpoint.receives(data(0, opcode=Opcode.WRITE_FIRST, dma_length=2 * MTU))
    endpoint.sends(Opcode.ACKNOWLEDGE, acked_messages=1, traffic_class=TrafficClass.CONTROL)


@pytest.mark.clause("transport-ack")
def test_transport_ack_is_sent_on_request_and_at_the_latest_every_so_often() -> None:
    endpoint = Endpoint(settings=steady(ack_every=3, sack_threshold=1 << 20))
    middle = {"opcode": Opcode.WRITE_MIDDLE, "dma_length": 1 << 20}
    counts = []
    for psn in range(6):
        endpoint.receives(data(psn, **middle if psn else {**middle, "opcode": Opcode.WRITE_FIRST}))
        counts.append(len(only(endpoint.all_sent(), Opcode.ACKNOWLEDGE)))
    assert counts == [0, 0, 1, 0, 0, 1]
    endpoint.receives(data(6, ack_request=1, **middle))
    assert len(only(endpoint.all_sent(), Opcode.ACKNOWLEDGE)) == 1


@pytest.mark.clause("sack-not-completion")
def test_reliability_sack_completes_nothing() -> None:
    endpoint = Endpoint()
    endpoint.write()
    endpoint.all_sent()
    endpoint.receives({"opcode": Opcode.SACK, "cack_psn": 0, "sack_offset": 1, "rcvd_bytes": 2})
    assert endpoint.completions() == []
    endpoint.receives(ack(1))
    assert [(c.status, c.length) for c in endpoint.completions()] == [(WcStatus.SUCCESS, MTU)]


def test_stale_and_stray_packets_reach_no_queue_pair() -> None:
    endpoint = Endpoint()
    endpoint.receives(data(0), source=PEER_OF_NOBODY)
    endpoint.receives(data(0, dest_qpn=4))
    endpoint.receives(data(0, dest_qpn=3 + (1 << 16)))
    endpoint.receives({"opcode": 0xDF})
    node = endpoint.node()
    assert (node.wrong_source, node.unknown_qp, node.unknown_opcode) == (1, 2, 1)
    assert endpoint.qp().received_packets == 0
    endpoint.sends_nothing()


PEER_OF_NOBODY = 4711


@pytest.mark.clause("nack-resources")
def test_packet_that_was_allowed_but_cannot_be_tracked_is_refused_for_lack_of_a_bitmap() -> None:
    endpoint = Endpoint()
    endpoint.qp().mpr = 2 * WINDOW // 128  # advertised twice what the tracker holds
    assert not is_placed(endpoint.receives(data(WINDOW)))
    endpoint.sends(Opcode.NACK, nack_reason=NackReason.NO_BITMAP, nack_psn=WINDOW)


@pytest.mark.clause("nack-resources")
def test_immediate_that_skips_a_number_ends_the_connection_as_an_unexpected_event() -> None:
    endpoint = Endpoint()
    endpoint.receives(write_imm(0, rqmsn=1))
    endpoint.sends(Opcode.NACK, nack_reason=NackReason.UNEXP_EVENT, nack_psn=0)
    endpoint.sends(Opcode.ACKNOWLEDGE, syndrome=Syndrome.REMOTE_OPERATIONAL_ERROR)
    assert endpoint.qp().state == QpState.ERROR
    assert endpoint.qp().cause == Cause.UNEXPECTED_EVENT
