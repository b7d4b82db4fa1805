"""Which assumption matters: every input of a forecast, what it rests on, what it moves, and where the answer turns.

The range of a rate or a repair time follows from what is known of it (`SPREAD`), that of a policy is in `KNOWN`. All
runs meet failures drawn from the same seeds, so that what moves is the input and not the draw.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import msgspec
import numpy as np

from openmrc.core.arrays import Floats
from openmrc.fabric.model.parts import Basis, Failures, HostFailures, Parts
from openmrc.planner.causes import in_words
from openmrc.planner.comparison import JobQuestion, answer, design_of, quick
from openmrc.planner.policy import KNOWN, Policy
from openmrc.planner.response_table import Responses
from openmrc.planner.structure import Parallelism, preset
from openmrc.planner.tasks import RunTasks, one_by_one

SPREAD = {Basis.PUBLISHED: 2.0, Basis.INFERRED: 3.0, Basis.OURS: 10.0, Basis.GIVEN: 2.0}  # divided and multiplied by
SURE = 2.0  # standard errors between two networks before one of them is said to be ahead
LIFETIME_MONTHS = 48  # in which the network's price is paid; assumption
_STEPS = 24  # of a search for a break-even
Case = tuple[JobQuestion, Parts, Responses]


@dataclass(frozen=True)
class Input:
    """One number that a forecast depends on; a switch is on or off and has no unit."""

    name: str
    basis: Basis
    given: float
    low: float
    high: float
    unit: str
    path: tuple[str | int, ...]  # of the number in a `Case`

    def put(self, case: Case, value: float) -> Case:
        """Return the case with this value; a job that does not swap does not evict either, and the reverse."""
        if self.path[0] == _TABLE:
            return *case[:2], _measured(case[2], str(self.path[1]), value)
        made: Case = _put(case, self.path, type(self.given)(value))
        policy = made[0].policy
        if policy.evict and not policy.swap:
            linked = replace(policy, **({"swap": True} if self.path[-1] == "evict" else {"evict": False}))
            made = _put(made, (0, "policy"), linked)
        return made


_TABLE = 2  # of a case


def _put(tree: Any, path: Sequence[str | int], value: Any) -> Any:
    """Return a tree of tuples, dataclasses and structs with another value at a path."""
    if not path:
        return value
    first, *rest = path
    if isinstance(first, int):
        return (*tree[:first], _put(tree[first], rest, value), *tree[first + 1 :])
    part = {first: _put(getattr(tree, first), rest, value)}
    return msgspec.structs.replace(tree, **part) if isinstance(tree, msgspec.Struct) else replace(tree, **part)


def _measured(table: Responses, field: str, factor: float) -> Responses:
    """Return what was measured beyond a collective without congestion, slowdown or cost, times a factor."""
    if field == "took_us":
        keys = {(row.collective, row.nics) for row in table.healthy}
        fastest = {key: min(row.took_us for row in table.healthy if (row.collective, row.nics) == key) for key in keys}
        healthy = [
            msgspec.structs.replace(row, took_us=least + factor * (row.took_us - least))
            for row in table.healthy
            for least in (fastest[row.collective, row.nics],)
        ]
        return msgspec.structs.replace(table, healthy=tuple(healthy))
    calm = 1.0 if field == "slow" else 0.0
    rows = [
        msgspec.structs.replace(row, **{field: calm + factor * max(0.0, getattr(row, field) - calm)})
        for row in table.rows
    ]
    return msgspec.structs.replace(table, rows=tuple(rows))


def inputs(question: JobQuestion, parts: Parts) -> list[Input]:
    return [
        *_policy(question.policy), *_rates("failures", parts.failures), *_rates("host", parts.host),
        *_groups(question.groups or preset(question.model)),
        *(Input(words, Basis.OURS, 1.0, 0.5, 2.0, "x measured", (_TABLE, field)) for words, field in (
            ("congestion without failures", "took_us"), ("slower collectives during failures", "slow"),
            ("what a failure costs once", "once_us"))),
        Input("early failures", Basis.OURS, question.infant, 0.0, max(3.0, question.infant), "times more at first",
              (0, "infant")),
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
        yield Input(known.words, basis, given, low, high, known.unit, (0, "policy", name))


def _rates(section: str, rates: Failures | HostFailures) -> Iterator[Input]:
    """Yield the time between failures and the repair time of each part."""
    for part in rates.__struct_fields__:
        rate = getattr(rates, part)
        for key, words in (("mtbf", "time between failures"), ("mttr", "repair time")):
            given, basis = getattr(rate, f"{key}_hours"), getattr(rate, f"{key}_basis")
            yield Input(f"{in_words(part)}, {words}", basis, given, given / SPREAD[basis], given * SPREAD[basis], "h",
                        (1, section, part, f"{key}_hours"))  # fmt: skip


def _groups(groups: tuple[Parallelism, ...]) -> Iterator[Input]:
    """Yield how much each group exchanges, and how much of that a step waits for."""
    rest = 1 - sum(group.share for group in groups)
    for at, group in enumerate(groups):
        for field, words, low, high in (
            ("share", "share of the step", group.share / 2, min(2 * group.share, group.share + rest)),
            ("exposed", "exposed part", 0.0, 1.0),
            ("slack", "slack of the hidden part", 0.0, max(1.0, group.slack)),
        ):
            yield Input(
                f"{group.name}, {words}", group.basis, getattr(group, field), low, high, "", (0, "groups", at, field)
            )


def case_of(question: JobQuestion, parts: Parts, table: Responses) -> Case:
    """Return a question as inputs change it: with few jobs, and the groups of its model."""
    return replace(quick(question), groups=question.groups or preset(question.model)), parts, table


def sensitivity(
    question: JobQuestion, networks: Sequence[str], parts: Parts, table: Responses, run: RunTasks = one_by_one
) -> dict[str, Any]:
    """Return how far both ends of each input's range move the networks' goodput (points), and what passes what.

    The inputs that move most come first.
    """
    calm = case_of(question, parts, table)
    known = inputs(question, parts)
    cases = {(each.name, value): each.put(calm, value) for each in known for value in (each.low, each.high)
             if value != each.given}  # fmt: skip
    tasks = [partial(_each_job, case, network) for case in (calm, *cases.values()) for network in networks]
    good = np.array(run(tasks)).reshape(1 + len(cases), len(networks), -1)
    found = dict(zip(cases, good[1:], strict=True))

    def end(each: Input, value: float) -> dict[str, Any]:
        there = found.get((each.name, value), good[0])
        moved = (there - good[0]).mean(axis=1).tolist()
        return {"moves": dict(zip(networks, moved, strict=True)), "turns": turns_of(networks, good[0], there)}

    rows = [{**asdict(each), "ends": [end(each, each.low), end(each, each.high)]} for each in known]
    order = np.argsort(-good[0].mean(axis=1), kind="stable")
    return {"order": [networks[at] for at in order], "inputs": sorted(rows, key=lambda row: -swing(row))}


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
        (networks[one], networks[other])
        for one, other in pairs
        if _is_ahead(before[other], before[one]) and _is_ahead(after[one], after[other])
    ]


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
    calm = case_of(question, parts, table)
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
