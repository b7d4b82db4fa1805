"""Ports that come and go, the updates that tell peers, and the messages to QPN 2."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from openmrc.engine import lifecycle
from openmrc.engine.paths import ev_states, ports
from openmrc.engine.state.machines import EvEvent, EvState, QpEvent, QpState
from openmrc.engine.state.tables import Cause, EventKind
from openmrc.wire.codes import EndpointOp, Opcode, TrafficClass
from tests.engine.scripted_peer import (
    MTU,
    PEER,
    Endpoint,
    data,
    entropy_of,
    only,
    probe,
    request,
    response,
    rotation_of,
    sack,
    steady,
    us,
)

RTT = 12.0  # us
EV_PROBE, UPDATE = EndpointOp.EV_PROBE, EndpointOp.PORT_STATUS_UPDATE


def data_ports(endpoint: Endpoint, packets: int = 40) -> set[int]:
    endpoint.write(packets * MTU)
    return {packet.port for packet in endpoint.all_sent() if packet.opcode <= Opcode.WRITE_ONLY_IMM}


@pytest.mark.clause("port-down-local")
def test_port_that_is_down_carries_nothing_at_once_and_its_values_keep_their_states() -> None:
    endpoint = Endpoint()
    for k, event in ((0, EvEvent.TRIMMED), (1, EvEvent.LOST), (2, EvEvent.DENY)):
        ev_states.transition(endpoint.engine, 0, endpoint.ev_row(entropy_of(2, k)), event)
    before = [ev.state for ev in endpoint.engine.evs]
    endpoint.set_port(2, 0)
    assert data_ports(endpoint) == {0, 1, 3}
    assert [ev.state for ev in endpoint.engine.evs] == before
    endpoint.set_port(2, 1)
    assert data_ports(endpoint) == {0, 1, 2, 3}
    bad = [endpoint.ev(entropy_of(2, k)).state for k in (1, 2)]
    assert bad == [EvState.ASSUMED_BAD, EvState.DENIED]


@pytest.mark.clause("port-down-local")
def test_port_changes_are_told_as_events_once() -> None:
    endpoint = Endpoint()
    for up in (0, 0, 1):
        endpoint.set_port(1, up)
    summary = [event for event in endpoint.events() if event.kind == EventKind.LOCAL_PORTS]
    assert [event.state for event in summary] == [0b1101, 0b1111]


@pytest.mark.clause("port-remap-delay")
def test_port_change_counts_after_the_remap_delay() -> None:
    endpoint = Endpoint(settings=steady(port_remap_delay_us=500.0))
    endpoint.set_port(1, 0)
    assert 1 in data_ports(endpoint)
    endpoint.waits(499)
    assert endpoint.node().ports_up == 0b1111
    endpoint.waits(500)
    assert endpoint.node().ports_up == 0b1101


@pytest.mark.clause("port-remap-delay")
def test_losses_until_a_port_change_counts_blame_no_value_and_data_still_takes_the_port() -> None:
    endpoint = Endpoint(settings=steady(port_remap_delay_us=500.0))
    endpoint.set_port(1, 0)
    for k in range(4):
        ev_states.on_lost(endpoint.engine, us(100), endpoint.ev_row(entropy_of(1, k)), 0, us(50))
    assert endpoint.evs_in_state(EvState.ASSUMED_BAD) == []
    assert 1 in data_ports(endpoint)
    endpoint.waits(500)
    assert 1 not in data_ports(endpoint)


def test_port_that_returns_within_the_remap_delay_was_never_away() -> None:
    endpoint = Endpoint(settings=steady(port_remap_delay_us=500.0))
    endpoint.set_port(1, 0)
    endpoint.set_port(1, 1)
    endpoint.sends_nothing(until_us=1000)
    assert endpoint.events() == []


@pytest.mark.clause("port-all-down")
def test_endpoint_without_ports_is_silent_and_goes_on_when_one_is_back() -> None:
    endpoint = Endpoint()
    for port in range(4):
        endpoint.set_port(port, 0)
    endpoint.all_sent()
    endpoint.write(MTU)
    endpoint.sends_nothing(until_us=500)
    endpoint.set_port(3, 1)
    assert {packet.port for packet in endpoint.all_sent()} == {3}


@pytest.mark.clause("port-all-down")
def test_connection_whose_packets_cannot_leave_ends_by_its_retry_budget() -> None:
    endpoint = Endpoint()
    endpoint.write(MTU)
    endpoint.all_sent()
    for port in range(4):
        endpoint.set_port(port, 0)
    endpoint.sends_nothing(until_us=100_000)
    assert (endpoint.qp().state, endpoint.qp().cause) == (QpState.ERROR, Cause.USER_TIMEOUT)


# Port Status Updates


def updates(endpoint: Endpoint, count: int) -> list[tuple[float, SimpleNamespace]]:
    """The next updates and when they were sent, in us."""
    summary = []
    for _ in range(count):
        packet = endpoint.sends(Opcode.ENDPOINT_REQUEST, endpoint_op=UPDATE)
        summary.append((endpoint.now / us(1), packet))
    return summary


@pytest.mark.clause("port-status-schedule")
@pytest.mark.parametrize("down", range(4))
def test_update_is_sent_at_0_1_and_10_round_trips_then_steadily_on_different_planes(down: int) -> None:
    endpoint = Endpoint()
    endpoint.set_port(down, 0)
    summary = updates(endpoint, 6)
    assert [at for at, _ in summary] == [0, RTT, 10 * RTT, 10 * RTT + 1e5, 10 * RTT + 2e5, 10 * RTT + 3e5]
    planes = [packet.port for _, packet in summary]
    assert down not in planes
    assert len(set(planes[:3])) == 3
    mask = 0b11110 & ~(2 << down)
    assert {packet.port_status_mask for _, packet in summary} == {mask}, "bit n is port n, from 1"
    assert {(packet.dest_qpn, packet.destination) for _, packet in summary} == {(2, PEER)}


@pytest.mark.clause("port-status-schedule")
def test_peer_of_a_new_connection_is_told_of_a_port_that_was_down_already() -> None:
    endpoint = Endpoint(peer_of=(0, 1), until=QpEvent.TO_INIT)
    endpoint.set_port(2, 0)
    endpoint.sends_nothing(until_us=1000)
    assert lifecycle.move(endpoint.engine, endpoint.now, 1, QpEvent.TO_RTR) == 1
    endpoint.sends(Opcode.ENDPOINT_REQUEST, port_status_mask=0b10110, destination=PEER + 1)
    endpoint.sends_nothing()


@pytest.mark.clause("port-status-answered")
def test_answer_ends_the_updates() -> None:
    endpoint = Endpoint()
    endpoint.set_port(0, 0)
    (_, packet), *_ = updates(endpoint, 2)
    endpoint.receives(response(UPDATE, packet.psn))
    endpoint.sends_nothing(until_us=1e6)


@pytest.mark.clause("port-status-schedule")
def test_every_peer_with_a_live_queue_pair_is_told() -> None:
    endpoint = Endpoint(peer_of=(0, 1, 1))
    endpoint.set_port(0, 0)
    endpoint.waits(0)
    assert sorted(packet.destination for packet in endpoint.all_sent()) == [PEER, PEER + 1]
    endpoint.receives(response(UPDATE, ports.STATUS_PROBE_ID + 1), source=PEER + 1)
    endpoint.waits(20)
    assert [packet.destination for packet in endpoint.all_sent()] == [PEER]


@pytest.mark.clause("port-down-remote")
def test_port_that_is_down_at_the_peer_carries_nothing() -> None:
    endpoint = Endpoint()
    endpoint.receives(request(UPDATE, 0xF000, port_status_mask=0b10110))
    assert data_ports(endpoint) == {0, 1, 3}
    summary = [event for event in endpoint.events() if event.kind == EventKind.PEER_PORTS]
    assert [event.state for event in summary] == [0b1011]
    endpoint.receives(request(UPDATE, 0xF000, port_status_mask=0b11110))
    assert data_ports(endpoint) == {0, 1, 2, 3}


@pytest.mark.clause("port-status-order")
def test_update_that_a_later_one_has_overtaken_does_not_count() -> None:
    endpoint = Endpoint()
    stamp = 0xFFF8  # and across the wrap
    later = request(UPDATE, 0xF000, port_status_mask=0b11110, tx_timestamp=(stamp + 16) & 0xFFFF)
    earlier = request(UPDATE, 0xF000, port_status_mask=0b10110, tx_timestamp=stamp)
    for update in (later, earlier):
        endpoint.receives(update)
        endpoint.sends(Opcode.ENDPOINT_RESPONSE)
    assert endpoint.peer().ports_up == 0b1111
    endpoint.receives(earlier, at_us=endpoint.now / us(1) + 5_000)  # that far apart, stamps cannot be compared
    assert endpoint.peer().ports_up == 0b1011


@pytest.mark.clause("port-down-remote")
def test_update_concerns_its_sender_only() -> None:
    endpoint = Endpoint(peer_of=(0, 1))
    endpoint.receives(request(UPDATE, 0xF000, port_status_mask=0b00010), source=PEER + 1)
    assert endpoint.peer(0).ports_up == 0b1111
    assert endpoint.peer(1).ports_up == 0b0001


def losses_blamed(endpoint: Endpoint, port: int) -> int:
    """How many values of a port are assumed bad when only the last of 40 packets is reported."""
    endpoint.all_sent()
    endpoint.receives(sack(-1, above=(39,)))
    endpoint.waits(endpoint.now / us(1) + 1500)
    return sum(endpoint.ev(entropy_of(port, k)).state == EvState.ASSUMED_BAD for k in range(2))


@pytest.mark.clause("port-down-losses")
@pytest.mark.parametrize("side", ["here", "peer"])
def test_packets_that_a_dead_port_took_with_it_are_not_held_against_its_values(side: str) -> None:
    for down in (False, True):
        endpoint = Endpoint()
        endpoint.write(40 * MTU)
        endpoint.all_sent()
        endpoint.waits(5)
        if down and side == "here":
            endpoint.set_port(2, 0)
            endpoint.set_port(2, 1)
        elif down:
            endpoint.receives(request(UPDATE, 0xF000, port_status_mask=0b10110))
            endpoint.receives(request(UPDATE, 0xF000, port_status_mask=0b11110))
        assert (losses_blamed(endpoint, 2) == 0) == down
        assert losses_blamed(endpoint, 1) > 0


@pytest.mark.clause("port-down-losses")
def test_losses_on_a_port_that_is_still_down_are_not_held_against_its_values() -> None:
    endpoint = Endpoint()
    endpoint.write(40 * MTU)
    endpoint.all_sent()
    endpoint.receives(request(UPDATE, 0xF000, port_status_mask=0b10110))
    assert losses_blamed(endpoint, 2) == 0
    assert losses_blamed(endpoint, 1) > 0


@pytest.mark.clause("endpoint-response")
@pytest.mark.parametrize("op", [UPDATE, EV_PROBE], ids=["update", "probe"])
def test_request_is_answered_at_once_on_the_path_it_came_by(op: EndpointOp) -> None:
    endpoint = Endpoint()
    endpoint.receives(
        request(op, 0x123, entropy=0xABCD, tx_timestamp=99, timestamp_unit=1, port_status_mask=0b11110), port=2
    )
    endpoint.sends(
        Opcode.ENDPOINT_RESPONSE,
        psn=0x123,
        port=2,
        entropy=0xABCD,
        tx_timestamp=99,
        timestamp_unit=1,
        traffic_class=TrafficClass.CONTROL,
        dest_qpn=2,
    )
    endpoint.sends_nothing()


@pytest.mark.clause("endpoint-known-peers")
@pytest.mark.parametrize("source", [PEER + 1, -1], ids=["stranger", "unknown"])
def test_requests_of_strangers_are_not_heard(source: int) -> None:
    endpoint = Endpoint(layout={"peers": 4})
    endpoint.receives(request(UPDATE, 0, port_status_mask=0), source=source)
    endpoint.sends_nothing()
    assert endpoint.node().wrong_source == 1


def test_other_operations_at_qpn_2_are_counted() -> None:
    endpoint = Endpoint()
    endpoint.receives({"opcode": Opcode.SACK, "dest_qpn": 2})
    assert endpoint.node().unknown_opcode == 1


# Reverse path

PROBING = steady(reverse_probe_interval_us=100.0)


@pytest.mark.clause("reverse-probe")
def test_responder_with_nothing_to_send_probes_its_control_paths_in_turn() -> None:
    endpoint = Endpoint(settings=PROBING)
    for psn in range(9):
        endpoint.receives(data(psn), at_us=psn * 100 + 50)
    probes = [packet for packet in endpoint.all_sent() if packet.opcode == Opcode.ENDPOINT_REQUEST]
    assert {packet.endpoint_op for packet in probes} == {EV_PROBE}
    assert [packet.port for packet in probes] == [1, 2, 3, 0, 1, 2, 3, 0]


@pytest.mark.clause("reverse-probe")
def test_answered_probe_makes_its_value_the_reverse_value_of_the_plane() -> None:
    endpoint = Endpoint(settings=PROBING, evs=16, active=16)
    for psn in range(20):
        endpoint.receives(data(psn), at_us=psn * 100 + 50)
        for packet in only(endpoint.all_sent(), Opcode.ENDPOINT_REQUEST):
            endpoint.receives(response(EV_PROBE, packet.psn), port=packet.port)
            rotation = endpoint.engine.rotations[packet.port]
            assert endpoint.engine.evs[rotation.ev_base + rotation.reverse].value == packet.entropy


@pytest.mark.clause("reverse-probe")
@pytest.mark.parametrize("unanswered", [-1, 2], ids=["answered", "one-plane-dead"])
def test_every_probe_of_a_return_path_draws_from_all_values_of_its_plane(unanswered: int) -> None:
    endpoint = Endpoint(settings=PROBING, evs=16, active=4)
    seen = [set[int]() for _ in range(4)]
    for psn in range(400):
        endpoint.receives(data(psn), at_us=psn * 100 + 50)
        for packet in only(endpoint.all_sent(), Opcode.ENDPOINT_REQUEST):
            seen[packet.port].add(packet.entropy)
            if packet.port != unanswered:
                endpoint.receives(response(EV_PROBE, packet.psn), port=packet.port)
    assert [len(values) for values in seen] == [16] * 4, "in 100 draws of 16 each comes with a chance of 0.998"


@pytest.mark.clause("reverse-probe")
def test_a_return_path_is_sought_on_when_the_data_has_ended_and_answered_for_a_while() -> None:
    endpoint = Endpoint(settings=PROBING, evs=16, active=16)
    endpoint.receives(data(0))
    endpoint.all_sent()
    sought = list(iter(lambda: endpoint.next(limit=us(100_000)), None))
    assert 16 < len(sought) < 64
    endpoint.receives(data(1))
    endpoint.all_sent()
    packet = endpoint.sends(Opcode.ENDPOINT_REQUEST, endpoint_op=EV_PROBE)
    endpoint.receives(response(EV_PROBE, packet.psn), port=packet.port)
    endpoint.all_sent()
    endpoint.sends_nothing(until_us=1e6)


@pytest.mark.clause("reverse-probe")
def test_the_first_return_path_found_carries_a_report_of_all_that_arrived() -> None:
    endpoint = Endpoint(planes=1, settings=PROBING, evs=16, active=16)
    for psn in (0, 1, 3):
        endpoint.receives(data(psn))
    endpoint.all_sent()
    first = endpoint.sends(Opcode.ENDPOINT_REQUEST, endpoint_op=EV_PROBE)
    second = endpoint.sends(Opcode.ENDPOINT_REQUEST, endpoint_op=EV_PROBE)
    endpoint.all_sent()
    assert first.port == second.port == 0
    endpoint.receives(response(EV_PROBE, second.psn), port=0)
    report = endpoint.sends(Opcode.SACK, entropy=second.entropy)
    assert report.cack_psn == 1
    assert report.sack_bitmap >> (3 - report.cack_psn - report.sack_offset) & 1 == 1
    endpoint.all_sent()


def proven(unanswered: int = -1) -> Endpoint:
    """An endpoint whose EV probes have been answered on all planes but one."""
    endpoint = Endpoint(settings=PROBING, evs=16, active=16)
    for psn in range(10):
        endpoint.receives(data(psn), at_us=psn * 100 + 50)
        for packet in only(endpoint.all_sent(), Opcode.ENDPOINT_REQUEST):
            if packet.port != unanswered:
                endpoint.receives(response(EV_PROBE, packet.psn), port=packet.port)
    return endpoint


@pytest.mark.clause("reverse-probe")
def test_a_late_answer_stands_for_the_value_it_came_on_and_not_for_the_one_probed_since() -> None:
    endpoint = Endpoint(settings=PROBING, planes=1, evs=64, active=64)
    probes = []
    for psn in range(3):
        endpoint.receives(data(psn), at_us=psn * 100 + 50)
        probes += only(endpoint.all_sent(), Opcode.ENDPOINT_REQUEST)
    early, later = probes
    assert early.entropy != later.entropy
    endpoint.receives(response(EV_PROBE, early.psn, entropy=early.entropy), port=0)
    (rotation,) = endpoint.engine.rotations
    assert endpoint.engine.evs[rotation.ev_base + rotation.reverse].value == early.entropy


def reverse_evs(endpoint: Endpoint) -> list[int]:
    return [rotation.ev_base + rotation.reverse for rotation in endpoint.engine.rotations]


@pytest.mark.clause("reverse-doubt")
@pytest.mark.parametrize("doubtful", [data(3), probe(7)], ids=["duplicate", "probe"])
def test_doubts_change_the_planes_of_answers_and_no_return_value(doubtful: dict[str, Any]) -> None:
    endpoint = proven(unanswered=2)
    before = reverse_evs(endpoint)
    answers = set()
    for _ in range(30):
        endpoint.receives(doubtful)
        answers |= {packet.port for packet in only(endpoint.all_sent(), Opcode.SACK)}
    assert reverse_evs(endpoint) == before
    assert answers == {0, 1, 3}, "none on the plane whose last probe was not answered"


@pytest.mark.clause("reverse-doubt")
def test_doubt_brings_the_next_probe_within_a_round_trip() -> None:
    endpoint = proven()
    endpoint.receives(data(3))
    endpoint.all_sent()
    doubted_at = endpoint.now
    endpoint.sends(Opcode.ENDPOINT_REQUEST, endpoint_op=EV_PROBE)
    assert endpoint.now - doubted_at <= us(RTT)


@pytest.mark.clause("reverse-probe")
def test_responder_sends_neither_probe_nor_answer_on_denied_values() -> None:
    endpoint = Endpoint(settings=PROBING, evs=16, active=16)
    denied = set()
    for index, ev in enumerate(endpoint.engine.evs):
        if ev.port == 1 or index % 2:
            ev_states.transition(endpoint.engine, 0, index, EvEvent.DENY)
            denied.add((ev.port, ev.value))
    seen = set()
    for psn in range(60):
        endpoint.receives(data(psn, ack_request=1), at_us=psn * 100 + 50)
        for packet in endpoint.all_sent():
            seen.add((packet.port, packet.entropy))
            if packet.opcode == Opcode.ENDPOINT_REQUEST and psn % 3 == 0:
                endpoint.receives(response(EV_PROBE, packet.psn), port=packet.port)
    assert len(seen) > 8
    assert not seen & denied


@pytest.mark.clause("reverse-probe")
def test_control_packets_prefer_planes_whose_probe_was_answered() -> None:
    endpoint = Endpoint(settings=PROBING)
    for psn in range(20):
        endpoint.receives(data(psn), at_us=psn * 100 + 50)
        for packet in only(endpoint.all_sent(), Opcode.ENDPOINT_REQUEST):
            if packet.port != 2:
                endpoint.receives(response(EV_PROBE, packet.psn), port=packet.port)
    for psn in range(20, 40):
        endpoint.receives(data(psn, ack_request=1))
    answers = [packet for packet in endpoint.all_sent() if packet.opcode != Opcode.ENDPOINT_REQUEST]
    assert {rotation_of(packet.entropy) for packet in answers} <= {0, 1, 3}


@pytest.mark.clause("reverse-probe")
def test_idle_responder_does_not_probe_and_neither_does_one_that_sends() -> None:
    idle = Endpoint(settings=PROBING)
    idle.sends_nothing(until_us=10_000)
    busy = Endpoint(settings=PROBING)
    busy.write(MTU)
    busy.receives(data(0))
    busy.all_sent()
    busy.sends_nothing(until_us=900)


@pytest.mark.clause("reverse-planes")
def test_control_packets_take_turns_over_the_planes_on_which_something_came() -> None:
    endpoint = Endpoint()
    planes = []
    for psn in range(30):  # within one message, so that there are no transport ACKs
        asks = int(psn % 3 == 2)
        endpoint.receives(
            data(
                psn,
                opcode=Opcode.WRITE_MIDDLE if psn else Opcode.WRITE_FIRST,
                dma_length=1 << 20,
                port=(0, 1, 3)[psn % 3],
                ack_request=asks,
            )
        )
        planes += [packet.port for packet in only(endpoint.all_sent(), Opcode.SACK)]
    assert Counter(planes[-9:]) == {0: 3, 1: 3, 3: 3}, "although it is a packet on plane 3 that makes every one due"


@pytest.mark.clause("reverse-planes")
def test_control_packets_go_back_the_way_the_last_packet_came_if_that_works() -> None:
    endpoint = Endpoint()
    endpoint.receives(request(UPDATE, 0xF000, port_status_mask=0b11100), port=1)
    endpoint.all_sent()
    planes = []
    for psn in range(6):
        endpoint.receives(data(psn, marked=1, port=psn % 4))
        planes += [packet.port for packet in only(endpoint.all_sent(), Opcode.SACK)]
    assert planes == [1, 1, 2, 3, 1, 1], "plane 0 does not work at the peer: the next one"


@pytest.mark.clause("reverse-planes")
def test_a_probe_is_not_repeated_on_a_plane_that_has_not_answered_one() -> None:
    endpoint = Endpoint(settings=steady(tail_probe=True), attributes={"timeout": 10**12})
    endpoint.write(MTU)
    endpoint.all_sent()
    assert {endpoint.sends(Opcode.PROBE).port for _ in range(4)} == {0, 1, 2, 3}
    endpoint.sends(Opcode.PROBE)


# Forged updates


@pytest.mark.parametrize("mask", [0, 0b11100])
def test_update_that_calls_the_port_down_by_which_it_came_is_ignored_and_not_answered(mask: int) -> None:
    endpoint = Endpoint()
    endpoint.receives(request(UPDATE, 0xF000, port_status_mask=mask), port=0)
    endpoint.sends_nothing()
    assert endpoint.node().contradictions == 1
    assert endpoint.peer().ports_up == 0b1111
    assert data_ports(endpoint) == {0, 1, 2, 3}


def test_ports_that_an_update_calls_down_are_probed_and_used_again_when_one_answers() -> None:
    endpoint = Endpoint(settings=steady(port_status_interval_us=1000))
    endpoint.receives(request(UPDATE, 0xF000, port_status_mask=0b00010), port=0)
    endpoint.all_sent()
    found = []
    for _ in range(3):
        packet = endpoint.sends(Opcode.ENDPOINT_REQUEST, endpoint_op=EV_PROBE)
        found.append(packet.port)
        endpoint.receives(response(EV_PROBE, packet.psn), port=packet.port)
    assert sorted(found) == [1, 2, 3]
    assert endpoint.now == us(3000)
    assert endpoint.peer().ports_up == 0b1111
    endpoint.sends_nothing(until_us=100_000)


def test_an_answer_that_was_under_way_when_an_update_came_does_not_contradict_it() -> None:
    endpoint = Endpoint(settings=steady(port_status_interval_us=1000))
    endpoint.receives(request(UPDATE, 0xF000, port_status_mask=0b01110), port=0)
    endpoint.all_sent()
    packet = endpoint.sends(Opcode.ENDPOINT_REQUEST, endpoint_op=EV_PROBE, port=3)
    endpoint.receives(request(UPDATE, 0xF001, port_status_mask=0b00110), port=0)
    endpoint.receives(response(EV_PROBE, packet.psn), port=3)
    assert endpoint.peer().ports_up == 0b0011


@pytest.mark.parametrize("probe_id", [0xE001, 0xF001, 0x0000])
def test_answers_count_only_from_the_peer_that_was_asked(probe_id: int) -> None:
    endpoint = Endpoint(peer_of=(0, 1), settings=steady(port_status_interval_us=1000, reverse_probe_interval_us=50))
    endpoint.set_port(3, 0)
    endpoint.receives(data(0), source=PEER, port=0)
    endpoint.receives(request(UPDATE, 0xF000, port_status_mask=0b00010), source=PEER + 1, port=0)
    endpoint.waits(3000)
    endpoint.all_sent()
    before = [(peer.ports_up, peer.status_pending) for peer in endpoint.engine.peers]
    probes = [rotation.reverse_probe for rotation in endpoint.engine.rotations]
    sender = PEER + 1 if probe_id == 0 else PEER
    endpoint.receives(response(EV_PROBE, probe_id), source=sender, port=1)
    assert [(peer.ports_up, peer.status_pending) for peer in endpoint.engine.peers] == before
    assert [rotation.reverse_probe for rotation in endpoint.engine.rotations] == probes


def test_an_answer_for_a_rotation_that_there_is_not_says_nothing_about_other_queue_pairs() -> None:
    endpoint = Endpoint(peer_of=(0, 1), settings=PROBING)
    endpoint.receives(data(0, dest_qpn=endpoint.qp(1).qpn), source=PEER + 1)
    endpoint.waits(1000)
    probes = [rotation.reverse_probe for rotation in endpoint.engine.rotations]
    assert probes == [False] * 4 + [True] * 4
    endpoint.receives(response(EV_PROBE, 4), source=PEER)  # queue pair 0 has rotations 0 to 3
    assert [rotation.reverse_probe for rotation in endpoint.engine.rotations] == probes


@pytest.mark.parametrize("mask", [-1, 0, 0b00010, 0b11110])
def test_a_controller_may_say_that_no_port_works(mask: int) -> None:
    endpoint = Endpoint()
    assert ports.ask(endpoint.engine, 0, 2, 0xABCD, 0x123, mask) == 1
    asked = {"endpoint_op": EV_PROBE} if mask < 0 else {"endpoint_op": UPDATE, "port_status_mask": mask}
    endpoint.sends(Opcode.ENDPOINT_REQUEST, psn=0x123, port=2, entropy=0xABCD, **asked)
    endpoint.sends_nothing()
