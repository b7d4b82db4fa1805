"""A port that passes on less than the others gets less, and as much again once it is as fast."""

from __future__ import annotations

import pytest

from openmrc.engine.paths import shares
from openmrc.engine.state.params import Settings
from tests.engine.scripted_peer import MTU, Endpoint, ack, sack, steady, us

SLOW = 2
PLANES = 4


def settings(**changes: object) -> Settings:
    return steady(share_by_delay=True, target_delay_us=4.0, trimming=False, loss_delay_floor_us=1e6, **changes)


def rounds(endpoint: Endpoint, count: int, slow_us: float, fast_us: float = 20.0) -> list[int]:
    """Send a packet for each plane, so often; those on SLOW are reported later. Return the packets of each plane."""
    sent = [0] * PLANES
    for _ in range(count):
        first = endpoint.qp().next_psn
        endpoint.write(PLANES * MTU)
        began = endpoint.now / us(1)
        packets = endpoint.all_sent()
        for packet in packets:
            sent[packet.port] += 1
        slow = [packet.psn for packet in packets if packet.port == SLOW]
        fast = tuple(packet.psn for packet in packets if packet.port != SLOW)
        endpoint.receives(sack(first - 1, fast), at_us=began + fast_us)
        if slow:
            endpoint.waits(began + slow_us)
        endpoint.receives(sack(first + PLANES - 1))
        endpoint.receives({**ack(endpoint.qp().message_current), "psn": first + PLANES - 1})
        endpoint.completions()
    return sent


def share(endpoint: Endpoint) -> float:
    return endpoint.engine.port_shares[SLOW].share / shares.FULL if endpoint.engine.rotations[SLOW].is_slow else 1.0


@pytest.mark.needs("jit")  # thousands of packets
def test_a_port_gets_less_while_its_answers_take_longer_and_all_again_afterwards() -> None:
    endpoint = Endpoint(settings=settings())
    assert rounds(endpoint, 40, slow_us=200)[SLOW] < 30
    assert share(endpoint) < 0.2
    before = rounds(endpoint, 100, slow_us=200)
    assert before[SLOW] < 0.2 * before[0], "the others carry what it does not"
    rounds(endpoint, 900, slow_us=20)
    assert share(endpoint) == 1
    assert rounds(endpoint, 40, slow_us=20) == [40] * PLANES


def test_no_port_falls_below_a_64th_so_that_its_recovery_shows() -> None:
    endpoint = Endpoint(settings=settings())
    sent = rounds(endpoint, 200, slow_us=500)
    assert share(endpoint) == shares.LEAST / shares.FULL
    assert sent[SLOW] > 0


@pytest.mark.parametrize("slow_us", [24.0, 29.0], ids=["target delay", "half a round trip"])
def test_a_little_delay_costs_no_share(slow_us: float) -> None:
    endpoint = Endpoint(settings=settings())
    assert rounds(endpoint, 60, slow_us=slow_us) == [60] * PLANES


def test_ports_that_are_alike_share_evenly_where_it_is_not_wanted() -> None:
    endpoint = Endpoint(settings=steady(trimming=False, loss_delay_floor_us=1e6))
    assert rounds(endpoint, 60, slow_us=200) == [60] * PLANES


def test_a_slow_port_carries_all_if_it_is_the_only_one() -> None:
    endpoint = Endpoint(settings=settings())
    rounds(endpoint, 40, slow_us=200)
    for port in set(range(PLANES)) - {SLOW}:
        endpoint.set_port(port, 0)
    endpoint.all_sent()
    endpoint.write(8 * MTU)
    data = [packet for packet in endpoint.all_sent() if packet.dest_qpn != 2]
    assert [packet.port for packet in data] == [SLOW] * 8


def test_data_waits_for_a_fast_port_rather_than_to_leave_by_a_slow_one() -> None:
    endpoint = Endpoint(settings=settings())
    rounds(endpoint, 40, slow_us=200)
    endpoint.engine.port_shares[SLOW].credit = 0
    endpoint.write(MTU)
    assert endpoint.all_sent(free_ports=1 << SLOW) == []
    assert [packet.port for packet in endpoint.all_sent()] != [SLOW]
