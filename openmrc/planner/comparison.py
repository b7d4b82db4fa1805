"""One job on several networks: which design each of them has, what it loses there, and its best policy.

All networks meet the same host failures, because these have a stream of their own: differences between networks are far
less noisy than the goodput itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from openmrc.errors import ConfigError
from openmrc.fabric.model.parts import Parts
from openmrc.planner.causes import HOUR, Situation
from openmrc.planner.compare import Wish, compared, rails_of
from openmrc.planner.design import Design, design
from openmrc.planner.forecast import Forecast, forecast
from openmrc.planner.policy import Policy
from openmrc.planner.response_table import FILE, Responses, responses
from openmrc.planner.rows import check_types
from openmrc.planner.structure import Parallelism, preset

TITLES = {
    "mrc": "MRC",
    "roce": "RoCE",
    "roce_adaptive": "RoCE, adaptive routing",
    "roce_dual": "RoCE, two ToRs",
    "uet": "UET",
}
MOST_TRIED, FEWEST_TRIED = 10, 4  # jobs for each value of a search
TRIED_GPUS = 400_000  # of all these jobs
MOST_THREADS, MOST_NICS_A_HOST = 1 << 16, 1024


@dataclass(frozen=True)
class JobQuestion:
    """What an architect asks: a size, a model, a policy, and how many jobs to simulate."""

    gpus: int = 100_000
    nic_gbps: float = 800.0
    responses: str = str(FILE)  # a table of what failures cost, for NICs of this rate
    planes: int = 8
    switch_tbps: float = 51.2
    model: str = "dense"
    groups: tuple[Parallelism, ...] = ()  # what the job exchanges, instead of the model's
    days: float = 30.0
    jobs: int = 100
    seed: int = 1
    threads: int = 1
    infant: float = 0.0
    nics_per_host: int = 8
    policy: Policy = field(default_factory=Policy)

    def check(self) -> None:
        check_types(self)
        if not 2 <= self.gpus <= 1 << 20:
            raise ConfigError(f"gpus = {self.gpus}; 2 to {1 << 20} is allowed")
        if not 0 <= self.seed < 1 << 32:
            raise ConfigError(f"seed = {self.seed}; 0 to {(1 << 32) - 1} is allowed")
        for name, most in (("threads", MOST_THREADS), ("nics_per_host", MOST_NICS_A_HOST)):
            if not 1 <= getattr(self, name) <= most:
                raise ConfigError(f"{name.replace('_', '-')} = {getattr(self, name)}; 1 to {most} is allowed")
        if self.planes < 2:
            raise ConfigError(f"planes = {self.planes}; 2 or more is allowed: mrc is compared with a single plane")
        if self.planes not in (2, 4, 8, 16):
            raise ConfigError(f"planes = {self.planes}; 2, 4, 8 or 16 is allowed")


def design_of(question: JobQuestion, network: str, parts: Parts) -> Design:
    """Return the design that a network runs on: many planes, the cheapest single plane, or two."""
    switch = parts.switch(question.switch_tbps)
    if network == "roce_dual":
        return design("2-plane", question.gpus, question.nic_gbps, switch, parts, planes=2)
    wish = Wish(question.gpus, question.nic_gbps)
    designs = compared(wish, question.planes, switch, parts, rails_of(question.gpus, None))
    if network in ("mrc", "uet"):
        return designs[0]
    single = [each for each in designs if each.planes == each.islands == each.rails == 1]
    if not single:
        raise ConfigError(f"no single-plane network of these parts holds {question.gpus} NICs")
    return min(single, key=lambda each: each.cost)


def situation_of(question: JobQuestion, network: str, parts: Parts, table: Responses | None = None) -> Situation:
    question.check()
    known = table or responses(Path(question.responses))
    known.check(network, question.nic_gbps, question.planes)
    made = design_of(question, network, parts)
    groups = question.groups or preset(question.model)
    return Situation(network, made, parts, known, groups, question.policy, question.nics_per_host)


def answer(question: JobQuestion, network: str, parts: Parts, table: Responses | None = None) -> Forecast:
    situation = situation_of(question, network, parts, table)
    return forecast(situation, question.days, question.jobs, question.seed, question.threads, question.infant)


def goodput(question: JobQuestion, network: str, parts: Parts) -> float:
    """Return the mean share of the time that is useful on one network."""
    return float(answer(question, network, parts).goodput.mean())


def quick(question: JobQuestion) -> JobQuestion:
    """Return the question for a search: fewer jobs, as few as 4 of a large one, which averages over its failures."""
    return replace(question, jobs=min(question.jobs, MOST_TRIED, max(FEWEST_TRIED, TRIED_GPUS // question.gpus)))


def best_policy(question: JobQuestion, network: str, parts: Parts) -> dict[str, Any]:
    """Search the policy's few numbers, one after the other, twice; return the best and its goodput."""
    few = quick(question)
    tried: dict[str, Sequence[Any]] = {
        "checkpoint_s": (30.0, 60.0, 120.0, 300.0, 600.0, 1200.0),
        "spares": (0.0025, 0.005, 0.01, 0.02),
        "patience_s": (5.0, 15.0, 30.0, 60.0, 120.0),
        "evict": (False, True),
        "most_lost": (1, 2, 4),
    }
    policy = question.policy
    best = goodput(replace(few, policy=policy), network, parts)
    for _ in range(2):
        for name, values in tried.items():
            for value in values:
                changed = replace(policy, **{name: value})
                good = goodput(replace(few, policy=changed), network, parts)
                if good > best:
                    best, policy = good, changed
    return {"network": network, **{name: getattr(policy, name) for name in tried}, "goodput_percent": 100 * best}


def gpu_hours(found: Forecast) -> float:
    """Return the GPU-hours that a job lost to the network, a month."""
    return found.network_loss * found.situation.design.nics * found.seconds / HOUR
