"""What never starts: the same nodes whether waves are narrow or wide."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openmrc.sim.workloads import joined
from openmrc.sim.workloads.joined import never_started
from openmrc.sim.workloads.plan import WorkloadHosts
from openmrc.sim.workloads.trace import Trace, plan
from openmrc.sim.workloads.traces import order


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
        made = plan(WorkloadHosts(2), Trace(file=str(file)), seed=1)
        edges.append([part.tolist() for part in made.edges()])
    assert edges[0] == edges[1] == edges[2]
