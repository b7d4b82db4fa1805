"""What never starts, whether waves are narrow or wide; what hosts take before messages, by closed forms."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from openmrc.sim.scenario.description import Scenario
from openmrc.sim.simulate import simulate
from openmrc.sim.workloads import joined
from openmrc.sim.workloads.joined import never_started
from openmrc.sim.workloads.plan import WorkloadHosts
from openmrc.sim.workloads.trace import Trace
from openmrc.sim.workloads.traces import order
from openmrc.units import PS_PER_US

FABRIC = {"name": "x", "hosts": {"count": 4}, "planes": [{"count": 1, "host_gbps": 400, "t0": {"down": 4}}]}
RING = {"kind": "ring_all_reduce", "size": 64_000}


@pytest.mark.parametrize("seed", range(5))
def test_narrow_waves_release_what_wide_ones_do(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    draw = np.random.default_rng(seed)
    count, edges = 300, 500
    before, after = draw.integers(0, count, (2, edges))
    before, after = np.append(before[before < after], [298, 299]), np.append(after[before < after], [299, 298])
    need = np.where(draw.random(count) < 0.1, 1, 0)  # gates that wait for one of several
    need[np.bincount(after, minlength=count) == 0] = 0
    found = []
    for narrow in (0, 16, count):
        monkeypatch.setattr(joined, "NARROW", narrow)
        found.append(never_started(count, before, after, need).tolist())
    assert found[0] == found[1] == found[2]
    assert 0 < len(found[0]) < count


def test_a_chain_of_many_nodes_is_followed_to_its_end() -> None:
    nodes = np.arange(200_000)
    assert not len(never_started(len(nodes), nodes[:-1], nodes[1:], np.zeros(len(nodes), np.int64)))


def test_a_trace_is_ordered_alike_in_narrow_and_wide_waves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(1)
    lines = [f"l{at}: calc {draw.integers(1, 9)} cpu {draw.integers(3)}" for at in range(200)]
    lines += [f"l{draw.integers(100, 200)} requires l{draw.integers(100)}" for _ in range(300)]
    file = tmp_path / "t.goal"
    file.write_text("num_ranks 1\nrank 0 {\n" + "\n".join(lines) + "\n}\n")
    edges = []
    for narrow in (0, 8, 1000):
        monkeypatch.setattr(order, "NARROW", narrow)
        made = Trace(file=str(file)).plan(WorkloadHosts(2), seed=1)
        edges.append([part.tolist() for part in made.edges()])
    assert edges[0] == edges[1] == edges[2]


def last_us(work: dict[str, object]) -> float:
    """Return when the last message of a workload has arrived."""
    made = {"name": "x", "fabric": FABRIC, "transport": {"name": "datagrams"}, "workloads": [work]}
    return float(simulate(msgspec.convert(made, Scenario)).results.finished.max()) / PS_PER_US


@pytest.mark.parametrize(("work", "messages", "steps"), [
    (RING, 6, 6),  # each message of a ring follows another host's
    ({"kind": "all_to_all", "size": 9000, "window": 1}, 3, 1),  # one message after another, in one call
    ({"kind": "all_to_all", "size": 9000}, 1, 1),
    ({"kind": "training_step", "steps": 2, "compute": "10us", "collectives": [RING]}, 12, 12),
])  # fmt: skip
def test_hosts_take_their_time_before_each_message_and_each_step(
    work: dict[str, object], messages: int, steps: int
) -> None:
    plain = last_us(work)
    assert last_us(work | {"message_time": "7us"}) == pytest.approx(plain + 7 * messages, abs=0.05)
    assert last_us(work | {"step_time": "65us"}) == pytest.approx(plain + 65 * steps, abs=0.05)
