"""Baselines with many messages under way at a NIC: each packet costs as much as with few."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from openmrc.core.rows import column
from openmrc.sim.loop.run import LoopTransport, prepare
from openmrc.sim.network.forwarding import reroute
from openmrc.sim.transports.roce import sender as roce
from openmrc.sim.transports.roce.transport import RoceTransport
from openmrc.sim.transports.uet import sender as uet
from openmrc.sim.transports.uet.transport import UetTransport
from openmrc.sim.workloads.traffic import traffic
from openmrc.units import NEVER
from tests.sim.small import leaf_spine

MESSAGES = 300


@pytest.mark.parametrize(("transport", "module"), [(RoceTransport(), roce), (UetTransport(), uet)])
def test_messages_that_wait_for_a_busy_port_are_not_looked_at(
    transport: LoopTransport, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = prepare(leaf_spine(hosts=8, planes=2), traffic([0] * MESSAGES, [5] * MESSAGES, 64), transport)
    state: Any = world.state
    column(state.senders, "plane")[:] = 0
    column(state.senders, "single_path")[:] = 1
    looks: list[tuple[Any, ...]] = []

    def plane_for(*given: Any) -> int:
        looks.append(given)
        return 0

    monkeypatch.setattr(reroute, "plane_for", plane_for)
    for flow in range(MESSAGES):
        module.post(state, world.network, 0, flow)
    looks.clear()
    assert not module.next_data(state, world.network, 0, 0, 0b10, 0)  # port 0 is busy
    assert module.next_data(state, world.network, 0, 0, 0b01, 0)
    assert len(looks) < 5


@pytest.mark.parametrize(("transport", "module"), [(RoceTransport(), roce), (UetTransport(), uet)])
def test_timers_of_messages_that_are_not_due_are_not_looked_at(
    transport: LoopTransport, module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = prepare(leaf_spine(hosts=8, planes=2), traffic([0] * MESSAGES, [5] * MESSAGES, 64), transport)
    state: Any = world.state
    for flow in range(MESSAGES):
        module.post(state, world.network, flow, flow)
        assert module.next_data(state, world.network, flow, 0, 0b11, 0)
    silent: list[int] = []

    def on_timeout(state: Any, *given: Any) -> None:
        silent.append(given[-1])
        state.senders[given[-1]].deadline = NEVER

    monkeypatch.setattr(module, "_on_timeout", on_timeout)
    first = int(column(state.senders, "deadline")[0])
    module.expire(state, world.network, first, 0)
    assert silent == [0]
