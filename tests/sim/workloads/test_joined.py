"""What starts in which wave, and what never does; what hosts take before messages, by closed forms."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from openmrc.sim.scenario.description import Scenario
from openmrc.sim.simulate import simulate
from openmrc.sim.workloads.joined import never_started, waves
from openmrc.units import PS_PER_US

FABRIC = {"name": "x", "hosts": {"count": 4}, "planes": [{"count": 1, "host_gbps": 400, "t0": {"down": 4}}]}
RING = {"kind": "ring_all_reduce", "size": 64_000}


@pytest.mark.parametrize("gates", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(5))
def test_nodes_start_in_the_wave_after_the_last_that_they_need(seed: int, gates: float) -> None:
    draw = np.random.default_rng(seed)
    count, edges = 300, 500
    before, after = draw.integers(0, count, (2, edges))
    before, after = np.append(before[before < after], [298, 299]), np.append(after[before < after], [299, 298])
    takes = draw.integers(0, 9, len(before))
    need = np.where(draw.random(count) < gates, 1, 0)  # gates that wait for one of several, not in the cycle
    need[np.bincount(after, minlength=count) == 0] = need[-2:] = 0
    wave, ready = waves(count, before, after, takes, need)
    waits, number = np.where(need > 0, need, np.bincount(after, minlength=count)), 0
    plain, at = np.full(count, -1), np.zeros(count, np.int64)
    while (now := np.flatnonzero((waits <= 0) & (plain < 0))).size:
        plain[now] = number
        for edge in np.flatnonzero(np.isin(before, now)):
            waits[after[edge]] -= 1
            at[after[edge]] = max(at[after[edge]], at[before[edge]] + takes[edge])
        number += 1
    assert wave.tolist() == plain.tolist()
    assert gates or ready.tolist() == at.tolist()  # a gate may start before all of its predecessors have finished
    stuck = never_started(count, before, after, need)
    assert stuck.tolist() == np.flatnonzero(plain < 0).tolist()
    assert 0 < len(stuck) < count


def test_a_chain_of_many_nodes_is_followed_to_its_end() -> None:
    nodes = np.arange(200_000)
    assert not len(never_started(len(nodes), nodes[:-1], nodes[1:], np.zeros(len(nodes), np.int64)))


def last_us(work: dict[str, object]) -> float:
    """Return when the last message of a workload has arrived."""
    made = {"name": "x", "fabric": FABRIC, "transport": {"name": "datagrams"}, "workloads": [work]}
    return float(simulate(msgspec.convert(made, Scenario)).results.finished.max()) / PS_PER_US


@pytest.mark.parametrize(
    ("work", "messages", "steps"),
    [
        (RING, 6, 6),  # each message of a ring follows another host's
        ({"kind": "all_to_all", "size": 9000, "window": 1}, 3, 1),  # one message after another, in one call
        ({"kind": "all_to_all", "size": 9000}, 1, 1),
        ({"kind": "training_step", "steps": 2, "compute": "10us", "collectives": [RING]}, 12, 12),
    ],
)
def test_hosts_take_their_time_before_each_message_and_each_step(
    work: dict[str, object], messages: int, steps: int
) -> None:
    plain = last_us(work)
    assert last_us(work | {"message_time": "7us"}) == pytest.approx(plain + 7 * messages, abs=0.05)
    assert last_us(work | {"step_time": "65us"}) == pytest.approx(plain + 65 * steps, abs=0.05)
