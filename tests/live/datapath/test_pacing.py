"""A port whose rate is known gets little more than it sends; what waits for it is sent on time."""

from __future__ import annotations

import time

import numpy as np
import pytest

from harness.live_pair import joined
from openmrc.engine.state.build import TableSizes, build
from openmrc.engine.state.params import Settings
from openmrc.engine.state.tables import Engine
from openmrc.live.datapath.packets import pacing
from openmrc.live.datapath.rows import DataPath, build_datapath
from openmrc.units import NEVER, PS_PER_MS, PS_PER_S, PS_PER_US

PLANES = 2
RATE = 8_000_000  # bit/s: a byte takes a microsecond
PACKET = 1000 - 86  # bytes of a datagram that takes a millisecond with all that is around it


@pytest.fixture
def engine() -> Engine:
    """An endpoint with one peer that has something to send."""
    made = build(TableSizes(ports=PLANES), Settings())
    made.endpoints[0].ready_tail = 0
    made.peers[0].next_ready = 0
    return made


@pytest.fixture
def datapath(engine: Engine) -> DataPath:
    """Two planes paced at RATE, one packet ahead."""
    made = build_datapath(engine, PLANES, PLANES, 1, 1, 0, 0)
    made.nic[0].planes = PLANES
    made.nic[0].now = PS_PER_MS
    pacing.set_rate(made, RATE, PACKET)
    return made


@pytest.mark.clause("free-ports")
def test_a_plane_takes_one_packet_more_than_its_port_sends(engine: Engine, datapath: DataPath) -> None:
    assert pacing.open_planes(datapath) & 3 == 3
    assert pacing.next_opening(engine, datapath) == NEVER
    for _ in range(2):
        pacing.on_sent(datapath, 0, PACKET)
    assert pacing.open_planes(datapath) & 3 == 2
    assert pacing.next_opening(engine, datapath) == 2 * PS_PER_MS
    datapath.nic[0].now = 2 * PS_PER_MS
    assert pacing.open_planes(datapath) & 3 == 3


def test_an_idle_port_saves_nothing_up(datapath: DataPath) -> None:
    pacing.on_sent(datapath, 0, PACKET)
    datapath.nic[0].now = 100 * PS_PER_MS
    pacing.on_sent(datapath, 0, PACKET)
    assert datapath.planes[0].busy_until == 101 * PS_PER_MS


def test_a_plane_that_opened_since_the_engine_was_asked_is_due_at_once(engine: Engine, datapath: DataPath) -> None:
    pacing.on_sent(datapath, 0, 3 * PACKET)
    pacing.open_planes(datapath)
    datapath.nic[0].now = 9 * PS_PER_MS  # handing packets to the kernel takes time
    assert pacing.next_opening(engine, datapath) < datapath.nic[0].now
    engine.endpoints[0].ready_tail = -1
    assert pacing.next_opening(engine, datapath) == NEVER, "nothing waits"


def test_on_a_fast_port_work_lasts_until_a_thread_wakes_up(datapath: DataPath) -> None:
    pacing.set_rate(datapath, 100_000_000_000, PACKET)
    assert datapath.nic[0].paced_ahead == 100 * PS_PER_US


def test_a_rate_of_nearly_nothing_is_taken(datapath: DataPath) -> None:
    pacing.set_rate(datapath, 1e-9, PACKET)
    for _ in range(10_000):
        pacing.on_sent(datapath, 0, PACKET)
    assert pacing.open_planes(datapath) & 3 == 2
    datapath.nic[0].now += 2 * PS_PER_S
    assert pacing.open_planes(datapath) & 3 == 3


@pytest.mark.parametrize("known", [True, False])
def test_only_planes_of_known_rate_are_paced(known: bool) -> None:
    size = 400_000
    settings = Settings(
        link_gbps=0.04,
        base_rtt_us=1_000,
        algorithm="none",
        trimming=False,
        loss_delay_floor_us=20_000,
        timestamp_unit=1,
        bound_by_delivery=not known,
        initial_cwnd=1 << 20,
    )
    with joined(planes=PLANES, size=size, settings=settings) as pair:
        source, target = pair.regions
        sent = source.bytes
        sent[:] = np.arange(size, dtype=np.uint32).astype(np.uint8)
        began = time.monotonic()
        pair.ends[0].qp.post_write(source[:], target.addr, target.r_key)
        pair.ends[0].qp.drain(20)
        took = time.monotonic() - began
        assert bytes(target.bytes) == bytes(sent)
        busy = [int(plane.busy_until) for plane in pair.contexts[0].nic.runtime.datapath.planes]
    assert [at > 0 for at in busy] == [known] * PLANES
    assert not known or took > 0.9 * size * 8 / 40e6
