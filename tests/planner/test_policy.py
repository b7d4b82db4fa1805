"""Policies and groups that contradict themselves are refused."""

from __future__ import annotations

import pytest

from openmrc.errors import ConfigError
from openmrc.planner.policy import Policy
from openmrc.planner.structure import Parallelism, preset, step

HIDDEN = (Parallelism("data", "all_reduce", 0.2, 0.25, 0.5, "test"),)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Policy(restart_s=-1.0), "restart-s = -1; 0 to"),
        (Policy(spares=2.0), "spares = 2; a share"),
        (Policy(checkpoint_s=10.0, pause_s=20.0), "the job would only write"),
        (Policy(evict=True, swap=False), "evict without swap"),
        (Policy(most_lost=0), "most-lost = 0; 1 to 15"),
        (Policy(detect_s=float("nan")), "detect-s = nan"),
        (Policy(detect_s=-1), "detect-s = -1; 0 to"),
        (Policy(restart_s="3"), "restart-s = '3'; a number is expected"),  # type: ignore[arg-type]
        (Policy(spares=True), "spares = True; a number is expected"),
        (Policy(most_lost=2.5), "most-lost = 2.5; a whole number is expected"),  # type: ignore[arg-type]
    ],
)
def test_a_policy_that_cannot_be_is_refused(policy: Policy, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        policy.check()


def test_hidden_communication_counts_beyond_its_slack() -> None:
    assert step(HIDDEN, {"all_reduce": 1.0}) == 1.0
    assert step(HIDDEN, {"all_reduce": 1.4}) == pytest.approx(1 + 0.2 * 0.25 * 0.4)
    assert step(HIDDEN, {"all_reduce": 2.0}) == pytest.approx(1 + 0.2 * (0.25 * 1.0 + 0.75 * 0.5))


def test_groups_are_checked() -> None:
    with pytest.raises(ConfigError, match="group data: share = 2; 0 to 1"):
        Parallelism("data", "all_reduce", 2.0, 0.2, 0.0, "").check()
    with pytest.raises(ConfigError, match="'gossip' is not among all_reduce"):
        Parallelism("data", "gossip", 0.2, 0.2, 0.0, "").check()
    with pytest.raises(ConfigError, match="model 'tiny' is not among dense, moe"):
        preset("tiny")
