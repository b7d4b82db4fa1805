"""A plane on which everything is lost is left by all data at once, and asked until something answers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace

import pytest

from openmrc.engine import lifecycle
from openmrc.engine.paths import ev_states
from openmrc.engine.state.machines import EvEvent, EvState
from openmrc.engine.state.tables import EventKind
from openmrc.wire.codes import Opcode
from tests.engine.scripted_peer import (
    MTU,
    PEER,
    QPN,
    Endpoint,
    entropy_of,
    only,
    probe_answer,
    psns,
    rotation_of,
    sack,
    steady,
    us,
)

PLANES = 4
DEAD = 2


def losing(endpoint: Endpoint, *numbers: int, sent_us: float = 20, port: int = DEAD, qp: int = 0) -> Endpoint:
    """Let EVs of a port lose a packet each, at 40 us."""
    endpoint.now = us(40)
    for k in numbers:
        ev_states.on_lost(endpoint.engine, endpoint.now, endpoint.ev_row(entropy_of(port, k), qp), 0, us(sent_us))
    return endpoint


def silent_for_all(endpoint: Endpoint | None = None) -> Endpoint:
    """Let two of three queue pairs, to three peers, find the port silent."""
    endpoint = endpoint or Endpoint(peer_of=(0, 1, 2))
    for qp in (0, 1):
        losing(endpoint, 0, 1, qp=qp)
    return endpoint


def planes_of_data(endpoint: Endpoint, packets: int = 40, qp: int = 0) -> set[int]:
    endpoint.write(packets * MTU, qp=qp)
    data = [packet for packet in endpoint.all_sent() if packet.opcode <= Opcode.WRITE_ONLY_IMM]
    assert len(data) == packets
    return {rotation_of(packet.entropy) for packet in data}


def next_probe(endpoint: Endpoint) -> SimpleNamespace:
    endpoint.waits(endpoint.now / us(1))
    return only(endpoint.all_sent(), Opcode.PROBE)[-1]


@pytest.mark.clause("port-silent")
def test_after_two_evs_in_a_row_the_others_of_the_port_lose_nothing() -> None:
    endpoint = losing(Endpoint(), 0, 1)
    assert planes_of_data(endpoint) == {0, 1, 3}
    assert endpoint.ev(entropy_of(DEAD, 2)).state == EvState.GOOD


def test_without_the_rule_only_values_that_lost_a_packet_are_left() -> None:
    endpoint = losing(Endpoint(settings=steady(silence=False)), 0, 1)
    assert planes_of_data(endpoint) == set(range(PLANES))
    assert EventKind.SILENT_PORT not in {event.kind for event in endpoint.events()}


@pytest.mark.clause("port-silent")
def test_one_lost_ev_is_a_broken_path_not_a_broken_plane() -> None:
    assert planes_of_data(losing(Endpoint(), 0)) == set(range(PLANES))


@pytest.mark.clause("port-silent")
def test_losses_on_two_planes_are_two_broken_paths() -> None:
    endpoint = losing(Endpoint(), 0)
    losing(endpoint, 0, port=1)
    assert planes_of_data(endpoint) == set(range(PLANES))


@pytest.mark.clause("port-silent")
def test_a_port_on_which_something_sent_later_arrived_is_not_silent() -> None:
    endpoint = Endpoint()
    endpoint.now = us(25)
    endpoint.write(PLANES * MTU)
    arrived = endpoint.all_sent()
    endpoint.receives(sack(PLANES - 1), at_us=37)
    assert {rotation_of(packet.entropy) for packet in arrived} == set(range(PLANES))
    assert planes_of_data(losing(endpoint, 0, 1, sent_us=24)) == set(range(PLANES))
    assert planes_of_data(losing(endpoint, 2, 3, sent_us=26)) == set(range(PLANES)) - {DEAD}


@pytest.mark.clause("port-silent")
def test_the_reports_of_a_peer_show_a_dead_plane() -> None:
    endpoint = Endpoint(evs=8, active=8)
    endpoint.write(24 * MTU)
    sent = endpoint.all_sent()
    lost = [packet.psn for packet in sent if rotation_of(packet.entropy) == DEAD]
    assert len(lost) == 6
    arrived = tuple(sorted(set(psns(sent)) - set(lost)))
    first = min(lost)
    endpoint.receives(sack(first - 1, tuple(psn for psn in arrived if psn > first)), at_us=12)
    endpoint.receives(sack(first - 1, tuple(psn for psn in arrived if psn > first)), at_us=60)
    endpoint.waits(100)
    again = only(endpoint.all_sent(), Opcode.WRITE_MIDDLE)
    assert {packet.psn for packet in again if packet.retransmitted} >= set(lost) - {0, 23}
    assert DEAD not in planes_of_data(endpoint)


@pytest.mark.clause("port-silent")
def test_a_silent_port_is_probed_at_once_and_an_answer_ends_the_silence() -> None:
    endpoint = losing(Endpoint(), 0, 1)
    probe = next_probe(endpoint)
    assert rotation_of(probe.entropy) == DEAD
    assert endpoint.ev(probe.entropy).state == EvState.GOOD
    assert DEAD not in planes_of_data(endpoint, 8)
    endpoint.receives(probe_answer(probe.probe_id, -1), at_us=52, source=PEER)
    assert planes_of_data(endpoint) == set(range(PLANES))


@pytest.mark.clause("port-silent")
def test_each_probe_takes_another_path_and_waits_twice_as_long() -> None:
    endpoint = losing(Endpoint(evs=8, active=8, settings=steady(probe_interval_max_us=100)), 0, 1)
    times, paths_tried = [], set()
    for _ in range(6):
        probe = endpoint.sends(Opcode.PROBE)
        times.append(endpoint.now / us(1))
        paths_tried.add(probe.entropy)
    assert [round(later - earlier) for earlier, later in pairwise(times)] == [12, 24, 48, 96, 100]
    assert len(paths_tried) >= 5


@pytest.mark.clause("port-silent")
def test_if_all_ports_are_silent_all_are_used() -> None:
    endpoint = Endpoint()
    for port in range(PLANES):
        losing(endpoint, 0, 1, port=port)
    assert planes_of_data(endpoint) == set(range(PLANES))


@pytest.mark.clause("port-silent")
def test_the_only_other_port_that_works_may_not_be_silent() -> None:
    endpoint = losing(Endpoint(planes=2), 0, 1, port=1)
    for k in range(4):
        ev_states.transition(endpoint.engine, endpoint.now, endpoint.ev_row(entropy_of(0, k)), EvEvent.DENY)
    assert planes_of_data(endpoint) == {1}


@pytest.mark.clause("port-silent")
def test_a_port_that_was_down_is_given_a_new_chance() -> None:
    endpoint = losing(Endpoint(), 0, 1)
    endpoint.set_port(DEAD, 0)
    assert DEAD not in planes_of_data(endpoint, 8)
    endpoint.set_port(DEAD, 1)
    assert planes_of_data(endpoint) == set(range(PLANES))


@pytest.mark.clause("port-silent")
def test_losses_on_a_port_that_is_down_do_not_make_it_silent() -> None:
    endpoint = Endpoint()
    endpoint.set_port(DEAD, 0)
    losing(endpoint, 0, 1)
    endpoint.set_port(DEAD, 1)
    assert planes_of_data(endpoint) == set(range(PLANES))


# Shared by the queue pairs of an endpoint


@pytest.mark.clause("port-silent")
def test_a_port_silent_towards_two_peers_is_silent_for_all() -> None:
    endpoint = Endpoint(peer_of=(0, 1, 2))
    losing(endpoint, 0, 1, qp=0)
    assert planes_of_data(endpoint, qp=2) == set(range(PLANES))
    losing(endpoint, 0, 1, qp=1)
    assert planes_of_data(endpoint, qp=2) == set(range(PLANES)) - {DEAD}


@pytest.mark.clause("port-silent")
def test_a_port_silent_towards_one_peer_may_be_dead_there() -> None:
    endpoint = Endpoint(peer_of=(0, 0, 1))
    losing(endpoint, 0, 1, qp=0)
    losing(endpoint, 0, 1, qp=1)
    assert planes_of_data(endpoint, qp=2) == set(range(PLANES))


@pytest.mark.clause("port-silent")
def test_an_answer_to_one_queue_pair_ends_the_silence_for_those_that_lost_nothing() -> None:
    endpoint = silent_for_all()
    probe = next_probe(endpoint)
    endpoint.receives(probe_answer(probe.probe_id, -1, dest_qpn=QPN + 1), at_us=52, source=PEER + 1)
    assert planes_of_data(endpoint, qp=2) == set(range(PLANES))
    assert DEAD not in planes_of_data(endpoint, qp=0)


@pytest.mark.clause("port-silent")
def test_the_begin_and_the_end_of_a_silence_are_reported_and_counted() -> None:
    endpoint = losing(Endpoint(), 0, 1)
    probe = next_probe(endpoint)
    endpoint.receives(probe_answer(probe.probe_id, -1), at_us=52)
    reported = [(event.port, event.state) for event in endpoint.events() if event.kind == EventKind.SILENT_PORT]
    assert reported == [(DEAD, 1), (DEAD, 0)]
    assert [port.silences for port in endpoint.engine.ports] == [int(port == DEAD) for port in range(PLANES)]


@pytest.mark.clause("port-silent")
def test_what_was_sent_before_the_losses_does_not_end_the_silence() -> None:
    endpoint = Endpoint(peer_of=(0, 1, 2))
    endpoint.write(PLANES * MTU, qp=2)
    endpoint.all_sent()
    silent_for_all(endpoint)
    endpoint.receives(sack(PLANES - 1, dest_qpn=QPN + 2), source=PEER + 2)
    assert planes_of_data(endpoint, qp=2) == set(range(PLANES)) - {DEAD}


@pytest.mark.clause("port-silent")
@pytest.mark.parametrize("ends", [lifecycle.reset, lambda engine, qp: lifecycle.fail(engine, us(50), qp, 1)])
def test_a_queue_pair_that_ends_leaves_no_silence_behind_that_nobody_probes(ends: Callable[..., None]) -> None:
    endpoint = silent_for_all()
    ends(endpoint.engine, 0)
    assert planes_of_data(endpoint, qp=2) == set(range(PLANES))


@pytest.mark.clause("port-silent")
def test_a_port_that_was_down_is_given_a_new_chance_by_all() -> None:
    endpoint = silent_for_all()
    endpoint.set_port(DEAD, 0)
    endpoint.set_port(DEAD, 1)
    assert [planes_of_data(endpoint, qp=qp) for qp in range(3)] == [set(range(PLANES))] * 3


# What it says about losses


def varied(**changes: object) -> tuple[Endpoint, list[SimpleNamespace]]:
    """An endpoint whose round trips vary widely, and the packets that it has sent at 40 us."""
    endpoint = Endpoint(peer_of=(0, 1), settings=steady(**changes))
    endpoint.now = us(40)
    endpoint.peer().srtt, endpoint.peer().rttvar = us(12), us(100)
    endpoint.write(2 * PLANES * MTU)
    return endpoint, endpoint.all_sent()


def answered(endpoint: Endpoint, sent: list[SimpleNamespace], at_us: float) -> list[int]:
    """Report at a time all packets but those of the dead plane; return what is sent again then."""
    lost = [packet.psn for packet in sent if rotation_of(packet.entropy) == DEAD]
    above = tuple(packet.psn for packet in sent if packet.psn > lost[0] and packet.psn not in lost)
    endpoint.receives(sack(lost[0] - 1, above), at_us=at_us)
    endpoint.waits(at_us)
    return [packet.psn for packet in endpoint.all_sent() if packet.psn in lost]


@pytest.mark.clause("port-silent")
@pytest.mark.parametrize("is_doubted", [True, False])
def test_a_hole_on_a_port_that_loses_everything_is_lost_not_late(is_doubted: bool) -> None:
    endpoint, sent = varied()
    if is_doubted:
        losing(endpoint, 0, 1, qp=1)
    assert (answered(endpoint, sent, at_us=40 + 30) != []) == is_doubted


@pytest.mark.clause("port-silent")
def test_on_other_ports_a_hole_waits_as_long_as_round_trips_vary() -> None:
    endpoint, sent = varied()
    losing(endpoint, 0, 1, qp=1, port=(DEAD + 1) % PLANES)
    assert answered(endpoint, sent, at_us=40 + 30) == []
    assert answered(endpoint, sent, at_us=40 + 12 + 4 * 100 + 1) != []


@pytest.mark.clause("port-silent")
@pytest.mark.parametrize(("later_us", "delays"), [(5, 2), (12, 1)])
def test_without_trimming_a_hole_waits_longer_unless_something_sent_a_round_trip_later_arrived(
    later_us: float, delays: int
) -> None:
    delay_us = 12 + 4 * 100
    endpoint, sent = varied(trimming=False, gap_packets=100)
    endpoint.waits(40 + later_us)
    endpoint.write(MTU)
    sent += endpoint.all_sent()
    for number in range(1, delays):
        assert answered(endpoint, sent, at_us=40 + number * delay_us + 1) == []
    assert answered(endpoint, sent, at_us=40 + delays * delay_us + 1) != []


@pytest.mark.clause("port-silent")
def test_a_controller_that_denies_all_paths_of_those_who_ask_leaves_the_port_to_the_others() -> None:
    endpoint = silent_for_all()
    for qp in (0, 1):
        for k in range(4):
            row = endpoint.ev_row(entropy_of(DEAD, k), qp)
            ev_states.transition(endpoint.engine, endpoint.now, row, EvEvent.DENY)
    endpoint.waits(100)
    assert planes_of_data(endpoint, qp=2) == set(range(PLANES))
