"""Which data packet leaves when, on which path, with what in its headers."""

from __future__ import annotations

from itertools import pairwise

import pytest

from openmrc.engine.congestion import qpcc
from openmrc.engine.congestion.qpcc import loss_delay
from openmrc.engine.messages import PostStatus
from openmrc.engine.paths import ev_states
from openmrc.engine.responder.sacks import RCVD_UNIT
from openmrc.engine.state.machines import EvEvent, QpState
from openmrc.engine.state.queue_pairs import nominal_size
from openmrc.engine.state.tables import NONE, WcStatus
from openmrc.units import PS_PER_US
from openmrc.wire.codes import NackReason, Opcode, TrafficClass
from tests.engine.scripted_peer import (
    MTU,
    QPN,
    Endpoint,
    ack,
    data,
    nack,
    only,
    probe_answer,
    psns,
    sack,
    steady,
    us,
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


@pytest.mark.clause("transport-ack-lost", "retransmission")
@pytest.mark.parametrize("planes", [1, 2])
def test_packet_that_asks_for_an_ack_takes_another_path_than_before(planes: int) -> None:
    for count in range(1, 9):
        endpoint = Endpoint(settings=steady(ev_burst=3 * nominal_size(MTU)), planes=planes)
        endpoint.write(count * MTU)
        newest = endpoint.all_sent()[-1]
        endpoint.receives(sack(count - 1))
        again = endpoint.sends(psn=count - 1, retransmitted=1)
        assert again.entropy != newest.entropy
        assert planes == 1 or again.port != newest.port


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


def test_a_lost_packet_does_not_stop_the_other_queue_pairs_of_its_peer() -> None:
    """The window is at its least, and one packet is never answered: the other 63 send all before its RTO."""
    settings = steady(
        mtu=MTU,
        algorithm="uet-1.0-nscc",
        trimming=False,
        bound_by_delivery=True,
        initial_cwnd=1 << 17,
        max_cwnd=3 << 20,
    )
    endpoint = Endpoint(settings=settings, peer_of=64 * (0,), layout={"sends": 8}, evs=1, active=1)
    for _ in range(1000):
        qpcc.on_loss(endpoint.engine, 0, 0, MTU)
    for _ in range(8):
        for qp in range(64):
            assert endpoint.write(qp=qp) == 0
    done = 0
    while endpoint.now < us(900):
        for packet in endpoint.all_sent():
            qp = packet.dest_qpn - 0x70_000
            if qp != 0 and packet.opcode == Opcode.WRITE_ONLY:
                number = endpoint.qp(qp).qpn
                units = -(-(packet.psn + 1) * nominal_size(MTU) // RCVD_UNIT)
                endpoint.receives({**sack(packet.psn, rcvd_bytes=units), "dest_qpn": number})
                endpoint.receives({**ack(packet.psn + 1), "dest_qpn": number})
        done += len(endpoint.completions())
        endpoint.waits(endpoint.now / 1e6 + 12)
    assert done == 63 * 8
    assert endpoint.qp(0).unack_psn == 0
