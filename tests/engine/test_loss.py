"""When a packet that nothing reports is lost, and when it is not."""

from __future__ import annotations

import pytest

from openmrc.core.rows import column
from openmrc.engine.congestion.qpcc import loss_delay
from openmrc.engine.state import clock
from openmrc.units import PS_PER_US
from openmrc.wire.codes import NackReason, Opcode
from tests.engine.scripted_peer import (
    MTU,
    Endpoint,
    confirm,
    nack,
    probe_answer,
    psns,
    sack,
    steady,
)


@pytest.mark.clause("loss-gap")
def test_holes_that_a_second_answer_of_the_same_moment_fills_are_not_lost() -> None:
    endpoint = Endpoint()
    endpoint.write(12 * MTU)
    endpoint.all_sent()
    endpoint.receives(sack(1, (11,)), at_us=500)  # long waited for: the endpoint was kept from its processor
    endpoint.receives(sack(11))
    assert endpoint.qp().inferred_losses == 0


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
    assert sum(column(endpoint.engine.ev_failures, "false_losses")) == 0, "no EV was blamed"


@pytest.mark.clause("tail-probe")
def test_answered_probe_proves_that_what_was_sent_before_it_is_lost() -> None:
    endpoint = Endpoint(settings=steady(tail_probe=True))
    endpoint.write(2 * MTU)
    endpoint.all_sent()
    asked = endpoint.sends(Opcode.PROBE)
    endpoint.receives(probe_answer(asked.probe_id, -1))
    assert psns([endpoint.sends(retransmitted=1), endpoint.sends(retransmitted=1)]) == [0, 1]
    assert endpoint.now < 1000e6, "long before the timeout"


@pytest.mark.clause("tail-probe")
def test_what_an_answered_probe_overtook_by_two_round_trips_is_lost_however_much_they_vary() -> None:
    endpoint = Endpoint(settings=steady(tail_probe=True, trimming=False), attributes={"timeout": 10**12})
    endpoint.peer().srtt, endpoint.peer().rttvar = 12_000_000, 500_000_000
    endpoint.write(2 * MTU)
    endpoint.all_sent()
    asked = endpoint.sends(Opcode.PROBE, at_us=24)
    endpoint.receives(probe_answer(asked.probe_id, -1), at_us=36)
    assert psns([endpoint.sends(retransmitted=1, at_us=36), endpoint.sends(retransmitted=1, at_us=36)]) == [0, 1]
