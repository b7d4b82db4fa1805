"""Which value the next packet takes: shares of planes, rotations, bursts, repetitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace

import pytest

from openmrc.engine import endpoint as doors
from openmrc.engine.paths import ev_states
from openmrc.engine.state.machines import EvEvent
from openmrc.engine.state.queue_pairs import nominal_size
from openmrc.wire.codes import NackReason, Opcode, PathMark
from tests.engine.scripted_peer import (
    MTU,
    Endpoint,
    entropy_of,
    nack,
    only,
    rotation_of,
    sack,
    steady,
)


def third_packets(planes: int, evs: int) -> Iterator[tuple[Endpoint, SimpleNamespace]]:
    """Yield an endpoint of each seed with the third of the packets that it has sent."""
    for seed in range(24):
        endpoint = Endpoint(seed=seed, planes=planes, evs=evs, active=evs)
        endpoint.write((7 + seed % 2) * MTU)
        yield endpoint, endpoint.all_sent()[2]


@pytest.mark.clause("retransmission")
def test_retransmission_would_rather_take_a_skipped_path_than_the_same_again() -> None:
    for endpoint, first in third_packets(planes=1, evs=2):
        other = entropy_of(0, 1 - (first.entropy & 1))
        ev_states.transition(endpoint.engine, 0, endpoint.ev_row(other), EvEvent.TRIMMED)
        endpoint.receives(nack(2, NackReason.NO_PKT_BUFFER, first.entropy))
        endpoint.sends(psn=2, entropy=other)


@pytest.mark.clause("retransmission")
def test_retransmission_takes_another_plane_where_there_is_one() -> None:
    for endpoint, first in third_packets(planes=2, evs=4):
        endpoint.receives(nack(2, NackReason.NO_PKT_BUFFER, first.entropy))
        assert endpoint.sends(psn=2).port != first.port


@pytest.mark.clause("retransmission")
def test_retransmission_uses_the_only_path_there_is() -> None:
    endpoint = Endpoint(planes=1, evs=1, active=1)
    endpoint.write()
    endpoint.all_sent()
    endpoint.receives(nack(0, NackReason.NO_RESOURCE))
    endpoint.sends(psn=0, retransmitted=1)


@pytest.mark.clause("spray-planes")
def test_planes_carry_equal_shares() -> None:
    endpoint = Endpoint()
    endpoint.write(400 * MTU)
    shares = Counter(packet.port for packet in endpoint.all_sent())
    assert shares == {0: 100, 1: 100, 2: 100, 3: 100}


def turns(endpoint: Endpoint, packets: int) -> list[int]:
    """Return the values that the next data packets take."""
    endpoint.write(packets * MTU)
    return [packet.entropy for packet in endpoint.all_sent() if packet.opcode <= Opcode.WRITE_ONLY_IMM]


@pytest.mark.clause("spray-rotation")
def test_rotation_uses_active_values_in_the_order_in_which_they_were_set_from_a_random_one_on() -> None:
    firsts = set()
    for seed in range(40):
        endpoint = Endpoint(planes=1, evs=10, active=8, seed=seed)
        endpoint.write(80 * MTU)
        used = [packet.entropy - entropy_of(0, 0) for packet in endpoint.all_sent()]
        assert used == [(used[0] + turn) % 8 for turn in range(80)]
        firsts.add(used[0])
    assert firsts == set(range(8))


@pytest.mark.clause("ev-skip-restored")
def test_a_marked_value_comes_later_in_the_pass_and_keeps_its_share() -> None:
    later = set()
    for seed in range(40):
        endpoint = Endpoint(planes=1, evs=16, active=16, seed=seed)
        order = turns(endpoint, 16)
        turns(endpoint, order.index(entropy_of(0, 0)) or 16)  # up to the pass that begins with the value to mark
        ev_states.transition(endpoint.engine, 0, endpoint.ev_row(entropy_of(0, 0)), EvEvent.SACK_SKIP_ONCE)
        following = turns(endpoint, 16)
        assert set(following) == set(order)
        later.add(following.index(entropy_of(0, 0)))
    assert min(later) >= 4
    assert len(later) > 8


@pytest.mark.clause("ev-skip-restored")
def test_a_marked_value_with_too_few_turns_left_waits_for_the_next_pass() -> None:
    endpoint = Endpoint(planes=1, evs=4, active=4)
    order = turns(endpoint, 4)
    ev_states.transition(endpoint.engine, 0, endpoint.ev_row(order[0]), EvEvent.SACK_SKIP_ONCE)
    assert turns(endpoint, 7) == [*order[1:], *order]


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
    endpoint.peer().cwnd = 4 * endpoint.planes * nominal_size(MTU)
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


def test_queue_pairs_of_one_number_begin_on_different_planes_at_different_nics() -> None:
    ports = []
    for seed in range(1, 65):
        endpoint = Endpoint(planes=8, seed=seed)
        endpoint.write(MTU)
        ports.append(endpoint.sends(Opcode.WRITE_ONLY).port)
    assert {ports.count(port) > 2 for port in range(8)} == {True}, ports


def test_a_queue_pair_uses_no_plane_again_before_all_others_when_ports_and_queue_pairs_take_turns() -> None:
    """As many queue pairs as ports, and one port free at a time, always in the same order."""
    endpoint = Endpoint(planes=4, peer_of=(0, 1, 2, 3))
    for qp in range(4):
        endpoint.write(64 * MTU, qp=qp)
    used: dict[int, list[int]] = {qp: [] for qp in range(4)}
    for turn in range(160):
        doors.next_packet(endpoint.engine, endpoint.now, 0, 1 << turn % 4, 1)
        packet = endpoint.engine.packets[1]
        used[packet.dest_qpn & 0xF].append(packet.port)
    for ports in used.values():
        assert len(ports) >= 30
        shares = [ports.count(port) / len(ports) for port in range(4)]
        assert min(shares) > 0.2, "ports and queue pairs do not march in step"


def test_no_port_idles_for_the_sake_of_a_round() -> None:
    endpoint = Endpoint(planes=4)
    endpoint.write(16 * MTU)
    assert [packet.port for packet in endpoint.all_sent(free_ports=0b0010)] == [1] * 16
