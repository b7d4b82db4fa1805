"""Small jobs: parts of which only some fail, and a table of responses with round numbers."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from openmrc.fabric.model.parts import FailureRate, Failures, HostFailures, Parts, load_parts
from openmrc.planner.causes import Situation
from openmrc.planner.design import design
from openmrc.planner.policy import Policy
from openmrc.planner.response_table import Healthy, Response, Responses
from openmrc.planner.structure import COLLECTIVES, Parallelism

PARTS = load_parts()
NEVER = FailureRate(mtbf_hours=1e15, mttr_hours=1, source="test")
DAY = 24 * 3600.0
ALL_EXPOSED = (Parallelism("data", "all_reduce", 0.2, 1.0, 0.0, "test"),)
KINDS = ("nic_link", "nic_link_2", "nic_link_3", "nic_link_4", "nic_link_unnoticed", "nic_flap", "nic_burst",
         "nic_slow", "nic_grey_1e-2", "fabric_link", "fabric_slow", "fabric_burst",
         "fabric_grey_1e-2", "t1")  # fmt: skip
PLAIN = Policy(pause_s=0.0, lag_s=0.0, evict=False)


def every(hours: float, repair_hours: float) -> FailureRate:
    """Return a failure of one part."""
    return FailureRate(mtbf_hours=hours, mttr_hours=repair_hours, source="test")


def only(**failures: FailureRate) -> Parts:
    """Return parts of which only some fail; `gpu` stands for all hosts."""
    host = HostFailures(**{name: failures.pop(name, NEVER) for name in HostFailures.__struct_fields__})
    network = Failures(**{**dict.fromkeys(Failures.__struct_fields__, NEVER), **failures})
    return msgspec.structs.replace(PARTS, failures=network, host=host)


def responses(**slow: float) -> Responses:
    """Return a table in which each kind slows collectives by a factor (1 unless given); RoCE stops without its link."""
    rows = tuple(
        Response(network, name, kind, 256, slow.get(kind.replace("-", "_"), 1.0), 0.0,
                 network == "roce" and kind == "nic_link", 1)
        for network in ("mrc", "roce") for name in COLLECTIVES for kind in KINDS
    )  # fmt: skip
    healthy = tuple(Healthy(network, name, 256, 100.0) for network in ("mrc", "roce") for name in COLLECTIVES)
    return Responses("test", {}, "", 1 << 20, 800.0, 8, {"256": 16}, 200.0, healthy, rows)


def situation(
    network: str, parts: Parts, policy: Policy = PLAIN, nics: int = 1024, planes: int = 0, **slow: float
) -> Situation:
    """Return a job of all-exposed all-reduces, a fifth of the step; 0 planes: as many as the network has."""
    planes = planes or (8 if network == "mrc" else 1)
    made = design("test", nics, 800, parts.switch(51.2), parts, planes=planes, tiers=2)
    return Situation(network, made, parts, responses(**slow), ALL_EXPOSED, policy)


def changed(policy: Policy, **values: object) -> Policy:
    """Return a policy with other values."""
    return replace(policy, **values)  # type: ignore[arg-type]
