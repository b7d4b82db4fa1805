"""When a responder reports, and what the report says."""

from __future__ import annotations

import pytest

from openmrc.engine.state.queue_pairs import nominal_size
from openmrc.wire.codes import Opcode, PathMark, TrafficClass, Trim
from tests.engine.scripted_peer import MTU, Endpoint, data, only, probe, steady, us

QUIET = steady(sack_threshold=1 << 30, ack_every=1 << 30)  # bytes alone never make a report due


def started(expected_psn: int = 0) -> Endpoint:
    """A responder that has reported its first packet."""
    endpoint = Endpoint(settings=QUIET, expected_psn=expected_psn)
    endpoint.receives(data(expected_psn, opcode=Opcode.WRITE_FIRST, dma_length=1 << 20))
    endpoint.all_sent()
    return endpoint


def middle(psn: int, **fields: int) -> dict[str, int]:
    opcode = Opcode.WRITE_MIDDLE if psn else Opcode.WRITE_FIRST
    return data(psn, **{"opcode": opcode, "dma_length": 1 << 20, **fields})


@pytest.mark.clause("sack-trigger-bytes")
def test_sack_is_due_after_enough_bytes() -> None:
    endpoint = Endpoint(settings=steady(sack_threshold=1000, sack_minimum=100))
    endpoint.receives(middle(0))
    endpoint.all_sent()
    due = []
    for psn in range(1, 9):
        endpoint.receives(middle(psn))
        due.append(len(endpoint.all_sent()))
    assert due == [0, 0, 0, 1, 0, 0, 0, 1], "4 x 256 bytes pass the threshold of 1000"


@pytest.mark.clause("sack-trigger-trimmed")
def test_trimmed_packet_that_asks_draws_a_sack_behind_its_nack() -> None:
    endpoint = started()
    endpoint.receives(middle(1))
    endpoint.receives(middle(3))
    endpoint.sends_nothing()
    endpoint.receives(middle(2, trimmed=Trim.TRIMMED_LASTHOP))
    endpoint.sends(Opcode.NACK, nack_psn=2)
    endpoint.sends_nothing()
    endpoint.receives(middle(4, trimmed=Trim.TRIMMED_LASTHOP, ack_request=1))
    endpoint.sends(Opcode.NACK, nack_psn=4)
    report = endpoint.sends(Opcode.SACK, cack_psn=1, ack_psn_offset=0, rcvd_bytes=-(-3 * nominal_size(MTU) // 256))
    assert report.sack_bitmap << report.sack_offset == 0b100, "PSN 3, not the one that was trimmed"
    endpoint.receives(middle(5, trimmed=Trim.TRIMMED_LASTHOP, ack_request=1))
    endpoint.sends(Opcode.NACK, nack_psn=5)
    endpoint.sends_nothing()  # nothing has arrived since


@pytest.mark.clause("sack-trigger-trimmed")
def test_request_of_a_trimmed_packet_with_nothing_to_report_holds_for_the_next_arrival() -> None:
    endpoint = started()
    endpoint.receives(middle(1, trimmed=Trim.TRIMMED_LASTHOP, ack_request=1))
    endpoint.sends(Opcode.NACK, nack_psn=1)
    endpoint.sends_nothing()
    endpoint.receives(middle(2))
    report = endpoint.sends(Opcode.SACK, cack_psn=0)
    assert report.sack_bitmap << report.sack_offset == 0b100, "PSN 2"
    endpoint.receives(middle(3))
    endpoint.sends_nothing()


@pytest.mark.clause("sack-trigger-bytes")
def test_small_packets_count_a_minimum() -> None:
    endpoint = Endpoint(settings=steady(sack_threshold=4096, sack_minimum=1024))
    endpoint.receives(data(0))
    endpoint.all_sent()
    due = []
    for psn in range(1, 6):
        endpoint.receives(data(psn, payload_length=1, dma_length=1))
        due.append(len(only(endpoint.all_sent(), Opcode.SACK)))
    assert due == [0, 0, 0, 0, 1]


@pytest.mark.clause("sack-trigger-request")
def test_sack_is_due_on_request() -> None:
    endpoint = started()
    endpoint.receives(middle(1, ack_request=1))
    assert len(only(endpoint.all_sent(), Opcode.SACK)) == 1


@pytest.mark.clause("sack-trigger-request")
def test_request_is_answered_again_when_the_last_hole_closes() -> None:
    endpoint = started()
    endpoint.receives(middle(3, ack_request=1))
    assert len(only(endpoint.all_sent(), Opcode.SACK)) == 1
    endpoint.receives(middle(1))
    endpoint.sends_nothing()
    endpoint.receives(middle(2))
    endpoint.sends(Opcode.SACK, cack_psn=3, ooo_count=0)
    endpoint.receives(middle(5))
    endpoint.receives(middle(4))
    endpoint.sends_nothing()


@pytest.mark.clause("sack-trigger-ecn")
def test_sack_is_due_at_once_for_a_marked_packet_and_names_its_path() -> None:
    endpoint = started()
    endpoint.receives(middle(1, marked=1, entropy=0xE777))
    endpoint.sends(Opcode.SACK, path_mark=PathMark.SKIP_ONCE, reflected_entropy=0xE777, ack_psn_offset=0)
    endpoint.sends_nothing()


@pytest.mark.clause("sack-trigger-ecn")
def test_every_marked_packet_has_a_sack_of_its_own() -> None:
    endpoint = started()
    for psn in (1, 2):
        endpoint.receives(middle(psn, marked=1, entropy=0xE700 + psn))
    summary = endpoint.all_sent()
    assert [packet.reflected_entropy for packet in summary] == [0xE701, 0xE702]
    assert [packet.cack_psn for packet in summary] == [2, 2], "what has arrived is as fresh as can be"
    assert [packet.ack_psn_offset for packet in summary] == [-1, 0]


@pytest.mark.clause("sack-trigger-retransmission")
def test_sack_is_due_for_a_retransmitted_packet_and_says_that_it_was_one() -> None:
    endpoint = started()
    endpoint.receives(middle(1, retransmitted=1))
    endpoint.sends(Opcode.SACK, retransmitted=1, ack_psn_offset=0)


@pytest.mark.clause("sack-trigger-probe")
def test_sack_answers_a_reliability_probe() -> None:
    endpoint = started()
    endpoint.receives(probe(0xBEEF, entropy=0xE321))
    endpoint.sends(
        Opcode.SACK,
        is_probe_answer=1,
        ack_psn_offset=0xBEEF,
        reflected_entropy=0xE321,
        tx_timestamp=55,
        cack_psn=0,
        path_mark=PathMark.NONE,
        traffic_class=TrafficClass.CONTROL,
    )


@pytest.mark.clause("sack-trigger-probe")
def test_marked_probe_is_answered_with_the_mark() -> None:
    endpoint = started()
    endpoint.receives(probe(1, marked=1))
    endpoint.sends(Opcode.SACK, path_mark=PathMark.SKIP_ONCE)


def test_sack_is_due_for_the_first_packet_and_for_duplicates_and_for_nothing_else() -> None:
    endpoint = Endpoint(settings=QUIET)
    endpoint.receives(middle(0))
    endpoint.sends(Opcode.SACK, cack_psn=0)
    endpoint.receives(middle(2))
    endpoint.sends_nothing()
    endpoint.receives(middle(2))
    endpoint.sends(Opcode.SACK, cack_psn=0)
    endpoint.sends_nothing()


def test_unmarked_sacks_that_wait_are_one() -> None:
    endpoint = started()
    for psn in (1, 2, 3):
        endpoint.receives(middle(psn, ack_request=1))
    assert len(only(endpoint.all_sent(), Opcode.SACK)) == 1


@pytest.mark.clause("sack-bitmap")
def test_worked_example_of_the_bitmap() -> None:
    endpoint = Endpoint(settings=QUIET)
    for psn in range(12):
        if psn not in (5, 8):
            endpoint.receives(middle(psn, ack_request=int(psn == 11)))
    expected = sum(1 << bit for bit in (1, 2, 4, 5, 6))
    endpoint.sends(Opcode.SACK, cack_psn=4, sack_offset=1, sack_bitmap=expected, ooo_count=5)


@pytest.mark.clause("sack-bitmap-base")
def test_reports_go_on_from_the_oldest_not_yet_reported_until_they_reach_the_newest() -> None:
    endpoint = started()
    for psn in range(2, 202):
        endpoint.receives(middle(psn))
    endpoint.receives(probe(0))
    summary = [bits(packet) for packet in only(endpoint.all_sent(), Opcode.SACK)]
    assert summary[0] == list(range(2, 65))
    assert summary[1] == list(range(65, 129))
    assert summary[2] == list(range(129, 193))
    assert summary[3] == list(range(138, 202)), "the last map ends with the newest"
    assert len(summary) == 4


@pytest.mark.clause("sack-say-again")
def test_probe_makes_the_responder_say_everything_again() -> None:
    endpoint = started()
    for psn in range(2, 150):
        endpoint.receives(middle(psn))
    endpoint.receives(probe(0))
    endpoint.all_sent()
    endpoint.receives(probe(1))
    summary = {psn for packet in only(endpoint.all_sent(), Opcode.SACK) for psn in bits(packet)}
    assert summary == set(range(2, 150)), "the SACKs that said it may have been lost"


@pytest.mark.clause("sack-bitmap-base")
def test_straggler_behind_what_was_reported_is_in_the_next_report() -> None:
    endpoint = started()
    for psn in (*range(2, 50), *range(51, 202)):
        endpoint.receives(middle(psn))
    for number in range(3):
        endpoint.receives(probe(number))
    endpoint.all_sent()
    endpoint.receives(middle(50, ack_request=1))
    assert bits(endpoint.sends(Opcode.SACK))[0] == 50


@pytest.mark.clause("sack-bitmap")
def test_bitmap_is_a_signed_pattern_when_its_last_bit_is_set() -> None:
    endpoint = started()
    endpoint.receives(middle(64, ack_request=1))
    endpoint.sends(Opcode.SACK, sack_offset=1, sack_bitmap=-(1 << 63))


@pytest.mark.clause("cc-state-rcvd-bytes")
def test_received_bytes_are_nominal_and_rounded_up_to_256() -> None:
    endpoint = Endpoint(settings=QUIET)
    for psn in range(3):
        endpoint.receives(middle(psn, ack_request=1))
        expected = -(-(psn + 1) * nominal_size(MTU) // 256)
        endpoint.sends(Opcode.SACK, rcvd_bytes=expected, rcv_cwnd_pen=0, restore_cwnd=0)
        endpoint.all_sent()


@pytest.mark.clause("cc-state-rcvd-bytes")
def test_received_bytes_wrap_after_24_bits_of_256() -> None:
    endpoint = started()
    endpoint.qp().received_bytes = (1 << 32) - 100
    endpoint.receives(middle(1, ack_request=1))
    endpoint.sends(Opcode.SACK, rcvd_bytes=-(-(nominal_size(MTU) - 100) // 256))


@pytest.mark.clause("receiver-penalty")
def test_receiver_penalty_of_the_deployment_is_in_every_sack() -> None:
    endpoint = Endpoint(settings=steady(receiver_penalty=64))
    endpoint.receives(data(0))
    endpoint.sends(Opcode.SACK, rcv_cwnd_pen=64, restore_cwnd=1)


@pytest.mark.clause("always-skip-criterion")
def test_path_whose_packets_nearly_all_come_marked_is_called_persistently_bad() -> None:
    endpoint = Endpoint(settings=steady(sack_threshold=1 << 30, always_skip_packets=16))
    marks = []
    for psn in range(40):
        endpoint.receives(middle(psn, marked=1), at_us=psn * 10)
        marks += [packet.path_mark for packet in only(endpoint.all_sent(), Opcode.SACK)]
    assert marks[:15] == [PathMark.SKIP_ONCE] * 15
    assert marks[15] == PathMark.ALWAYS_SKIP
    assert marks.count(PathMark.ALWAYS_SKIP) == 2


@pytest.mark.clause("always-skip-criterion")
def test_path_with_some_marks_is_never_called_persistently_bad() -> None:
    endpoint = Endpoint(settings=steady(always_skip_packets=16))
    marks = []
    for psn in range(100):
        endpoint.receives(middle(psn, marked=psn % 2), at_us=psn * 10)
        marks += [packet.path_mark for packet in endpoint.all_sent() if packet.opcode == Opcode.SACK]
    assert PathMark.ALWAYS_SKIP not in marks


@pytest.mark.clause("always-skip-criterion")
def test_a_path_is_judged_anew_after_four_times_as_many_packets() -> None:
    endpoint = Endpoint(settings=steady(always_skip_packets=16))
    marks = []
    for psn in range(80):
        endpoint.receives(middle(psn, marked=int(psn >= 64)), at_us=psn * 10)
        marks += [packet.path_mark for packet in endpoint.all_sent() if packet.opcode == Opcode.SACK]
    assert [mark for mark in marks if mark != PathMark.NONE] == [PathMark.SKIP_ONCE] * 15 + [PathMark.ALWAYS_SKIP]


@pytest.mark.clause("control-class")
def test_reports_travel_in_the_control_class_without_a_timestamp_header() -> None:
    endpoint = Endpoint()
    endpoint.receives(data(0))
    for packet in endpoint.all_sent():
        assert packet.traffic_class == TrafficClass.CONTROL
        assert packet.timestamped == 0
        assert packet.dest_qpn == 0x70_000


def test_full_control_ring_drops_and_counts() -> None:
    endpoint = Endpoint(settings=QUIET, layout={"controls": 4})
    for psn in range(8):
        endpoint.receives(middle(psn, marked=1))
    assert endpoint.node().control_dropped == 4
    assert len(endpoint.all_sent()) == 4
    assert endpoint.now < us(1)


def bits(packet: object) -> list[int]:
    """The PSNs a SACK's bitmap names."""
    base = packet.cack_psn + packet.sack_offset  # type: ignore[attr-defined]
    return [base + bit for bit in range(64) if (packet.sack_bitmap >> bit) & 1]  # type: ignore[attr-defined]
