"""What of a step's traffic the step waits for."""

from __future__ import annotations

import pytest

from openmrc.errors import ConfigError
from openmrc.sim.workloads.exposure import LATENCY, exposures
from openmrc.sim.workloads.plan import WorkloadGraph
from openmrc.units import PS_PER_US

RATE = 800_000_000_000
BYTES = 10_000_000  # 100 us at that rate
TOOK = 100 * PS_PER_US + LATENCY


def step(hidden_us: int, kind: str = "all_reduce") -> WorkloadGraph:
    """Return 300 us of computation; a message after the first 100 us, and an end that waits for both."""
    made = WorkloadGraph(2)
    first = made.computations(0, 100 * PS_PER_US)
    beside = made.computations(0, hidden_us * PS_PER_US)
    made.label("gradient")
    made.kinds["gradient"] = kind
    message = made.messages(0, 1, BYTES)
    made.label("")
    gate = made.gate()
    made.follow(first, message)
    made.follow(first, beside)
    made.follow([int(beside[0]), int(message[0])], gate)
    return made


def test_traffic_behind_a_longer_computation_is_hidden_and_has_slack() -> None:
    (found,) = exposures(step(hidden_us=200), RATE)
    assert found.collective == "all_reduce"
    assert found.share == pytest.approx(TOOK / (300 * PS_PER_US))
    assert found.exposed == 0
    assert found.slack == pytest.approx(200 * PS_PER_US / TOOK - 1, abs=0.1)
    assert found.bytes == BYTES


def test_traffic_that_nothing_hides_is_exposed() -> None:
    (found,) = exposures(step(hidden_us=0), RATE)
    assert found.exposed == pytest.approx(1)


def test_half_hidden_is_half_exposed() -> None:
    (found,) = exposures(step(hidden_us=51), RATE)
    assert found.exposed == pytest.approx(0.5, abs=0.01)


def test_a_message_without_a_collective_is_point_to_point_and_a_gather_counts_as_a_ring() -> None:
    made = step(0)
    made.kinds.clear()
    assert [each.collective for each in exposures(made, RATE)] == ["point_to_point"]
    assert [each.collective for each in exposures(step(0, "all_gather"), RATE)] == ["all_reduce"]


def test_messages_of_a_nic_follow_each_other() -> None:
    made = WorkloadGraph(3)
    made.messages(0, [1, 2], BYTES)
    (both,) = exposures(made, RATE)
    assert both.share == 1
    assert both.bytes == 2 * BYTES


def test_a_step_without_traffic_is_refused() -> None:
    made = WorkloadGraph(2)
    made.computations(0, 5)
    with pytest.raises(ConfigError, match="moves nothing between NICs"):
        exposures(made, RATE)
