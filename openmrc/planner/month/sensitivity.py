"""Which assumption matters: every input of a forecast, what it rests on, what it moves, and where the answer turns.

The range of a rate or a repair time follows from what is known of it (`SPREAD`), that of a policy is in `KNOWN`. All
runs meet failures drawn from the same seeds, so that what moves is the input and not the draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from openmrc.core.arrays import Floats
from openmrc.fabric.model.parts import Basis, Failures, HostFailures, Parts
from openmrc.planner.month.causes import in_words
from openmrc.planner.month.comparison import JobQuestion, answer, design_of, quick
from openmrc.planner.month.policy import KNOWN, Policy
from openmrc.planner.month.response_table import Responses
from openmrc.planner.month.structure import Parallelism, preset
from openmrc.planner.month.tasks import JobTask, RunTasks, one_by_one

SPREAD = {Basis.PUBLISHED: 2.0, Basis.INFERRED: 3.0, Basis.OURS: 10.0, Basis.GIVEN: 2.0}  # divided and multiplied by
SURE = 2.0  # standard errors between two networks before one of them is said to be ahead
LIFETIME_MONTHS = 48  # in which the network's price is paid; assumption
_STEPS = 24  # of a search for a break-even
Case = tuple[JobQuestion, Parts, Responses]


@dataclass(frozen=True)
class Input:
    """One number that a forecast depends on; a switch is 0 or 1 and has no unit."""

    name: str
    basis: Basis
    given: float
    low: float
    high: float
    unit: str
    put: Callable[[Case, float], Case]

    def described(self) -> dict[str, Any]:
        """Return it as data."""
        return {name: value for name, value in vars(self).items() if name != "put"}


def inputs(question: JobQuestion, parts: Parts) -> list[Input]:
    """Return all inputs of a question."""
    infant = Input("early failures", Basis.OURS, question.infant, 0.0, max(3.0, question.infant), "times more at first",
                   lambda case, value: (replace(case[0], infant=value), *case[1:]))  # fmt: skip
    return [
        *_policy(question.policy), *_rates("failures", parts.failures), *_rates("host", parts.host),
        *_groups(question.groups or preset(question.model)), *_measured(), infant,
    ]  # fmt: skip


def _policy(policy: Policy) -> Iterator[Input]:
    for name, known in KNOWN.items():
        given = getattr(policy, name)
        low, high = min(known.low, given), max(known.high, given)
        if name == "pause_s":
            high = max(given, min(high, policy.checkpoint_s / 2))
        elif name == "checkpoint_s":
            low = max(low, min(given, 2 * policy.pause_s))
        basis = known.basis if given == getattr(Policy, name) else Basis.GIVEN
        yield Input(known.words, basis, given, low, high, known.unit, _decided(name, type(given)))


def _decided(name: str, kind: Callable[[float], Any]) -> Callable[[Case, float], Case]:
    """Return what sets a field of the policy; a job that does not swap does not evict either, and the reverse."""

    def put(case: Case, value: float) -> Case:
        policy = case[0].policy
        linked = {"swap": {"evict": policy.evict and value > 0}, "evict": {"swap": policy.swap or value > 0}}
        made = replace(policy, **{name: kind(value)}, **linked.get(name, {}))
        return replace(case[0], policy=made), *case[1:]

    return put


def _rates(section: str, rates: Failures | HostFailures) -> Iterator[Input]:
    """Yield the time between failures and the repair time of each part."""
    for part in rates.__struct_fields__:
        rate = getattr(rates, part)
        for key, words in (("mtbf", "time between failures"), ("mttr", "repair time")):
            given, basis = getattr(rate, f"{key}_hours"), getattr(rate, f"{key}_basis")
            yield Input(f"{in_words(part)}, {words}", basis, given, given / SPREAD[basis], given * SPREAD[basis], "h",
                        _failing(section, part, f"{key}_hours"))  # fmt: skip


def _failing(section: str, part: str, field: str) -> Callable[[Case, float], Case]:
    def put(case: Case, value: float) -> Case:
        rates = getattr(case[1], section)
        changed = msgspec.structs.replace(getattr(rates, part), **{field: value})
        changed = msgspec.structs.replace(rates, **{part: changed})
        return case[0], msgspec.structs.replace(case[1], **{section: changed}), case[2]

    return put


def _groups(groups: tuple[Parallelism, ...]) -> Iterator[Input]:
    """Yield how much each group exchanges, and how much of that a step waits for."""
    rest = 1 - sum(group.share for group in groups)
    for at, group in enumerate(groups):
        for field, words, low, high in (
            ("share", "share of the step", group.share / 2, min(2 * group.share, group.share + rest)),
            ("exposed", "exposed part", 0.0, 1.0),
            ("slack", "slack of the hidden part", 0.0, max(1.0, group.slack)),
        ):
            yield Input(f"{group.name}, {words}", group.basis, getattr(group, field), low, high, "",
                        _exchanged(groups, at, field))  # fmt: skip


def _exchanged(groups: tuple[Parallelism, ...], at: int, field: str) -> Callable[[Case, float], Case]:
    def put(case: Case, value: float) -> Case:
        changed: dict[str, Any] = {field: value}
        made = (*groups[:at], replace(groups[at], **changed), *groups[at + 1 :])
        return replace(case[0], groups=made), *case[1:]

    return put


def _measured() -> Iterator[Input]:
    """Yield what our own simulator measured, as multiples of it."""
    for words, field in (
        ("congestion without failures", "took_us"), ("slower collectives during failures", "slow"),
        ("what a failure costs once", "once_us"),
    ):  # fmt: skip
        yield Input(words, Basis.OURS, 1.0, 0.5, 2.0, "x measured", _responding(field))


def _responding(field: str) -> Callable[[Case, float], Case]:
    def put(case: Case, factor: float) -> Case:
        table = case[2]
        if field == "took_us":
            fastest: dict[tuple[str, int], float] = {}
            for row in table.healthy:
                key = row.collective, row.nics
                fastest[key] = min(row.took_us, fastest.get(key, row.took_us))
            healthy = tuple(
                msgspec.structs.replace(row, took_us=least + factor * (row.took_us - least))
                for row in table.healthy
                for least in (fastest[row.collective, row.nics],)
            )
            return *case[:2], msgspec.structs.replace(table, healthy=healthy)
        calm = 1.0 if field == "slow" else 0.0
        rows = tuple(
            msgspec.structs.replace(row, **{field: max(1e-6 + calm, calm + factor * (getattr(row, field) - calm))})
            for row in table.rows
        )
        return *case[:2], msgspec.structs.replace(table, rows=rows)

    return put


def sensitivity(
    question: JobQuestion, networks: Sequence[str], parts: Parts, table: Responses, run: RunTasks = one_by_one
) -> dict[str, Any]:
    """Return how far both ends of each input's range move the networks' goodput (points), and what passes what.

    The inputs that move most come first.
    """
    calm: Case = (quick(question), parts, table)
    known = inputs(question, parts)
    cases = {(each.name, value): each.put(calm, value) for each in known for value in (each.low, each.high)
             if value != each.given}  # fmt: skip
    tasks = [JobTask(_each_job, (case, network)) for case in (calm, *cases.values()) for network in networks]
    good = np.array(run(tasks)).reshape(1 + len(cases), len(networks), -1)
    found = dict(zip(cases, good[1:], strict=True))

    def end(each: Input, value: float) -> dict[str, Any]:
        there = found.get((each.name, value), good[0])
        moved = (there - good[0]).mean(axis=1).tolist()
        return {"moves": dict(zip(networks, moved, strict=True)), "turns": turns_of(networks, good[0], there)}

    rows = [{**each.described(), "ends": [end(each, each.low), end(each, each.high)]} for each in known]
    order = sorted(networks, key=lambda network: -good[0, list(networks).index(network)].mean())
    return {"order": order, "inputs": sorted(rows, key=lambda row: -swing(row))}


def swing(row: dict[str, Any]) -> float:
    """Return how far an input moves the network that it moves most."""
    return float(max(abs(moved) for end in row["ends"] for moved in end["moves"].values()))


def _each_job(case: Case, network: str) -> Floats:
    """Return the goodput of each job (percent)."""
    question, parts, table = case
    return 100 * answer(question, network, parts, table).goodput


def turns_of(networks: Sequence[str], before: Floats, after: Floats) -> list[tuple[str, str]]:
    """Return which network passes which: both its place behind and its place ahead are certain."""
    pairs = [(one, other) for one in range(len(networks)) for other in range(len(networks)) if one != other]
    return [
        (networks[one], networks[other]) for one, other in pairs
        if _is_ahead(before[other], before[one]) and _is_ahead(after[one], after[other])
    ]  # fmt: skip


def _is_ahead(one: Floats, other: Floats) -> bool:
    """Tell whether one network's mean is ahead beyond what the jobs that both met leave open."""
    apart = one - other
    error = apart.std(ddof=1) / len(apart) ** 0.5 if len(apart) > 1 else 0.0
    return bool(apart.mean() > SURE * error)


def lead(case: Case, pair: tuple[str, str]) -> float:
    """Return how much more of the time is useful on the first network than on the second (percentage points)."""
    one, other = (_each_job(case, network).mean() for network in pair)
    return float(one - other)


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


def break_even(question: JobQuestion, pair: tuple[str, str], parts: Parts, table: Responses) -> dict[str, Any]:
    """Return where the other network would win: the restart time, the flap rate, and what a GPU-hour has to cost."""
    calm: Case = (quick(question), parts, table)
    known = {each.name: each for each in inputs(question, parts)}
    flaps = parts.failures.nic_flap.mtbf_hours

    def turn(name: str, low: float, high: float) -> float | None:
        return turning_point(lambda value: lead(known[name].put(calm, value), pair), low, high)

    ahead = lead(calm, pair)
    return {
        "between": list(pair),
        "lead_percent": ahead,
        "nic_flap_mtbf_hours_given": flaps,
        "restart_s": turn("restart time", 1.0, 7200.0),
        "nic_flap_mtbf_hours": turn("NIC flap, time between failures", flaps / 100, flaps * 100),
        "remap_s": turn("remap time of MRC", 0.01, 3600.0),
        "gpu_hour_price": _price(question, pair, parts, ahead / 100),
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
