"""Heaps of wakes and rings of senders, against plain dictionaries and lists."""

import random

import numpy as np
import pytest

from openmrc.sim.transports import rings, wakes
from openmrc.units import NEVER


@pytest.mark.parametrize("seed", range(20))
def test_wakes_come_in_order_of_time_whatever_is_set_moved_and_taken_away(seed: int) -> None:
    draw = random.Random(seed)
    nic = np.array([draw.randrange(3) for _ in range(40)])
    heaps, rows = wakes.build(nic, 3)
    expected: dict[int, int] = {}
    for _ in range(500):
        sender, now = draw.randrange(40), draw.randrange(100)
        if draw.random() < 0.7:
            at = draw.choice((NEVER, draw.randrange(100)))
            wakes.set_wake(heaps, rows, nic[sender], sender, at)
            expected[sender] = at
        else:
            here = [(at, other) for other, at in expected.items() if nic[other] == nic[sender] and at < NEVER]
            first = min(here, default=(NEVER, wakes.NONE))
            assert wakes.first(heaps, rows, nic[sender]) == first[0]
            taken = wakes.take_due(heaps, rows, nic[sender], now)
            assert taken == (first[1] if first[0] <= now else wakes.NONE)
            expected[taken] = NEVER


def test_a_ring_is_served_in_turn_and_lists_nobody_twice() -> None:
    ready, links = rings.build(2, 4)
    for sender in (2, 0, 2, 3):
        rings.append(ready, links, 1, sender)
    rings.append(ready, links, 0, 0)  # stands in the other ring
    seen = []
    while (sender := rings.front(ready, links, 1)) != rings.NONE:
        rings.remove_front(ready, links, 1)
        seen.append(sender)
    assert seen == [2, 0, 3]
    assert rings.front(ready, links, 0) == rings.NONE
