"""Random fabrics, transports, workloads and faults: runs end, add up, lose no packet and finish what can be finished.

`python -m bench.sim.random_scenarios` draws thousands.
"""

import os
from pathlib import Path

import pytest

from bench.sim.random_scenarios import drawn, problems
from openmrc.sim.results.summary import summary
from openmrc.sim.scenario.description import load
from openmrc.sim.simulate import simulate

BYTES = """
name: messages of a byte
fabric:
  name: two planes
  hosts: {count: 8}
  planes:
    - {count: 2, host_gbps: 100, host_link_ns: 20, t0: {down: 4, up_link_ns: 300, switch_ns: 0}, t1: {switch_ns: 0}}
transport: {name: mrc, settings: {evs: 128, loss_threshold: 1}}
workloads:
  - {kind: background, size: 1, sizes: exponential, load: 0.3, duration: 834ns}
  - {kind: ring_all_reduce, size: 64, group: 4, start: 3us}
faults: [{at: 5us, down: plane 1}]
until: 200ms
"""
EACH, PARTS = 25, 8
FAST_PARTS = 3  # of them in every run of the tests; the others go on where these end


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="hundreds of runs take compiled code")
@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=[pytest.mark.long] * (part >= FAST_PARTS)) for part in range(PARTS)]
)
def test_random_scenarios_end_and_add_up(part: int) -> None:
    longest = 120  # s of one; the slowest takes 16 s alone
    found = {seed: problems(drawn(seed), longest_s=longest) for seed in range(1 + part * EACH, 1 + (part + 1) * EACH)}
    assert {seed: wrong for seed, wrong in found.items() if wrong} == {}


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="50,000 messages take compiled code")
def test_fifty_thousand_messages_of_a_byte_do_not_fill_the_links_with_trimmed_headers(tmp_path: Path) -> None:
    path = tmp_path / "bytes.yaml"
    path.write_text(BYTES)
    scenario = load(path)
    assert problems(scenario) == []
    packets = summary(simulate(scenario))["packets"]
    assert packets["new"] > 30_000
    assert packets["trimmed"] == 0
    assert packets["retransmitted"] < packets["new"] / 20  # 6,387 where short packets are trimmed
