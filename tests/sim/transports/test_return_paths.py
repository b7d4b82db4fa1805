"""Three of a rack's four uplinks die in both directions: answers find the last one (arXiv 2605.04333, figure 19a)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from openmrc.sim.scenario.description import load
from openmrc.sim.simulate import simulate
from openmrc.sim.transports.mrc.setup import MrcTransport
from tests.sim.small import on_wire

SCENARIO = """
name: three-of-four-uplinks
fabric: {name: d, hosts: {count: 16}, planes: [{count: 1, host_gbps: 400, t0: {down: 4, up: 4}, t1: {down: 4}}]}
transport: {name: mrc}
workloads: [{kind: incast, size: 32MiB, senders: 1, receiver: 12, first_sender: 0}]
faults:
  - {at: 100us, down: p0-t0-00<>p0-t1-00}
  - {at: 200us, down: p0-t0-00<>p0-t1-01}
  - {at: 300us, down: p0-t0-00<>p0-t1-02}
until: 100ms
"""
LINE_US = 8192 * on_wire(MrcTransport()) * 8 / 400e3
REPAIR_US = 131  # of the three failures together: one default timeout


@pytest.mark.parametrize("seed", range(1, 21))
def test_a_flow_goes_on_at_line_rate_over_the_last_of_four_uplinks(tmp_path: Path, seed: int) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(SCENARIO)
    done = simulate(msgspec.structs.replace(load(file), seed=seed))
    assert done.is_complete
    assert done.results.finished.max() / 1e6 < LINE_US + REPAIR_US
