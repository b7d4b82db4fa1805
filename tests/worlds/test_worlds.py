"""One engine in two worlds: what an endpoint was asked in one is asked again in the other, and it decides the same."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harness.live_pair import joined
from openmrc.engine.state.machines import EvState
from openmrc.live.attributes import ConnectionOptions
from openmrc.sim.loop.fault_events import FaultKind, faults
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.transports.mrc.setup import MrcTransport
from openmrc.sim.workloads.traffic import CompletionSide, traffic
from openmrc.units import PS_PER_US
from openmrc.verbs import RecvWr
from openmrc.wire.codes import Opcode, Trim
from tests.sim.small import leaf_spine
from tests.worlds import live, simulated
from tests.worlds.schedule import Schedule, Step, differences

SENDER, RECEIVER = 1, 0


@pytest.fixture(scope="module")
def schedules() -> dict[int, Schedule]:
    """A crowded, breaking little fabric: trims, marks, losses, a dead cable; seen by a sender and by the receiver."""
    return {nic: _simulated(nic) for nic in (SENDER, RECEIVER)}


def _simulated(endpoint: int) -> Schedule:
    topology = leaf_spine(hosts=8, down=4, planes=2, gbps=100)
    settings = NetworkSettings(
        ecn_last_hop=True, buffer_bdp=0.1, last_hop_buffer_bdp=0.15, ecn_low_bdp=0.02, ecn_high_bdp=0.08
    )
    work = traffic(
        [1, 2, 3, 5, 0, 0],
        [0, 0, 0, 0, 1, 0],
        [400_000, 200_000, 200_000, 200_000, 100_000, 0],
        releases=([0], [5], [0], [int(CompletionSide.RECEIVER)]),
    )
    cable = topology.planes[1].host_up + SENDER
    both = [cable, int(topology.link_reverse[cable])]
    spine = topology.planes[0].fabric_up
    at = PS_PER_US
    broken = faults(
        [0, 0, 8 * at, 8 * at, 8 * at, 40 * at, 40 * at, 40 * at],
        [FaultKind.LINK_LOSS] * 2 + ([FaultKind.LINK_DOWN] * 2 + [FaultKind.PORT_DOWN]) * 2,
        [spine, spine + 1, *both, SENDER * 64 + 1, *both, SENDER * 64 + 1],
        [200_000_000] * 2 + [1] * 3 + [0] * 3,
    )
    with pytest.MonkeyPatch.context() as patch:
        return simulated.record(patch, topology, work, MrcTransport(evs=16, network=settings), broken, endpoint, seed=3)


def test_the_recorded_run_has_everything_that_makes_an_engine_decide(schedules: dict[int, Schedule]) -> None:
    sender, receiver = schedules[SENDER], schedules[RECEIVER]
    arrived = [step.given["packet"] for step in receiver.steps if step.door == "receive"]
    assert {packet["trimmed"] for packet in arrived} > {Trim.WHOLE}
    assert any(packet["marked"] for packet in arrived)
    sent = {packet["opcode"] for packet in sender.sent()}
    assert sent >= {Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE, Opcode.SACK, Opcode.ENDPOINT_REQUEST}
    assert any(packet["retransmitted"] for packet in sender.sent())
    assert {"receive", "next_packet", "expire", "post_write", "set_port", "next_completion", "next_event"} <= set(
        sender.doors()
    )
    assert sender.after is not None
    states = np.asarray(sender.after.evs)["state"]
    assert len(sender.steps) > 400
    assert EvState.GOOD in states
    assert sender.doors()["set_port"] == 2


def test_a_single_changed_or_missing_input_is_noticed(schedules: dict[int, Schedule]) -> None:
    schedule = schedules[SENDER]
    assert schedule.after is not None
    sacks = [
        number
        for number, step in enumerate(schedule.steps)
        if step.door == "receive" and step.given["packet"]["opcode"] == Opcode.SACK
    ]
    at = sacks[len(sacks) // 2]
    step = schedule.steps[at]
    marked = Step(step.door, step.now, {"packet": step.given["packet"] | {"path_mark": 2}})
    for others in ([marked], []):
        changed = Schedule(SENDER, schedule.before, [*schedule.steps[:at], *others, *schedule.steps[at + 1 :]])
        try:
            world = simulated.replay(changed)
        except AssertionError:
            continue
        assert list(differences(schedule.after, world.engine, SENDER))


@pytest.mark.parametrize("nic", [SENDER, RECEIVER])
def test_what_the_simulator_recorded_the_live_data_path_decides_too(
    nic: int, schedules: dict[int, Schedule], monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = schedules[nic]
    world = live.replay(schedule, monkeypatch)
    assert schedule.after is not None
    assert list(differences(schedule.after, world.engine, nic)) == []


@pytest.mark.parametrize("nic", [SENDER, RECEIVER])
def test_and_the_simulators_own_adapter_repeats_it(nic: int, schedules: dict[int, Schedule]) -> None:
    schedule = schedules[nic]
    world = simulated.replay(schedule)
    assert schedule.after is not None
    assert list(differences(schedule.after, world.engine, nic)) == []


@pytest.fixture(scope="module")
def overheard() -> list[Schedule]:
    """Two endpoints on real loopback sockets that lose, double, cut, mark and hold back packets, and lose a plane."""
    faults = "loss: 3%, duplicate: 2%, reorder: 3%, trim: 3%; at: 60ms, down: plane 1; at: 400ms, up: plane 1"
    size = 1 << 17
    with pytest.MonkeyPatch.context() as patch:
        live.interpreted(patch)
        # Interpreted and on a busy machine it may be slow for as long as it likes: it never gives up.
        options = ConnectionOptions(
            mpr=4, max_wimm=16, max_recv_wr=64, timeout=16, linear_count=7, user_timeout=math.inf
        )
        with joined(planes=2, size=size, faults=faults, options=options) as pair:
            pair.regions[0].bytes[:] = list(np.random.default_rng(1).bytes(size))
            here, there = pair.ends

            def work() -> None:
                for immediate in range(3):
                    there.qp.post_recv([RecvWr(wr_id=immediate)])
                for immediate in range(3):
                    here.write(pair.regions[0], here.remote.regions[0], immediate=immediate, timeout=60)
                there.write(pair.regions[1][: 1 << 14], there.remote.regions[0], timeout=60)
                there.recv_cq.poll(8)

            found = live.record(pair.contexts, work)
            assert pair.regions[1].bytes.tobytes() == pair.regions[0].bytes.tobytes()
    return found


def test_what_real_sockets_recorded_the_simulator_decides_too(overheard: list[Schedule]) -> None:
    for schedule in overheard:
        doors = schedule.doors()
        assert doors["receive"] > 10
        assert doors["next_packet"] > 10
        assert doors["next_completion"] >= 1
        world = simulated.replay(schedule)
        assert schedule.after is not None
        assert list(differences(schedule.after, world.engine, 0)) == []
    assert any(packet["retransmitted"] for schedule in overheard for packet in schedule.sent())
