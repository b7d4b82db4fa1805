"""Timers and rings of a NIC's senders."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from openmrc.core import ring
from openmrc.core.rows import Table
from openmrc.sim.loop.run import LoopTransport, prepare
from openmrc.sim.transports import senders
from openmrc.sim.transports.next_step import next_step_of
from openmrc.sim.transports.roce.transport import RoceTransport
from openmrc.sim.transports.uet.transport import UetTransport
from openmrc.units import NEVER
from tests.sim.small import leaf_spine, shifted


class _State(NamedTuple):
    nics: Table[senders.SenderNic]
    timers: Table[senders.SenderTimer]
    rings: Table[senders.SenderRing]
    links: Table[senders.SenderLink]
    senders: Table[senders.SenderLink]  # whatever a transport keeps of each


def state_of(nic_of_sender: list[int], nics: int, rings: int = 2) -> _State:
    made = senders.idle_nics(senders.SenderNic, nics, np.array(nic_of_sender), seed=1)
    timers, empty, links = senders.idle_senders(len(nic_of_sender), rings)
    return _State(made, timers, empty, links, senders=links)


def test_a_nic_takes_its_own_senders_that_are_due_in_order_of_time_then_of_number() -> None:
    state = state_of([0, 1, 0, 0], nics=2)
    for sender, at in ((0, 50), (1, 10), (2, 20), (3, 20)):
        senders.arm(state, 0 if sender != 1 else 1, sender, at)
    assert senders.next_deadline(state, 0) == 20
    assert [senders.take_due(state, 0, 30) for _ in range(3)] == [2, 3, ring.NONE]
    senders.arm(state, 0, 0, NEVER)
    assert senders.next_deadline(state, 0) == NEVER
    assert senders.next_deadline(state, 1) == 10


def test_a_ring_is_served_in_turn_and_lists_nobody_twice() -> None:
    state = state_of([0, 0, 0, 0], nics=1)
    for sender in (2, 0, 2, 3):
        senders.append(state, 1, sender)
    senders.append(state, 0, 0)  # stands in the other ring
    assert [ring.drop_front(state.rings[1], state.links) for _ in range(3)] == [2, 0, 3]
    assert ring.front(state.rings[1], state.links) == ring.NONE
    assert ring.front(state.rings[0], state.links) == ring.NONE


@pytest.mark.parametrize("transport", [UetTransport(), RoceTransport()], ids=["uet", "roce"])
def test_a_step_begins_without_the_timers_of_senders_that_failed_in_the_one_before(transport: LoopTransport) -> None:
    topology, work = leaf_spine(hosts=8), shifted(8, 1000)
    world = prepare(topology, work, transport)
    senders.arm(world.state, 3, 3, 500)
    prepared = next_step_of(transport, topology, work, world.state, seed=1)
    state = prepared(world.state, world.network, 1000, 0)
    assert senders.take_due(state, 3, NEVER - 1) == ring.NONE
    senders.arm(state, 3, 3, 700)
    assert (senders.next_deadline(state, 3), senders.take_due(state, 3, 700)) == (700, 3)
