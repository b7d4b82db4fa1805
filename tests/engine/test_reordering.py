"""How much later a packet may have been sent that overtook another: the loss delay follows what is seen."""

from __future__ import annotations

import copy
import functools

import pytest

from openmrc.engine.congestion import reordering
from openmrc.engine.requester import probes
from openmrc.engine.state import clock
from openmrc.engine.state.queue_pairs import sent_row
from openmrc.units import PS_PER_US
from tests.engine.scripted_peer import MTU, Endpoint, ack, entropy_of, sack, steady

ROUND_TRIP_US = 12


def settled(samples: int = 2_000, **changes: object) -> Endpoint:
    """An endpoint to whose peer packets have kept their order for so many round-trip samples, 100 us apart."""
    return copy.deepcopy(_settled(samples, tuple(changes.items())))


@functools.cache  # thousands of packets take seconds
def _settled(samples: int, changes: tuple[tuple[str, object], ...]) -> Endpoint:
    endpoint = Endpoint(settings=steady(**dict(changes)), attributes={"timeout": 10**12})
    for psn in range(samples):
        endpoint.write(MTU)
        endpoint.all_sent()
        answers(endpoint, psn)
        endpoint.receives(ack(psn + 1))
        endpoint.completions()
        endpoint.waits(endpoint.now / PS_PER_US + 100 - ROUND_TRIP_US)
    return endpoint


def answers(endpoint: Endpoint, cack: int, above: tuple[int, ...] = ()) -> None:
    """Report what was sent a round trip ago."""
    stamp = clock.stamp(endpoint.now, 0)
    endpoint.receives(sack(cack, above, tx_timestamp=stamp), at_us=endpoint.now / PS_PER_US + ROUND_TRIP_US)


def sends_train(endpoint: Endpoint, packets: int, gap_us: float) -> tuple[int, float]:
    """Let packets leave one after the other; return the first PSN and when it left, in us."""
    first, began = endpoint.qp().next_psn, endpoint.now / PS_PER_US
    for number in range(packets):
        endpoint.waits(began + number * gap_us)
        endpoint.write(MTU)
        assert len(endpoint.all_sent()) == 1
    return first, began


def window_us(endpoint: Endpoint) -> float:
    return reordering.window(endpoint.engine, 0) / PS_PER_US


@pytest.mark.clause("loss-overtaken")
def test_a_new_peer_is_given_the_delay_of_a_full_queue() -> None:
    assert window_us(Endpoint()) == 12


@pytest.mark.needs("jit")  # thousands of packets
@pytest.mark.clause("loss-overtaken")
def test_the_window_shrinks_to_a_quarter_of_the_round_trip_while_packets_keep_their_order() -> None:
    assert window_us(settled()) == pytest.approx(ROUND_TRIP_US / 4, abs=0.05)


@pytest.mark.clause("loss-overtaken")
def test_a_packet_overtaken_by_more_than_is_usual_is_lost_before_a_full_queue_would_have_let_it_go() -> None:
    endpoint = settled()
    first, began = sends_train(endpoint, 5, gap_us=1)
    endpoint.receives(sack(first - 1, (first + 1, first + 2)), at_us=began + 14)
    endpoint.receives(sack(first - 1, (first + 1, first + 2, first + 3)), at_us=began + 15)
    endpoint.sends_nothing()
    endpoint.receives(sack(first - 1, (first + 1, first + 2, first + 3, first + 4)), at_us=began + 16)
    endpoint.sends(psn=first, retransmitted=1, at_us=began + 16)


@pytest.mark.clause("loss-overtaken")
def test_a_new_peers_packets_wait_for_their_loss_delay_however_far_they_are_overtaken() -> None:
    endpoint = settled(samples=50)
    reordering.begin(endpoint.engine, endpoint.now, 0)
    assert window_us(endpoint) >= ROUND_TRIP_US
    first, began = sends_train(endpoint, 20, gap_us=1)
    above = tuple(range(first + 1, first + 12))
    endpoint.receives(sack(first - 1, above), at_us=began + 23)
    endpoint.sends_nothing()
    endpoint.receives(sack(first - 1, above), at_us=began + 26)
    endpoint.sends(psn=first, retransmitted=1)


@pytest.mark.clause("loss-overtaken")
def test_a_packet_overtaken_by_less_waits_for_its_loss_delay() -> None:
    endpoint = settled()
    first, began = sends_train(endpoint, 4, gap_us=1)  # the newest has not arrived
    for later in range(14, 24):
        endpoint.receives(sack(first - 1, (first + 1, first + 2)), at_us=began + later)
        endpoint.sends_nothing()
    endpoint.receives(sack(first - 1, (first + 1, first + 2)), at_us=began + 25)
    endpoint.sends(psn=first, retransmitted=1)


@pytest.mark.clause("loss-last-hole")
def test_the_last_hole_is_lost_when_the_window_has_passed_because_its_arrival_would_be_reported() -> None:
    endpoint = settled()
    first, began = sends_train(endpoint, 3, gap_us=1)
    endpoint.receives(sack(first - 1, (first + 1, first + 2)), at_us=began + 14)
    endpoint.sends(psn=first, retransmitted=1)
    assert began + 15 <= endpoint.now / PS_PER_US <= began + 15.1, "a round trip and a quarter after it was sent"


@pytest.mark.clause("loss-last-hole")
def test_of_several_holes_those_are_lost_that_were_overtaken_by_more_than_was_seen() -> None:
    endpoint = settled()
    endpoint.peer().reordering = 2 * PS_PER_US
    endpoint.peer().reordering_at = endpoint.now
    first, began = sends_train(endpoint, 5, gap_us=1)
    endpoint.receives(sack(first - 1, (first + 1, first + 2, first + 4)), at_us=began + 16)
    endpoint.waits(began + 20)
    assert [packet.psn for packet in endpoint.all_sent()] == [first]


@pytest.mark.needs("jit")  # thousands of packets
@pytest.mark.clause("loss-last-hole")
@pytest.mark.parametrize(
    "why", ["unknown reordering", "no trimming", "a queue", "an unreported newest packet", "only a probe that asked"]
)
def test_the_last_hole_waits_for_its_loss_delay_with(why: str) -> None:
    endpoint = settled(1 if why == "unknown reordering" else 2_000, trimming=why != "no trimming")
    endpoint.peer().base_rtt = (8 if why == "a queue" else ROUND_TRIP_US) * PS_PER_US
    first, began = sends_train(endpoint, 4, gap_us=1)
    if "probe" in why:
        sent_row(endpoint.engine, 0, first + 3).asked = 0
        probes.send(endpoint.engine, endpoint.now, 0, endpoint.ev_row(entropy_of(0, 0)))
        endpoint.all_sent()
    above = (first + 1, first + 2) if "newest" in why else (first + 1, first + 2, first + 3)
    endpoint.receives(sack(first - 1, above), at_us=began + 15)
    endpoint.waits(began + 20)
    assert endpoint.qp().inferred_losses == 0


@pytest.mark.clause("loss-overtaken")
def test_the_window_opens_to_what_was_seen_and_a_quarter_more_and_fades() -> None:
    endpoint = settled()
    first, began = sends_train(endpoint, 9, gap_us=1)
    late = tuple(range(first + 1, first + 9))
    endpoint.receives(sack(first - 1, late), at_us=began + 14)  # early: the holes may still be on their way
    endpoint.receives(sack(first + 8), at_us=began + 14.5)
    assert window_us(endpoint) == pytest.approx(8 * 1.25, rel=0.01)
    before = window_us(endpoint)
    for psn in range(first + 9, first + 11):
        endpoint.write(MTU)
        endpoint.all_sent()
        answers(endpoint, psn)
    assert window_us(endpoint) == pytest.approx(before * 7 / 8, rel=0.01), "one round trip has passed without"


@pytest.mark.clause("loss-overtaken")
def test_retransmissions_in_vain_open_the_window_up_to_a_full_queue() -> None:
    endpoint = settled()
    for _ in range(4):
        before = window_us(endpoint)
        first, began = sends_train(endpoint, 20, gap_us=1)
        above = tuple(range(first + 1, first + 20))
        endpoint.receives(sack(first - 1, above), at_us=began + 26)
        endpoint.sends(psn=first, retransmitted=1)
        endpoint.receives(sack(first + 19), at_us=began + 27)  # sooner than any answer: the first copy has arrived
        assert window_us(endpoint) > before or before > ROUND_TRIP_US
    assert window_us(endpoint) == pytest.approx(ROUND_TRIP_US, abs=0.1)
    assert endpoint.qp().spurious == 4


@pytest.mark.needs("jit")  # thousands of packets
@pytest.mark.clause("loss-overtaken")
def test_without_trimming_little_above_a_hole_says_nothing() -> None:
    endpoint = settled(trimming=False, gap_packets=6)
    endpoint.peer().cwnd = 1.0
    first, began = sends_train(endpoint, 8, gap_us=1)
    endpoint.receives(sack(first - 1, tuple(range(first + 1, first + 7))), at_us=began + 18)
    endpoint.sends_nothing()
    endpoint.receives(sack(first - 1, tuple(range(first + 1, first + 8))), at_us=began + 19)
    endpoint.sends(psn=first, retransmitted=1, at_us=began + 19)


@pytest.mark.clause("loss-overtaken")
def test_a_packet_sent_again_does_not_hold_up_the_decision_on_a_later_hole() -> None:
    endpoint = settled()
    first, began = sends_train(endpoint, 16, gap_us=1)
    early, late = (first + 1, first + 2, first + 3, first + 4), tuple(range(first + 6, first + 11))
    endpoint.receives(sack(first - 1, early), at_us=began + 16)
    endpoint.sends(psn=first, retransmitted=1, at_us=began + 16)  # due again at 31
    endpoint.receives(sack(first - 1, early + late[:3]), at_us=began + 20)
    endpoint.sends_nothing()
    endpoint.receives(sack(first - 1, early + late), at_us=began + 22)
    endpoint.sends(psn=first + 5, retransmitted=1, at_us=began + 22)


@pytest.mark.clause("loss-overtaken")
def test_a_packet_that_was_sent_again_shows_no_reordering() -> None:
    endpoint = settled()
    first, began = sends_train(endpoint, 6, gap_us=1)
    endpoint.receives(sack(first - 1, (first + 2, first + 3, first + 4, first + 5)), at_us=began + 17)
    assert [endpoint.sends(retransmitted=1).psn for _ in range(2)] == [first, first + 1]
    endpoint.receives(sack(first + 5), at_us=began + 30)
    assert window_us(endpoint) == pytest.approx(ROUND_TRIP_US / 4, abs=0.05)
