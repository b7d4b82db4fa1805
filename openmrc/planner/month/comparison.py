"""One job on several networks: which design each of them has, what it loses there, and where the answer turns.

All networks meet the same host failures, because these have a stream of their own: differences between networks are far
less noisy than the goodput itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from openmrc.errors import ConfigError
from openmrc.fabric.model.parts import Parts
from openmrc.planner.compare import Wish, compared, rails_of
from openmrc.planner.design import Design, design
from openmrc.planner.month.causes import HOUR, Situation
from openmrc.planner.month.forecast import Forecast, forecast
from openmrc.planner.month.policy import NAMES, Policy
from openmrc.planner.month.response_table import FILE, Responses, responses
from openmrc.planner.month.rows import check_types
from openmrc.planner.month.structure import Parallelism, preset
from openmrc.planner.month.tasks import JobTask, RunTasks, one_by_one

NETWORKS = ("mrc", "roce", "roce_adaptive", "roce_dual", "uet")
TITLES = {
    "mrc": "MRC", "roce": "RoCE", "roce_adaptive": "RoCE, adaptive routing", "roce_dual": "RoCE, two ToRs",
    "uet": "UET",
}  # fmt: skip
LIFETIME_MONTHS = 48  # in which the network's price is paid; assumption
MOST_THREADS, MOST_NICS_A_HOST = 1 << 16, 1024
_STEPS = 24  # of a search for a break-even
_FACTORS = {"half": 0.5, "double": 2.0}
Both = tuple[float, float]  # goodput of the two networks


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
        """Refuse what makes no job."""
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
        for group in self.groups:
            group.check()
        self.policy.check()


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
    """Return the job on one network."""
    question.check()
    known = table or responses(Path(question.responses))
    known.check(network, question.nic_gbps, question.planes)
    if network not in known.networks:
        raise ConfigError(f"network {network!r} was not measured; {', '.join(known.networks)} were")
    made = design_of(question, network, parts)
    groups = question.groups or preset(question.model)
    return Situation(network, made, parts, known, groups, question.policy, question.nics_per_host)


def answer(question: JobQuestion, network: str, parts: Parts, table: Responses | None = None) -> Forecast:
    """Simulate the job on one network."""
    situation = situation_of(question, network, parts, table)
    return forecast(situation, question.days, question.jobs, question.seed, question.threads, question.infant)


def goodput(question: JobQuestion, network: str, parts: Parts) -> float:
    """Return the mean share of the time that is useful on one network."""
    return float(answer(question, network, parts).goodput.mean())


def lead(question: JobQuestion, pair: tuple[str, str], parts: Parts) -> float:
    """Return how much more of the time is useful on the first network than on the second."""
    return goodput(question, pair[0], parts) - goodput(question, pair[1], parts)


def turning_point(at: Callable[[float], float], low: float, high: float) -> float | None:
    """Return where a lead changes its sign between two values, on a logarithmic scale; None: it does not."""
    first, last = at(low), at(high)
    if (first > 0) == (last > 0):
        return None
    for _ in range(_STEPS):
        middle = (low * high) ** 0.5
        if (at(middle) > 0) == (first > 0):
            low = middle
        else:
            high = middle
        if high / low < 1.02:
            break
    return float((low * high) ** 0.5)


def break_even(question: JobQuestion, pair: tuple[str, str], parts: Parts) -> dict[str, Any]:
    """Return where the other network would win: the restart time, the flap rate, and what a GPU-hour has to cost."""
    quick = replace(question, jobs=min(question.jobs, 20))

    def by_restart(seconds: float) -> float:
        return lead(replace(quick, policy=replace(quick.policy, restart_s=seconds)), pair, parts)

    def by_flaps(factor: float) -> float:
        return lead(quick, pair, scaled(parts, ("nic_flap",), factor))

    def by_remap(seconds: float) -> float:
        return lead(replace(quick, policy=replace(quick.policy, remap_s=seconds)), pair, parts)

    ahead = lead(quick, pair, parts)
    flaps = turning_point(by_flaps, 1e-2, 1e2)
    return {
        "between": list(pair),
        "lead_percent": 100 * ahead,
        "nic_flap_mtbf_hours_given": parts.failures.nic_flap.mtbf_hours,
        "restart_s": turning_point(by_restart, 1.0, 7200.0),
        "nic_flap_mtbf_hours": None if flaps is None else parts.failures.nic_flap.mtbf_hours / flaps,
        "remap_s": turning_point(by_remap, 0.01, 3600.0),
        "gpu_hour_price": _price(question, pair, parts, ahead),
        "lifetime_months": LIFETIME_MONTHS,
    }


def _price(question: JobQuestion, pair: tuple[str, str], parts: Parts, ahead: float) -> float | None:
    """Return the price of a GPU-hour from which the first network pays for itself; 0: it is cheaper; None: never."""
    one, other = (design_of(question, network, parts) for network in pair)
    hours = ahead * question.gpus * 730 * LIFETIME_MONTHS
    extra = one.cost - other.cost
    if extra <= 0:
        return 0.0 if ahead >= 0 else None
    return extra / hours if hours > 0 else None


def scaled(parts: Parts, names: Sequence[str], factor: float) -> Parts:
    """Return parts that fail more often by a factor; `host`: everything that is not the network's."""
    failures, host = parts.failures, parts.host
    for name in names:
        if name == "host":
            for each in host.__struct_fields__:
                host = msgspec.structs.replace(host, **{each: _often(getattr(host, each), factor)})
        else:
            failures = msgspec.structs.replace(failures, **{name: _often(getattr(failures, name), factor)})
    return msgspec.structs.replace(parts, failures=failures, host=host)


def _often(failure: Any, factor: float) -> Any:
    return msgspec.structs.replace(failure, mtbf_hours=failure.mtbf_hours / factor)


def sensitivity(
    question: JobQuestion, pair: tuple[str, str], parts: Parts, most: int = 10, run: RunTasks = one_by_one
) -> list[dict[str, Any]]:
    """Return what halving and doubling each input changes, the inputs that matter most first (percentage points)."""
    quick = replace(question, jobs=min(question.jobs, 20))
    inputs = _inputs(quick, parts)
    asked = [(quick, parts), *(change(factor) for change in inputs.values() for factor in _FACTORS.values())]
    good = run([JobTask(goodput, (varied, network, changed)) for varied, changed in asked for network in pair])
    calm, *rest = zip(good[::2], good[1::2], strict=True)  # both networks, for each that was asked
    halves, doubles = rest[::2], rest[1::2]
    rows = [
        {"input": name, **_moved(pair, calm, half, "half"), **_moved(pair, calm, double, "double")}
        for name, half, double in zip(inputs, halves, doubles, strict=True)
    ]
    return sorted(rows, key=lambda row: -_swing(row, pair))[:most]


def _moved(pair: tuple[str, str], calm: Both, good: Both, word: str) -> dict[str, float]:
    """Return how far both networks moved, and the lead of the first."""
    moved = {f"{network}_{word}": 100 * (now - then) for network, now, then in zip(pair, good, calm, strict=True)}
    return {**moved, f"lead_{word}": 100 * (good[0] - good[1])}


def _swing(row: dict[str, Any], pair: tuple[str, str]) -> float:
    return max(float(abs(row[f"{network}_{word}"])) for network in pair for word in ("half", "double"))


def _inputs(question: JobQuestion, parts: Parts) -> dict[str, Callable[[float], tuple[JobQuestion, Parts]]]:
    """Return the inputs that are varied, each as a function of a factor."""

    def policy(name: str) -> Callable[[float], tuple[JobQuestion, Parts]]:
        def change(factor: float) -> tuple[JobQuestion, Parts]:
            value = getattr(question.policy, name) * factor
            return replace(question, policy=replace(question.policy, **{name: value})), parts

        return change

    def rate(*names: str) -> Callable[[float], tuple[JobQuestion, Parts]]:
        return lambda factor: (question, scaled(parts, names, factor))

    names = ("checkpoint_s", "restart_s", "diagnose_s", "detect_s", "lag_s", "pause_s", "patience_s", "reroute_s",
             "remap_s", "spares")  # fmt: skip
    return {
        **{NAMES[name]: policy(name) for name in names},
        "host failures": rate("host"),
        "NIC link failures": rate("nic_link"),
        "NIC link flaps": rate("nic_flap"),
        "flaps above T0": rate("fabric_flap"),
        "grey links": rate("nic_grey", "fabric_grey"),
        "slow ports": rate("nic_slow", "fabric_slow"),
        "T0 reboots": rate("t0_reboot"),
        "NIC modules": rate("nic_optic"),
    }


def best_policy(question: JobQuestion, network: str, parts: Parts) -> dict[str, Any]:
    """Search the policy's few numbers, one after the other, twice; return the best and its goodput."""
    quick = replace(question, jobs=min(question.jobs, 20))
    tried: dict[str, Sequence[Any]] = {
        "checkpoint_s": (30.0, 60.0, 120.0, 300.0, 600.0, 1200.0),
        "spares": (0.0025, 0.005, 0.01, 0.02),
        "patience_s": (5.0, 15.0, 30.0, 60.0, 120.0),
        "evict": (False, True),
        "most_lost": (1, 2, 4),
    }
    policy = question.policy
    best = goodput(replace(quick, policy=policy), network, parts)
    for _ in range(2):
        for name, values in tried.items():
            for value in values:
                changed = replace(policy, **{name: value})
                good = goodput(replace(quick, policy=changed), network, parts)
                if good > best:
                    best, policy = good, changed
    return {"network": network, **{name: getattr(policy, name) for name in tried}, "goodput_percent": 100 * best}


def gpu_hours(found: Forecast) -> float:
    """Return the GPU-hours that a job lost to the network, a month."""
    return found.network_loss * found.situation.design.nics * found.seconds / HOUR
