"""UET: what is in flight is counted so that a window can always open again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from openmrc.core.rows import column
from openmrc.sim.loop import run as loop
from openmrc.sim.scenario.description import load
from openmrc.sim.simulate import simulate

CASE = Path(__file__).parent.parent / "cases" / "uet_trims_and_reordering.yaml"


def test_no_window_stays_closed_when_acknowledged_bytes_run_ahead_of_the_bitmap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    states = []
    results = loop._results

    def kept(world: loop.World, *rest: object) -> loop.Results:
        states.append(world.state)
        return results(world, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "_results", kept)
    run = simulate(load(CASE))
    assert run.is_complete
    assert run.results.counters["retransmitted"] > 1000
    assert np.array_equal(column(states[0].senders, "in_flight"), np.zeros(len(run.work.traffic.size)))
