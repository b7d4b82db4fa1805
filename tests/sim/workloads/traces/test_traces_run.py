"""A trace does in the simulator what the same work does that was written as a workload."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from openmrc.fabric.model.description import Fabric, Plane, Tier
from openmrc.fabric.model.description import Hosts as FabricHosts
from openmrc.sim.results.summary import SimulationRun, summary
from openmrc.sim.scenario.description import Scenario, Transport
from openmrc.sim.simulate import simulate
from openmrc.sim.workloads.collectives.ring import RingAllReduce
from openmrc.sim.workloads.families import Workload
from openmrc.sim.workloads.trace import Trace
from tests.sim.workloads.traces import chakra_writer as et

SIZE = 1 << 20
HOSTS = 12


def run(workload: Workload, **changes: object) -> SimulationRun:
    plane = Plane(count=2, host_gbps=400, t0=Tier(down=4, up=4), t1=Tier(down=3))
    fabric = Fabric(name="small", hosts=FabricHosts(count=HOSTS), planes=(plane,))
    scenario = Scenario(name="trace", fabric=fabric, transport=Transport(), workloads=(workload,))
    return simulate(msgspec.structs.replace(scenario, **changes))


def times(done: SimulationRun) -> tuple[list[int], list[int]]:
    flows = done.work.moving
    return done.results.started[flows].tolist(), done.results.finished[flows].tolist()


@pytest.fixture(scope="module")
def built_in() -> SimulationRun:
    return run(RingAllReduce(size=SIZE))


@pytest.mark.parametrize("integers", [et.INT32, et.INT64, et.UINT32, et.UINT64, et.SINT64, et.FIXED64])
def test_a_ring_all_reduce_of_a_trace_is_the_built_in_one(
    tmp_path: Path, built_in: SimulationRun, integers: int
) -> None:
    prefix = et.write(tmp_path, [[et.collective(0, et.ALL_REDUCE, SIZE, integers=integers)] for _ in range(HOSTS)])
    traced = run(Trace(file=str(prefix), algorithm="ring"))
    assert times(traced) == times(built_in)
    assert traced.results.counters == built_in.results.counters


def test_large_all_reduces_of_many_ranks_are_rings_unless_said_otherwise(
    tmp_path: Path, built_in: SimulationRun
) -> None:
    prefix = et.write(tmp_path, [[et.collective(0, et.ALL_REDUCE, SIZE)] for _ in range(HOSTS)])
    assert times(run(Trace(file=str(prefix)))) == times(built_in)


def ring_of_messages(rank: int) -> list[bytes]:
    piece, nodes = -(-SIZE // HOSTS), []
    for step in range(2 * (HOSTS - 1)):
        waits = (2 * step - 1,) if step else ()
        nodes.append(et.send(2 * step, (rank + 1) % HOSTS, piece, waits))
        nodes.append(et.receive(2 * step + 1, (rank - 1) % HOSTS, piece))
    return nodes


def test_a_ring_of_sends_and_receives_is_the_built_in_one(tmp_path: Path, built_in: SimulationRun) -> None:
    prefix = et.write(tmp_path, [ring_of_messages(rank) for rank in range(HOSTS)])
    traced = run(Trace(file=str(prefix)))
    assert times(traced) == times(built_in)
    assert traced.results.counters == built_in.results.counters


def test_the_same_ring_as_a_goal_schedule_is_the_built_in_one(tmp_path: Path, built_in: SimulationRun) -> None:
    piece, lines = -(-SIZE // HOSTS), [f"num_ranks {HOSTS}"]
    for rank in range(HOSTS):
        lines.append(f"rank {rank} {{")
        for step in range(2 * (HOSTS - 1)):
            lines.append(f"s{step}: send {piece}b to {(rank + 1) % HOSTS} tag {step}")
            lines += [f"s{step} requires r{step - 1}"] if step else []
            lines.append(f"r{step}: recv {piece}b from {(rank - 1) % HOSTS} tag {step}")
        lines.append("}")
    path = tmp_path / "ring.goal"
    path.write_text("\n".join(lines) + "\n")
    assert times(run(Trace(file=str(path)))) == times(built_in)


def test_computations_of_a_rank_take_turns_and_scale(tmp_path: Path) -> None:
    nodes = [et.node(0, et.COMPUTE, micros=10), et.node(1, et.COMPUTE, micros=20), et.send(2, 1, 4096, (0, 1))]
    prefix = et.write(tmp_path, [nodes, [et.receive(0, 0, 4096)]])
    for scale, begun in ((1.0, 30e6), (0.5, 15e6), (0.0, 0)):
        done = run(Trace(file=str(prefix), compute_scale=scale))
        assert times(done)[0] == [begun]


def test_ranks_that_share_a_nic_do_not_send(tmp_path: Path) -> None:
    prefix = et.write(tmp_path, [[et.collective(0, et.ALL_REDUCE, SIZE)] for _ in range(2 * HOSTS)])
    done = run(Trace(file=str(prefix), ranks_per_nic=2, algorithm="ring"))
    assert len(done.work.moving) == HOSTS * 2 * (2 * HOSTS - 1)
    assert done.is_complete
    assert set(np.unique(done.work.traffic.source[done.work.moving])) == set(range(HOSTS))


def test_a_rank_may_be_at_any_nic(tmp_path: Path) -> None:
    prefix = et.write(tmp_path, [[et.send(0, 1, 4096)], [et.receive(0, 0, 4096)]])
    done = run(Trace(file=str(prefix), nics=(7, 3)))
    flow = done.work.moving[0]
    assert (done.work.traffic.source[flow], done.work.traffic.destination[flow]) == (7, 3)


def test_operations_name_their_messages(tmp_path: Path) -> None:
    prefix = et.write(tmp_path, [[et.collective(5, et.ALL_REDUCE, SIZE)] for _ in range(4)])
    work = run(Trace(file=str(prefix))).work
    assert {work.labels[at] for at in work.label[work.moving]} == {"collective 5"}


def test_a_trace_of_computations_alone_has_an_end_and_says_that_it_uses_no_nic(tmp_path: Path) -> None:
    file = tmp_path / "alone.goal"
    file.write_text("num_ranks 2\nrank 0 {\nl1: calc 1000\n}\nrank 1 {\nl1: calc 2000\n}\n")
    found = summary(run(Trace(file=str(file)), transport=Transport(name="datagrams")))
    two_us = pytest.approx(2, abs=1e-3)  # calc counts ns
    assert found["last_finish_us"] == found["workloads"][0]["last_finish_us"] == two_us
    assert found["hosts_used"] == 0


def test_a_trace_of_few_ranks_says_how_many_nics_it_uses(tmp_path: Path) -> None:
    prefix = et.write(tmp_path, [[et.collective(0, et.ALL_REDUCE, SIZE)] for _ in range(3)])
    found = summary(run(Trace(file=str(prefix)), transport=Transport(name="datagrams")))
    assert (found["hosts"], found["hosts_used"]) == (HOSTS, 3)
