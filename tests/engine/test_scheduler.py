"""Whose turn it is: rings against plain lists, and fairness of bytes."""

from __future__ import annotations

import itertools
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.core import ring as rings
from openmrc.engine.congestion import scheduler
from openmrc.engine.state.queue_pairs import nominal_size
from openmrc.engine.state.tables import NONE, Engine
from tests.draws import examples
from tests.engine.scripted_peer import MTU, PEER, Endpoint, sack, steady
from tests.naive.rings import Rings

PEER_OF = (0, 0, 0, 1, 1, 2)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["wake", "wake_peer", "turn_peers", "drop_peer", "turn_qps", "drop_qp", "forget"]),
        st.integers(0, len(PEER_OF) - 1),
    ),
    max_size=40,
)


@settings(max_examples=examples(80), deadline=None)
@given(steps=STEPS)
def test_rings_agree_with_lists(steps: list[tuple[str, int]]) -> None:
    endpoint = Endpoint(peer_of=PEER_OF)
    engine, naive = endpoint.engine, Rings(3)
    for row in engine.qps:
        row.solicit_psn = 0  # all want to send, and nothing else is disturbed
    for step, qp in steps:
        take(engine, naive, step, qp, PEER_OF[qp])
        assert ring(engine.endpoints[0].ready_tail, engine.peers) == list(naive.peers)
        assert engine.endpoints[0].ready_count == len(naive.peers)
        for peer in range(3):
            assert ring(engine.peers[peer].ready_tail, engine.qps) == list(naive.qps[peer])
            assert engine.peers[peer].ready_count == len(naive.qps[peer])


def take(engine: Engine, naive: Rings, step: str, qp: int, peer: int) -> None:
    """Take one step in both worlds, where it is allowed."""
    match step:
        case "wake":
            scheduler.wake(engine, qp)
            naive.wake(peer, qp)
        case "wake_peer":
            scheduler.wake_peer(engine, peer)
            naive.wake_peer(peer)
        case "turn_peers" if naive.peers:
            rings.turn(engine.endpoints[0], engine.peers)
            naive.turn_peers()
        case "drop_peer" if naive.peers:
            rings.drop_front(engine.endpoints[0], engine.peers)
            naive.drop_front_peer()
        case "turn_qps" if naive.qps[peer]:
            rings.turn(engine.peers[peer], engine.qps)
            naive.turn_qps(peer)
        case "drop_qp" if naive.qps[peer]:
            scheduler.drop_front_qp(engine, peer)
            naive.drop_front_qp(peer)
        case "forget":
            scheduler.forget(engine, qp)
            naive.forget(peer, qp)


def ring(tail: int, rows: object) -> list[int]:
    """The members of a linked ring, front first."""
    members: list[int] = []
    if tail == NONE:
        return members
    row = rows[tail].next_ready  # type: ignore[index]
    while True:
        members.append(row)
        if row == tail:
            return members
        row = rows[row].next_ready  # type: ignore[index]


def qp_of(packet: SimpleNamespace) -> int:
    return int(packet.dest_qpn - 0x70_000)


@pytest.mark.clause("scheduler-drr")
@pytest.mark.parametrize("lengths", [(MTU, MTU), (MTU, MTU // 4)], ids=["equal", "unequal"])
def test_queue_pairs_to_one_peer_share_its_window_by_bytes(lengths: tuple[int, int]) -> None:
    endpoint = Endpoint(peer_of=(0, 0), layout={"sends": 512})
    for _ in range(400):
        for qp, length in enumerate(lengths):
            endpoint.write(length, qp=qp)
    sizes: Counter[int] = Counter()
    for packet in endpoint.all_sent()[:300]:
        sizes[qp_of(packet)] += nominal_size(packet.payload_length)
    assert abs(sizes[0] - sizes[1]) <= 2 * nominal_size(MTU)


@pytest.mark.clause("scheduler-drr")
def test_queue_pair_with_a_long_message_does_not_starve_another() -> None:
    endpoint = Endpoint(peer_of=(0, 0))
    endpoint.write(200 * MTU, qp=0)
    assert len([endpoint.next(0) for _ in range(5)]) == 5
    endpoint.write(MTU, qp=1)
    following = [qp_of(packet) for packet in (endpoint.next(0) for _ in range(3)) if packet]
    assert 1 in following


@pytest.mark.clause("scheduler-peers")
def test_peers_take_turns() -> None:
    endpoint = Endpoint(peer_of=(0, 1, 2))
    for qp in range(3):
        endpoint.write(10 * MTU, qp=qp)
    turns = [packet.destination - PEER for packet in endpoint.all_sent()]
    assert len(turns) == 30
    assert all(set(turns[at : at + 3]) == {0, 1, 2} for at in range(0, 30, 3))


@pytest.mark.clause("scheduler-peers")
def test_closed_window_of_one_peer_does_not_hold_up_another() -> None:
    size = nominal_size(MTU)
    endpoint = Endpoint(peer_of=(0, 1), settings=steady(algorithm="uet-1.0-nscc", mtu=MTU, max_cwnd=4 * size))
    endpoint.peer(0).cwnd = size
    for qp in range(2):
        endpoint.write(20 * MTU, qp=qp)
    assert Counter(qp_of(packet) for packet in endpoint.all_sent()) == {0: 1, 1: 4}
    endpoint.receives(sack(0, rcvd_bytes=-(-size // 256)))
    assert {qp_of(packet) for packet in endpoint.all_sent()} == {0}


@pytest.mark.clause("qpcc-shared")
def test_queue_pairs_to_one_peer_share_one_window() -> None:
    size = nominal_size(MTU)
    endpoint = Endpoint(peer_of=(0, 0), settings=steady(algorithm="uet-1.0-nscc", mtu=MTU, max_cwnd=6 * size))
    for qp in range(2):
        endpoint.write(20 * MTU, qp=qp)
    assert Counter(qp_of(packet) for packet in endpoint.all_sent()) == {0: 3, 1: 3}
    assert endpoint.peer().inflight == sum(endpoint.qp(qp).inflight for qp in range(2)) == 6 * size


@pytest.mark.clause("scheduler-drr")
def test_a_turn_is_a_burst_whose_last_packet_asks_for_an_answer() -> None:
    endpoint = Endpoint(peer_of=(0, 0, 0), settings=steady(ev_burst=8 * nominal_size(MTU)), layout={"sends": 8})
    for qp in range(3):
        endpoint.write(32 * MTU, qp=qp)
    sent = endpoint.all_sent()
    turns = [list(group) for _, group in itertools.groupby(sent, qp_of)]
    assert sum(len(turn) for turn in turns) == len(sent) == 96
    assert all(7 <= len(turn) <= 8 for turn in turns[:9])
    assert [qp_of(turn[0]) for turn in turns[:9]] == [0, 1, 2] * 3
    for turn in turns[:9]:
        assert [packet.ack_request for packet in turn] == [0] * (len(turn) - 1) + [1]


def test_a_queue_pair_alone_is_not_asked_at_every_burst() -> None:
    endpoint = Endpoint(peer_of=(0, 0), settings=steady(ev_burst=8 * nominal_size(MTU)), layout={"sends": 8})
    endpoint.write(32 * MTU, qp=0)
    assert [packet.ack_request for packet in endpoint.all_sent()] == [0] * 31 + [1]


def test_idle_queue_pair_keeps_no_credit() -> None:
    endpoint = Endpoint(peer_of=(0, 0))
    endpoint.write(MTU, qp=1)
    endpoint.all_sent()
    assert endpoint.qp(1).deficit == 0
    assert endpoint.qp(1).listed == 0
    endpoint.receives(sack(0), source=PEER)
