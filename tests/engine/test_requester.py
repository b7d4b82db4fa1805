"""Which data packet leaves when, on which path, with what in its headers."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from openmrc.core.rows import column
from openmrc.engine.congestion.qpcc import loss_delay
from openmrc.engine.connection.messages import PostStatus
from openmrc.engine.paths import ev_states
from openmrc.engine.state import clock
from openmrc.engine.state.machines import EvEvent, QpState
from openmrc.engine.state.queue_pairs import nominal_size
from openmrc.engine.state.tables import NONE, WcStatus
from openmrc.units import PS_PER_US
from openmrc.wire.codes import NackReason, Opcode, PathMark, TrafficClass
from tests.engine.scripted_peer import (
    MTU,
    QPN,
    Endpoint,
    ack,
    data,
    entropy_of,
    nack,
    only,
    probe_answer,
    psns,
    rotation_of,
    sack,
    steady,
)

SHAPES = [
    (0, [(Opcode.WRITE_ONLY, 0)]),
    (1, [(Opcode.WRITE_ONLY, 1)]),
    (MTU, [(Opcode.WRITE_ONLY, MTU)]),
    (MTU + 1, [(Opcode.WRITE_FIRST, MTU), (Opcode.WRITE_LAST, 1)]),
    (3 * MTU, [(Opcode.WRITE_FIRST, MTU), (Opcode.WRITE_MIDDLE, MTU), (Opcode.WRITE_LAST, MTU)]),
]


@pytest.mark.clause("segmentation")
@pytest.mark.parametrize(("length", "shape"), SHAPES, ids=[str(length) for length, _ in SHAPES])
def test_message_is_cut_at_the_mtu(length: int, shape: list[tuple[Opcode, int]]) -> None:
    endpoint = Endpoint()
    endpoint.write(length)
    packets = endpoint.all_sent()
    assert [(packet.opcode, packet.payload_length) for packet in packets] == shape
    assert [packet.psn for packet in packets] == list(range(len(shape)))


@pytest.mark.clause("reth-in-every-packet")
def test_every_packet_says_where_it_belongs_and_how_long_the_message_is() -> None:
    endpoint = Endpoint()
    endpoint.write(3 * MTU)
    packets = endpoint.all_sent()
    assert [packet.va for packet in packets] == [0xAA00, 0xAA00 + MTU, 0xAA00 + 2 * MTU]
    assert [packet.payload for packet in packets] == [0x9000, 0x9000 + MTU, 0x9000 + 2 * MTU]
    assert {(packet.dma_length, packet.r_key) for packet in packets} == {(3 * MTU, 0x77)}


@pytest.mark.clause("wimm-opcodes")
@pytest.mark.parametrize("packets", [1, 2])
def test_immediate_rides_on_the_last_packet(packets: int) -> None:
    endpoint = Endpoint()
    endpoint.write(packets * MTU, immediate=99)
    last = endpoint.all_sent()[-1]
    assert last.opcode == (Opcode.WRITE_ONLY_IMM if packets == 1 else Opcode.WRITE_LAST_IMM)
    assert last.immediate == 99


@pytest.mark.clause("message-numbers")
def test_message_numbers_count_messages_and_immediates_apart() -> None:
    endpoint = Endpoint()
    for immediate in (None, 7, None, 8):
        endpoint.write(2 * MTU, immediate)
    packets = endpoint.all_sent()
    assert [packet.msn for packet in packets] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [packets[n].rqmsn for n in (2, 3, 6, 7)] == [0, 0, 1, 1]


@pytest.mark.clause("message-numbers")
def test_message_numbers_and_packet_numbers_wrap() -> None:
    endpoint = Endpoint(first_psn=0xFFFFFF)
    row = endpoint.qp()
    row.message_head = row.message_current = row.message_tail = 0xFFFF
    row.wimm_next = row.wimm_done = 0xFFFF
    for _ in range(2):
        endpoint.write(MTU, immediate=1)
    packets = endpoint.all_sent()
    assert [packet.psn for packet in packets] == [0xFFFFFF, 0]
    assert [packet.msn for packet in packets] == [0xFFFF, 0]
    assert [packet.rqmsn for packet in packets] == [0xFFFF, 0]
    endpoint.receives(sack(0x1000000))
    endpoint.receives(ack(0x10001))
    assert row.inflight == 0
    assert len(endpoint.completions()) == 2


@pytest.mark.clause("completion-order")
def test_messages_complete_in_order_when_the_peer_counts_them() -> None:
    endpoint = Endpoint()
    for wr_id in (5, 6, 7):
        endpoint.write(wr_id=wr_id)
    endpoint.all_sent()
    endpoint.receives(ack(2))
    assert [(c.wr_id, c.status) for c in endpoint.completions()] == [(5, WcStatus.SUCCESS), (6, WcStatus.SUCCESS)]
    endpoint.receives(ack(1))
    assert endpoint.completions() == []
    endpoint.receives(ack(3))
    assert [c.wr_id for c in endpoint.completions()] == [7]
    assert endpoint.qp().inflight == 0


def test_count_of_messages_that_were_never_sent_is_malformed() -> None:
    endpoint = Endpoint()
    endpoint.write()
    endpoint.all_sent()
    endpoint.receives(ack(2))
    endpoint.receives(sack(5))
    assert endpoint.qp().malformed == 2
    assert endpoint.completions() == []


def test_send_queue_has_room_for_its_depth() -> None:
    endpoint = Endpoint(layout={"sends": 4})
    assert [endpoint.write() for _ in range(5)] == [PostStatus.OK] * 4 + [PostStatus.FULL]
    assert endpoint.write(length=-1, qp=0) in (PostStatus.FULL, PostStatus.TOO_LONG)
    endpoint = Endpoint()
    assert endpoint.write(1 << 31) == PostStatus.TOO_LONG
    assert endpoint.write(-1) == PostStatus.TOO_LONG


# Asking for answers


@pytest.mark.clause("ack-request")
def test_last_packet_before_silence_asks_for_an_answer() -> None:
    endpoint = Endpoint()
    endpoint.write(4 * MTU)
    assert [packet.ack_request for packet in endpoint.all_sent()] == [0, 0, 0, 1]


@pytest.mark.clause("ack-request")
def test_packet_that_nearly_closes_a_window_asks_for_an_answer() -> None:
    size = nominal_size(MTU)
    settings = steady(algorithm="uet-1.0-nscc", mtu=MTU, max_cwnd=5 * size, sack_threshold=0)  # no shares
    endpoint = Endpoint(settings=settings)
    endpoint.write(20 * MTU)
    assert [packet.ack_request for packet in endpoint.all_sent()] == [0, 0, 0, 1, 1]
    endpoint = Endpoint(attributes={"mpr_dest": 1})
    endpoint.write(200 * MTU)
    asked = [packet.ack_request for packet in endpoint.all_sent()]
    assert asked == [0] * 127 + [1]


@pytest.mark.clause("ack-request")
@pytest.mark.parametrize(("window", "each"), [(5, 1), (16, 1), (32, 2), (64, 4), (16 * 47, 47), (16 * 52, 0)])
def test_a_window_under_sixteen_thresholds_asks_for_sixteen_reports(window: int, each: int) -> None:
    size = nominal_size(MTU)
    endpoint = Endpoint(settings=steady(algorithm="uet-1.0-nscc", mtu=MTU, max_cwnd=window * size))
    endpoint.write(1000 * MTU)
    asked = [packet.ack_request for packet in endpoint.all_sent()][: window - 2]
    assert asked == [int(each > 0 and psn % each == each - 1) for psn in range(window - 2)]


@pytest.mark.clause("ack-request")
def test_reports_of_a_window_that_queue_pairs_share_are_counted_together() -> None:
    size = nominal_size(MTU)
    settings = steady(algorithm="uet-1.0-nscc", mtu=MTU, max_cwnd=128 * size)
    endpoint = Endpoint(settings=settings, peer_of=(0, 0, 0, 0))
    for qp in range(4):
        endpoint.write(100 * MTU, qp=qp)
    asked = [packet.ack_request for packet in endpoint.all_sent()]
    assert len(asked) == 128
    assert sum(asked) == pytest.approx(64, abs=4), "two packets are a sixteenth of a quarter"


# Retransmission


@pytest.mark.clause("retransmission")
def test_retransmission_says_so_and_asks_and_takes_another_path() -> None:
    for seed in range(16):
        endpoint = Endpoint(seed=seed, planes=1, evs=2, active=2)
        endpoint.write((7 + seed % 2) * MTU)  # the rotation may stand in its middle
        first = endpoint.all_sent()[2]
        endpoint.receives(nack(2, NackReason.NO_PKT_BUFFER, first.entropy))
        again = endpoint.sends(
            psn=2,
            retransmitted=1,
            ack_request=1,
            opcode=Opcode(first.opcode),
            traffic_class=TrafficClass.TRIMMABLE_RETX,
        )
        assert again.entropy != first.entropy
        assert (again.va, again.payload, again.msn) == (first.va, first.payload, first.msn)


@pytest.mark.clause("retransmission")
def test_retransmission_would_rather_take_a_skipped_path_than_the_same_again() -> None:
    for seed in range(24):
        endpoint = Endpoint(seed=seed, planes=1, evs=2, active=2)
        endpoint.write((7 + seed % 2) * MTU)
        first = endpoint.all_sent()[2]
        other = entropy_of(0, 1 - (first.entropy & 1))
        ev_states.transition(endpoint.engine, 0, endpoint.ev_row(other), EvEvent.TRIMMED)
        endpoint.receives(nack(2, NackReason.NO_PKT_BUFFER, first.entropy))
        endpoint.sends(psn=2, entropy=other)


@pytest.mark.clause("retransmission")
def test_retransmission_takes_another_plane_where_there_is_one() -> None:
    for seed in range(24):
        endpoint = Endpoint(seed=seed, planes=2, evs=4, active=4)
        endpoint.write((7 + seed % 2) * MTU)
        first = endpoint.all_sent()[2]
        endpoint.receives(nack(2, NackReason.NO_PKT_BUFFER, first.entropy))
        assert endpoint.sends(psn=2).port != first.port


@pytest.mark.clause("loss-gap")
def test_holes_that_a_second_answer_of_the_same_moment_fills_are_not_lost() -> None:
    endpoint = Endpoint()
    endpoint.write(12 * MTU)
    endpoint.all_sent()
    endpoint.receives(sack(1, (11,)), at_us=500)  # long waited for: the endpoint was kept from its processor
    endpoint.receives(sack(11))
    assert endpoint.qp().inferred_losses == 0


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


@pytest.mark.clause("retransmission")
def test_retransmission_uses_the_only_path_there_is() -> None:
    endpoint = Endpoint(planes=1, evs=1, active=1)
    endpoint.write()
    endpoint.all_sent()
    endpoint.receives(nack(0, NackReason.NO_RESOURCE))
    endpoint.sends(psn=0, retransmitted=1)


@pytest.mark.clause("retransmission-order")
def test_oldest_loss_goes_first_and_before_new_data() -> None:
    endpoint = Endpoint(attributes={"mpr_dest": 1})
    endpoint.write(200 * MTU)
    assert len(endpoint.all_sent()) == 128
    for psn in (40, 7, 20):
        endpoint.receives(nack(psn, NackReason.TRIMMED_LASTHOP))
    endpoint.receives(sack(6))
    sent = endpoint.all_sent()
    assert psns(sent) == [7, 20, 40, *range(128, 135)]
    assert [packet.retransmitted for packet in sent] == [1] * 3 + [0] * 7


@pytest.mark.clause("loss-gap")
def test_hole_is_lost_when_later_packets_arrived_and_it_waited_long_enough() -> None:
    endpoint = Endpoint()
    endpoint.write(12 * MTU)
    first = endpoint.all_sent()
    above = tuple(psn for psn in range(5, 12) if psn not in (5, 8))
    endpoint.receives(sack(4, above), at_us=12)
    endpoint.receives(sack(4, above), at_us=30)
    endpoint.sends_nothing(until_us=38)
    endpoint.receives(sack(4, above), at_us=40)
    again = [endpoint.sends(retransmitted=1, at_us=40) for _ in range(2)]
    assert [packet.psn for packet in again] == [5, 8]
    assert all(packet.entropy != first[packet.psn].entropy for packet in again)
    assert endpoint.qp().inferred_losses == 2


def confirm(endpoint: Endpoint, cack: int, above: tuple[int, ...], at_us: float | None = None) -> None:
    """Answer the probe that asks whether what is missing has arrived since: it has not."""
    probe = endpoint.sends(Opcode.PROBE, at_us=at_us)
    endpoint.receives(sack(cack, above, is_probe_answer=1, ack_psn_offset=probe.probe_id))


@pytest.mark.clause("loss-complete-report")
def test_hole_is_asked_for_before_it_is_lost_when_no_report_is_to_be_expected() -> None:
    endpoint = Endpoint()
    endpoint.write(4 * MTU)
    endpoint.all_sent()
    endpoint.receives(sack(0, (2, 3)), at_us=12)
    endpoint.sends_nothing(until_us=35)
    confirm(endpoint, 0, (2, 3))
    assert 35e6 < endpoint.now < 40e6, "one round trip and its variation after it was sent"
    endpoint.sends(psn=1, retransmitted=1)
    assert endpoint.qp().inferred_losses == 1
    endpoint.sends_nothing()


@pytest.mark.clause("loss-complete-report")
def test_packet_that_arrived_after_the_last_report_is_not_lost() -> None:
    endpoint = Endpoint()
    endpoint.write(4 * MTU)
    endpoint.all_sent()
    endpoint.receives(sack(0, (2, 3)), at_us=12)  # asked for by packet 3, which overtook packet 1
    probe = endpoint.sends(Opcode.PROBE)
    endpoint.receives(probe_answer(probe.probe_id, 3))
    endpoint.sends_nothing(until_us=130)
    assert endpoint.qp().inferred_losses == 0


@pytest.mark.clause("loss-complete-report")
def test_packet_is_not_lost_by_a_report_that_leaves_arrivals_out() -> None:
    endpoint = Endpoint(attributes={"timeout": 10**12})
    endpoint.write(100 * MTU)
    sent = len(endpoint.all_sent())
    above = tuple(range(1, 64))
    endpoint.receives(sack(-1, above), at_us=12)
    probe = endpoint.sends(Opcode.PROBE)
    beyond = sent - 1 - len(above)
    endpoint.receives(sack(-1, above, is_probe_answer=1, ack_psn_offset=probe.probe_id, ooo_count=len(above) + beyond))
    endpoint.sends_nothing()  # packet 0 may well be lost, the others beyond the bitmap have arrived
    assert endpoint.qp().inferred_losses == 0
    rest = sack(-1, tuple(range(1, beyond + 1)), sack_offset=64, ooo_count=len(above) + beyond)
    endpoint.receives(rest)
    assert endpoint.sends(retransmitted=1).psn == 0
    assert endpoint.qp().inferred_losses == 1


@pytest.mark.clause("loss-complete-report")
def test_peer_that_never_reports_all_is_taken_at_its_bits_after_three_probes() -> None:
    endpoint = Endpoint(attributes={"timeout": 10**12})
    endpoint.write(4 * MTU)
    endpoint.all_sent()
    endpoint.receives(sack(0, (2, 3), ooo_count=9), at_us=12)
    for _ in range(3):
        endpoint.sends(Opcode.PROBE)
    endpoint.sends(psn=1, retransmitted=1)


@pytest.mark.clause("loss-complete-report")
def test_report_that_was_made_before_the_loss_delay_had_passed_does_not_count_where_queues_stand() -> None:
    endpoint = Endpoint(attributes={"timeout": 10**12})  # 12 us without queues: a report is 6 us old when it arrives
    endpoint.write(4 * MTU)
    endpoint.all_sent()
    endpoint.receives(sack(0, (2, 3), tx_timestamp=0), at_us=20)
    delay_us = loss_delay(endpoint.engine, 0) / PS_PER_US
    endpoint.receives(sack(0, (2, 3), tx_timestamp=0), at_us=delay_us - 1)
    delay_us = loss_delay(endpoint.engine, 0) / PS_PER_US
    endpoint.receives(sack(0, (2, 3)), at_us=delay_us + 5)
    assert endpoint.qp().inferred_losses == 0
    endpoint.receives(sack(0, (2, 3)), at_us=delay_us + 7)
    endpoint.sends(psn=1, retransmitted=1)


@pytest.mark.clause("loss-gap")
def test_hole_is_not_lost_while_nothing_sent_later_is_known_to_have_arrived() -> None:
    endpoint = Endpoint()
    endpoint.write(MTU)
    endpoint.all_sent()
    endpoint.write(MTU)
    endpoint.now += 5_000_000
    endpoint.all_sent()
    endpoint.receives(sack(0), at_us=17)
    endpoint.sends_nothing(until_us=900)


@pytest.mark.clause("loss-gap")
def test_hole_to_a_near_neighbour_waits_for_a_full_queue_of_the_whole_fabric() -> None:
    endpoint = Endpoint()
    for psn in range(0, 200, 2):
        endpoint.write(2 * MTU)
        sent_at = endpoint.now
        endpoint.all_sent()
        near = sack(psn + 1, tx_timestamp=clock.stamp(sent_at, 0))
        endpoint.receives(near, at_us=sent_at / 1e6 + 2)
    assert endpoint.peer().rttvar < 100_000
    assert endpoint.peer().srtt < 2_100_000
    endpoint.write(3 * MTU)  # the newest is not reported, so the arrival of the first need not be
    endpoint.all_sent()
    sent_at = endpoint.now
    endpoint.receives(sack(199, (201,)), at_us=sent_at / 1e6 + 2)
    endpoint.sends_nothing(until_us=sent_at / 1e6 + 12)
    confirm(endpoint, 199, (201,))
    endpoint.sends(psn=200, retransmitted=1)


@pytest.mark.clause("loss-gap")
@pytest.mark.parametrize(("above", "round_trips"), [((1, 2, 3), 6), ((1, 2, 3, 4), 3)], ids=["little", "enough"])
def test_hole_waits_twice_as_long_without_trimming_while_little_lies_above_it(
    above: tuple[int, ...], round_trips: int
) -> None:
    endpoint = Endpoint(settings=steady(trimming=False, gap_packets=3), attributes={"timeout": 10**12})
    endpoint.peer().cwnd = 1.0
    endpoint.write(12 * MTU)
    endpoint.all_sent()
    endpoint.receives(sack(-1, above), at_us=12)
    confirm(endpoint, -1, above, at_us=12 * round_trips)
    endpoint.sends(psn=0, retransmitted=1)


@pytest.mark.parametrize(("floor_us", "at_us"), [(100, 100), (50, 72)])
def test_the_floor_of_the_loss_delay_is_not_doubled_while_little_lies_above_a_hole(floor_us: int, at_us: int) -> None:
    settings = steady(trimming=False, gap_packets=3, loss_delay_floor_us=floor_us)
    endpoint = Endpoint(settings=settings, attributes={"timeout": 10**12})
    endpoint.peer().cwnd = 1.0
    endpoint.write(12 * MTU)
    endpoint.all_sent()
    endpoint.receives(sack(-1, (1, 2, 3)), at_us=12)
    confirm(endpoint, -1, (1, 2, 3), at_us=at_us)
    endpoint.sends(psn=0, retransmitted=1)


def test_hole_is_retransmitted_once_per_round_trip() -> None:
    endpoint = Endpoint(attributes={"timeout": 10**12})
    endpoint.write(12 * MTU)
    endpoint.all_sent()
    endpoint.receives(sack(-1, tuple(range(1, 12))), at_us=40)
    endpoint.sends(psn=0, retransmitted=1)
    endpoint.receives(sack(-1, tuple(range(1, 12))), at_us=45)
    endpoint.sends_nothing(until_us=60)


def test_answer_that_cannot_be_for_the_second_copy_proves_nothing_of_what_was_sent_in_between() -> None:
    endpoint = Endpoint(attributes={"timeout": 10**12})
    endpoint.write(MTU)
    endpoint.all_sent()
    endpoint.receives(nack(0, NackReason.TRIMMED_LASTHOP), at_us=50)
    endpoint.write(MTU)
    assert psns(endpoint.all_sent()) == [0, 1]
    endpoint.receives(sack(0), at_us=52)
    assert endpoint.qp().newest_delivered < 0
    endpoint.sends_nothing(until_us=900)


def test_packet_that_arrives_after_it_was_declared_lost_is_not_sent_again() -> None:
    endpoint = Endpoint()
    endpoint.write(3 * MTU)
    endpoint.all_sent()
    endpoint.receives(nack(1, NackReason.TRIMMED_LASTHOP))
    endpoint.receives(sack(2))
    endpoint.sends_nothing()
    ports = endpoint.engine.ports
    assert endpoint.qp().spurious == 0
    assert [sum(column(ports, name)) for name in ("requeued", "false_losses", "lost")] == [1, 1, 0]


@pytest.mark.parametrize(("round_trip_us", "spurious"), [(10, 1), (12, 0)], ids=["sooner", "later"])
def test_retransmission_is_in_vain_if_the_answer_comes_sooner_than_any_before(
    round_trip_us: float, spurious: int
) -> None:
    endpoint = Endpoint(attributes={"timeout": 10**12})
    endpoint.write(4 * MTU)
    endpoint.all_sent()
    endpoint.receives(sack(0, (2, 3)), at_us=12)
    confirm(endpoint, 0, (2, 3))
    again = endpoint.sends(psn=1, retransmitted=1)
    endpoint.receives(sack(3), at_us=endpoint.now / PS_PER_US + round_trip_us)
    assert endpoint.qp().spurious == spurious
    assert endpoint.ev(again.entropy).acked == 1 - spurious, "the path of the first copy delivered, not this one"


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


# Windows


@pytest.mark.clause("mpr-requester")
def test_requester_stops_at_the_peers_window() -> None:
    endpoint = Endpoint(attributes={"mpr_dest": 1})
    endpoint.write(300 * MTU)
    assert psns(endpoint.all_sent()) == list(range(128))
    endpoint.receives(sack(-1, tuple(range(1, 60))))
    endpoint.sends_nothing()
    endpoint.receives(sack(9))
    assert psns(endpoint.all_sent()) == list(range(128, 138))


@pytest.mark.clause("dynamic-mpr")
def test_requester_follows_a_window_that_shrinks_and_grows() -> None:
    endpoint = Endpoint(attributes={"mpr_dest": 2, "dynamic_mpr": 1, "timeout": 10**15})
    endpoint.write(600 * MTU)
    assert psns(endpoint.all_sent()) == list(range(256))
    endpoint.receives(nack(200, NackReason.TRIMMED_LASTHOP))
    endpoint.receives(sack(9, mpr=1))
    endpoint.sends_nothing()
    endpoint.receives(sack(80, mpr=1))
    assert psns(endpoint.all_sent()) == [200], "the retransmission waited for the window too"
    endpoint.receives(sack(199, mpr=1))
    assert psns(endpoint.all_sent()) == list(range(256, 328))
    endpoint.receives(sack(199, mpr=2))
    assert psns(endpoint.all_sent()) == list(range(328, 456))


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


@pytest.mark.clause("wimm-limit")
def test_requester_keeps_no_more_immediates_in_flight_than_the_peer_allows() -> None:
    endpoint = Endpoint(attributes={"max_wimm": 2})
    for _ in range(4):
        endpoint.write(MTU, immediate=1)
    assert len(endpoint.all_sent()) == 2
    endpoint.receives(sack(1))
    endpoint.sends_nothing()
    endpoint.receives(ack(1))
    assert len(endpoint.all_sent()) == 1


@pytest.mark.clause("cwnd-limit")
def test_requester_stops_at_the_congestion_window_and_always_may_send_one() -> None:
    size = nominal_size(MTU)
    endpoint = Endpoint(settings=steady(algorithm="uet-1.0-nscc", mtu=MTU, max_cwnd=3 * size))
    endpoint.write(10 * MTU)
    assert len(endpoint.all_sent()) == 3
    assert endpoint.peer().inflight == 3 * size
    endpoint.peer().cwnd = 1.0
    endpoint.receives(sack(2, rcvd_bytes=100))
    assert len(endpoint.all_sent()) >= 1


@pytest.mark.clause("trim-class")
def test_packets_to_a_peer_that_answers_no_trims_ask_not_to_be_trimmed() -> None:
    endpoint = Endpoint(attributes={"trim_nack_dest": 0})
    endpoint.write()
    endpoint.sends(Opcode.WRITE_ONLY, traffic_class=TrafficClass.NO_TRIM)
    endpoint = Endpoint()
    endpoint.write()
    endpoint.sends(Opcode.WRITE_ONLY, traffic_class=TrafficClass.TRIMMABLE, timestamped=1, timestamp_unit=0)


# Lost acknowledgements


@pytest.mark.clause("transport-ack-lost")
def test_missing_transport_ack_is_asked_for_by_a_duplicate() -> None:
    endpoint = Endpoint()
    endpoint.write(2 * MTU)
    endpoint.all_sent()
    endpoint.receives(sack(1), at_us=12)
    endpoint.sends(psn=1, retransmitted=1, ack_request=1, opcode=Opcode.WRITE_LAST, at_us=1000)
    assert endpoint.qp().inflight == 0
    assert endpoint.qp().timeouts == 1
    endpoint.receives(ack(1))
    assert len(endpoint.completions()) == 1
    endpoint.sends_nothing(until_us=20_000)


@pytest.mark.clause("transport-ack-lost")
def test_missing_transport_ack_is_asked_for_while_probes_of_a_bad_path_are_answered() -> None:
    endpoint = Endpoint(settings=steady(probe_interval_us=100.0, probe_interval_max_us=100.0, probe_successes=100))
    endpoint.write(MTU)
    endpoint.all_sent()
    ev_states.transition(endpoint.engine, 0, 0, EvEvent.LOST)
    endpoint.receives(sack(0), at_us=12)
    while endpoint.now < 999e6:
        asked = endpoint.sends()
        if asked.opcode != Opcode.PROBE:
            break
        endpoint.receives(probe_answer(asked.probe_id, 0))
    assert (asked.opcode, asked.psn, asked.retransmitted) == (Opcode.WRITE_ONLY, 0, 1)


@pytest.mark.clause("transport-ack-lost")
def test_missing_transport_ack_is_asked_for_as_soon_as_a_missing_sack_would_be() -> None:
    endpoint = Endpoint(settings=steady(tail_probe=True))
    endpoint.write(2 * MTU)
    endpoint.all_sent()
    endpoint.receives(sack(1), at_us=12)
    endpoint.sends(psn=1, retransmitted=1, ack_request=1, opcode=Opcode.WRITE_LAST)
    assert endpoint.now < 200e6, "long before the timeout"
    assert endpoint.qp().retries == 0
    endpoint.receives(ack(1))
    assert len(endpoint.completions()) == 1
    endpoint.sends_nothing(until_us=20_000)


def asked_at(endpoint: Endpoint, times: int, psn: int) -> list[float]:
    """Return when (us) a packet is repeated so many times that nobody answers."""
    moments = []
    for _ in range(times):
        endpoint.sends(psn=psn, retransmitted=1)
        moments.append(endpoint.now / PS_PER_US)
    return moments


@pytest.mark.clause("transport-ack-lost")
def test_a_lone_missing_transport_ack_is_asked_for_at_first_linearly_then_half_as_often_each_time() -> None:
    endpoint = Endpoint(settings=steady(tail_probe=True), attributes={"timeout": 10**12, "linear_count": 3})
    endpoint.write(MTU)
    endpoint.all_sent()
    endpoint.receives(sack(0), at_us=12)
    gaps = [late - early for early, late in pairwise(asked_at(endpoint, 9, psn=0))]
    assert gaps == pytest.approx([gaps[0]] * 3 + [gaps[0] * 2**number for number in range(1, 6)])
    endpoint.receives(ack(1))
    endpoint.write(MTU)
    endpoint.all_sent()
    began = endpoint.now / PS_PER_US
    endpoint.receives(sack(1), at_us=began + 12)
    assert asked_at(endpoint, 1, psn=1)[0] - began < 2 * gaps[0], "progress ends the back-off"


@pytest.mark.clause("tail-probe")
def test_a_tail_is_probed_at_first_linearly_then_half_as_often_each_time_until_the_timeout() -> None:
    endpoint = Endpoint(settings=steady(tail_probe=True), attributes={"timeout": 1000 * PS_PER_US, "linear_count": 1})
    endpoint.write(MTU)
    endpoint.all_sent()
    delay = loss_delay(endpoint.engine, 0) / PS_PER_US
    for gaps in (1, 2, 4, 8, 16):
        endpoint.sends(Opcode.PROBE, at_us=delay * gaps)


@pytest.mark.clause("transport-ack-lost")
def test_ack_is_asked_for_by_a_packet_that_is_still_remembered() -> None:
    endpoint = Endpoint(layout={"window": 128}, attributes={"mpr_dest": 1})
    for _ in range(3):
        endpoint.write(100 * MTU)
    for cack in (127, 255, 299):
        endpoint.all_sent()
        endpoint.receives(sack(cack))
    again = endpoint.sends(retransmitted=1)
    assert (again.psn, again.msn, again.opcode) == (299, 2, Opcode.WRITE_LAST)
    assert 0x9000 <= again.payload < 0x9000 + 100 * MTU


@pytest.mark.clause("transport-ack-lost")
def test_ack_that_comes_before_the_duplicate_leaves_stops_it() -> None:
    endpoint = Endpoint(layout={"sends": 1})
    endpoint.write(MTU)
    endpoint.all_sent()
    endpoint.receives(sack(0))
    endpoint.waits(1100)
    assert endpoint.qp().solicit_psn == 0
    endpoint.receives(ack(1))
    assert endpoint.qp().solicit_psn == NONE
    endpoint.write(1)
    endpoint.sends(Opcode.WRITE_ONLY, psn=1, payload_length=1, retransmitted=0)


@pytest.mark.clause("transport-ack-lost")
def test_missing_ack_is_asked_for_even_when_a_packet_was_reported_while_it_waited_to_be_repeated() -> None:
    endpoint = Endpoint()
    endpoint.write(MTU)
    endpoint.all_sent()
    endpoint.waits(1000)
    assert endpoint.qp().lost_count == 1
    assert endpoint.all_sent(free_ports=0) == []
    endpoint.receives(sack(0))
    endpoint.sends(Opcode.WRITE_ONLY, psn=0, retransmitted=1)
    endpoint.receives(ack(1))
    assert len(endpoint.completions()) == 1


@pytest.mark.clause("tail-probe")
def test_lost_sack_is_asked_for_by_a_probe() -> None:
    endpoint = Endpoint(settings=steady(tail_probe=True))
    endpoint.write(2 * MTU)
    endpoint.all_sent()
    asked = endpoint.sends(Opcode.PROBE, traffic_class=TrafficClass.NO_TRIM, dest_qpn=0x70_000)
    assert 0 < endpoint.now < 200e6
    endpoint.receives(probe_answer(asked.probe_id, 1))
    assert endpoint.qp().inflight == 0
    assert endpoint.qp().probes_answered == 1
    endpoint.receives(ack(1))
    endpoint.sends_nothing(until_us=5000)
    assert endpoint.qp().retransmitted == 0


@pytest.mark.clause("tail-probe")
@pytest.mark.parametrize(("varied_us", "asked_us"), [(0, 24 + 12), (500, 2 * 24)])
def test_a_tail_waits_two_round_trips_at_most(varied_us: float, asked_us: float) -> None:
    endpoint = Endpoint(settings=steady(tail_probe=True, trimming=False))
    endpoint.peer().srtt, endpoint.peer().rttvar = round(24e6), round(varied_us * 1e6)
    endpoint.write(MTU)
    endpoint.all_sent()
    endpoint.sends(Opcode.PROBE, at_us=asked_us)


@pytest.mark.clause("tail-probe")
def test_what_an_answered_probe_overtook_by_two_round_trips_is_lost_however_much_they_vary() -> None:
    endpoint = Endpoint(settings=steady(tail_probe=True, trimming=False), attributes={"timeout": 10**12})
    endpoint.peer().srtt, endpoint.peer().rttvar = 12_000_000, 500_000_000
    endpoint.write(2 * MTU)
    endpoint.all_sent()
    asked = endpoint.sends(Opcode.PROBE, at_us=24)
    endpoint.receives(probe_answer(asked.probe_id, -1), at_us=36)
    assert psns([endpoint.sends(retransmitted=1, at_us=36), endpoint.sends(retransmitted=1, at_us=36)]) == [0, 1]


@pytest.mark.clause("tail-probe")
def test_nothing_is_asked_about_packets_that_are_known_to_be_lost() -> None:
    endpoint = Endpoint(settings=steady(tail_probe=True), attributes={"timeout": 10**12})
    endpoint.write(3 * MTU)
    endpoint.all_sent()
    endpoint.receives(sack(-1, (1,)), at_us=12)
    asked = endpoint.sends(Opcode.PROBE)
    for port in range(4):
        endpoint.set_port(port, 0)
    endpoint.receives(probe_answer(asked.probe_id, -1, sack_bitmap=0b10, ooo_count=1))
    endpoint.waits(10_000)
    assert endpoint.qp().lost_count == 2
    assert endpoint.qp().probes_sent == 1
    for port in range(4):
        endpoint.set_port(port, 1)
    assert psns(endpoint.all_sent()) == [0, 2]
    endpoint.waits(10_100)
    assert endpoint.qp().probes_sent > 1


@pytest.mark.clause("tail-probe")
def test_nothing_is_asked_while_packets_still_leave() -> None:
    endpoint = Endpoint(settings=steady(tail_probe=True))
    for at_us in range(0, 200, 20):  # more often than a loss is seen
        endpoint.waits(at_us)
        endpoint.write(MTU)
        assert psns(endpoint.all_sent()) == [at_us // 20]
    assert endpoint.qp().probes_sent == 0
    endpoint.sends(Opcode.PROBE)
    assert endpoint.now > 200e6


@pytest.mark.clause("tail-probe")
def test_a_window_closed_by_packets_that_asked_for_nothing_is_reported_after_a_round_trip() -> None:
    endpoint = Endpoint(settings=steady(tail_probe=True, algorithm="uet-1.0-nscc"), attributes={"timeout": 10**12})
    endpoint.write(20 * MTU)
    assert [endpoint.sends(at_us=0).ack_request for _ in range(13)] == 13 * [0]
    endpoint.peer().cwnd = 0  # a cut leaves one packet of the largest size
    endpoint.receives(sack(0), at_us=6)
    asked = endpoint.sends(Opcode.PROBE, at_us=12)
    endpoint.sends_nothing(until_us=20)
    endpoint.receives(probe_answer(asked.probe_id, 12), at_us=24)
    assert psns([endpoint.sends(at_us=24)]) == [13]
    assert endpoint.qp().probes_sent == 1


@pytest.mark.clause("tail-probe")
def test_a_window_closed_by_a_nack_is_reported_after_a_round_trip_too() -> None:
    endpoint = Endpoint(settings=steady(tail_probe=True, algorithm="uet-1.0-nscc"), attributes={"timeout": 10**12})
    endpoint.write(20 * MTU)
    assert [endpoint.sends(at_us=0).ack_request for _ in range(13)] == 13 * [0]
    endpoint.peer().cwnd = 0
    endpoint.receives(nack(3, NackReason.TRIMMED), at_us=6)
    endpoint.sends(Opcode.PROBE, at_us=12)


@pytest.mark.clause("tail-probe")
def test_answered_probe_proves_that_what_was_sent_before_it_is_lost() -> None:
    endpoint = Endpoint(settings=steady(tail_probe=True))
    endpoint.write(2 * MTU)
    endpoint.all_sent()
    asked = endpoint.sends(Opcode.PROBE)
    endpoint.receives(probe_answer(asked.probe_id, -1))
    assert psns([endpoint.sends(retransmitted=1), endpoint.sends(retransmitted=1)]) == [0, 1]
    assert endpoint.now < 1000e6, "long before the timeout"


# Spraying


@pytest.mark.clause("spray-planes")
def test_planes_carry_equal_shares() -> None:
    endpoint = Endpoint()
    endpoint.write(400 * MTU)
    shares = Counter(packet.port for packet in endpoint.all_sent())
    assert shares == {0: 100, 1: 100, 2: 100, 3: 100}


@pytest.mark.clause("spray-rotation")
def test_rotation_uses_every_active_value_once_and_is_reshuffled() -> None:
    endpoint = Endpoint(planes=1, evs=10, active=8)
    endpoint.write(80 * MTU)
    entropies = [packet.entropy for packet in endpoint.all_sent()]
    rounds = [entropies[at : at + 8] for at in range(0, 80, 8)]
    assert {frozenset(turn) for turn in rounds} == {frozenset(endpoint.rotation())}
    assert len({tuple(turn) for turn in rounds}) > 5


@pytest.mark.clause("spray-skip")
def test_one_packet_forgives_one_value_at_most() -> None:
    endpoint = Endpoint(planes=1, evs=4, active=4)
    endpoint.write(4 * MTU)
    for packet in endpoint.all_sent():
        endpoint.receives(sack(-1, (packet.psn,), path_mark=PathMark.SKIP_ONCE, reflected_entropy=packet.entropy))
    assert len(endpoint.evs_in_state(1)) == 4
    endpoint.write(MTU)
    endpoint.sends(Opcode.WRITE_ONLY)
    assert len(endpoint.evs_in_state(1)) == 3, "all are skipped, so the one just forgiven is used"


@pytest.mark.clause("free-ports")
def test_busy_port_is_passed_over_without_changing_its_values() -> None:
    endpoint = Endpoint()
    endpoint.write(12 * MTU)
    assert {packet.port for packet in endpoint.all_sent(free_ports=0b0101)} == {0, 2}
    assert endpoint.evs_in_state(0) == [ev.value for ev in endpoint.engine.evs]
    endpoint.write(MTU)
    assert endpoint.all_sent(free_ports=0) == []
    assert len(endpoint.all_sent()) == 1


@pytest.mark.clause("retransmission")
def test_a_repetition_waits_for_another_port_and_new_data_takes_the_one_it_was_lost_on() -> None:
    endpoint = Endpoint(planes=2)
    endpoint.write(MTU)
    endpoint.write(MTU)
    first, _ = endpoint.all_sent()
    endpoint.receives(nack(first.psn, NackReason.TRIMMED_LASTHOP))
    same, other = 1 << first.port, 1 << (1 - first.port)
    assert endpoint.all_sent(free_ports=same) == [], "there is nothing new either"
    endpoint.write(MTU)
    (new,) = endpoint.all_sent(free_ports=same)
    assert (new.psn, new.port) == (2, first.port)
    (again,) = endpoint.all_sent(free_ports=other)
    assert (again.psn, again.port, again.retransmitted) == (first.psn, 1 - first.port, 1)


@pytest.mark.clause("retransmission")
def test_a_repetition_takes_the_port_it_was_lost_on_where_no_other_has_a_path() -> None:
    endpoint = Endpoint(planes=2)
    endpoint.write(MTU)
    (first,) = endpoint.all_sent()
    endpoint.set_port(1 - first.port, 0)
    endpoint.all_sent()
    endpoint.receives(nack(first.psn, NackReason.TRIMMED_LASTHOP))
    (again,) = only(endpoint.all_sent(free_ports=1 << first.port), Opcode.WRITE_ONLY)
    assert (again.psn, again.port) == (first.psn, first.port)
    assert again.entropy != first.entropy


def test_a_small_window_is_not_spent_on_one_ev() -> None:
    endpoint = Endpoint(settings=steady(ev_burst=4 * nominal_size(MTU)))
    endpoint.peer().cwnd = 2 * endpoint.planes * nominal_size(MTU)
    endpoint.write(8 * MTU)
    used = [packet.entropy for packet in endpoint.all_sent()]
    assert all(earlier != later for earlier, later in pairwise(used))


def test_burst_keeps_packets_on_one_value_so_that_sockets_can_batch_them() -> None:
    endpoint = Endpoint(settings=steady(ev_burst=4 * nominal_size(MTU)))
    endpoint.write(16 * MTU)
    entropies = [packet.entropy for packet in endpoint.all_sent()]
    assert [len(set(entropies[at : at + 4])) for at in range(0, 16, 4)] == [1] * 4
    assert [rotation_of(entropies[at]) for at in range(0, 16, 4)] == sorted(
        {0, 1, 2, 3}, key=lambda rotation: (rotation - rotation_of(entropies[0])) % 4
    )


def test_a_burst_counts_bytes_so_that_short_packets_make_long_trains() -> None:
    endpoint = Endpoint(settings=steady(ev_burst=9 * nominal_size(64)), layout={"sends": 32})
    for _ in range(18):
        endpoint.write(64)
    entropies = [packet.entropy for packet in endpoint.all_sent()]
    assert entropies[:9] == [entropies[0]] * 9
    assert entropies[9:] == [entropies[9]] * 9 != entropies[:9]


def test_a_packet_of_full_size_ends_a_burst_that_it_does_not_fit() -> None:
    endpoint = Endpoint(settings=steady(ev_burst=2 * nominal_size(MTU)), layout={"sends": 32})
    for length in (64, MTU, MTU, 64):
        endpoint.write(length)
    used = [packet.entropy for packet in endpoint.all_sent()]
    assert used[0] == used[1] != used[2] == used[3]


def test_answers_reach_a_requester_only_when_it_may_send() -> None:
    endpoint = Endpoint()
    endpoint.write()
    endpoint.all_sent()
    endpoint.receives(nack(0, NackReason.UNEXP_EVENT))
    assert endpoint.qp().state == QpState.ERROR
    endpoint.receives(sack(0))
    assert endpoint.qp().sacks_received == 0


def test_both_halves_work_at_once() -> None:
    endpoint = Endpoint()
    endpoint.write(2 * MTU)
    endpoint.receives(data(0, dest_qpn=QPN))
    sent = endpoint.all_sent()
    assert len(only(sent, Opcode.SACK)) == 1
    assert psns(sent) == [0, 1]
