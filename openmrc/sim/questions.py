"""Design questions as sweeps: `scenarios/questions/NAME.yaml` has what each varies, and what its answer says.

All run synchronous training steps on a two-tier fabric of one size: 100 us of computation, then a ring all-reduce of
2 MiB within groups of 16 drawn at random, and with `exchange` (where queues matter) an all-to-all. The answers hold for
this workload; for another one, save a question's files and edit them. In names and faults `{1/32}` stands for that
share of the T0-T1 links, at least one.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from openmrc.base.shipped import SCENARIOS
from openmrc.base.yaml_file import decode
from openmrc.errors import UsageError
from openmrc.sim.sweep import Plot, Sweep

FOLDER = SCENARIOS / "questions"
NAMES = ("planes", "flaps", "evs", "loss-threshold", "window", "roce", "t1", "drain")
NIC_GBPS = 800
FEWEST = 16  # GPUs: a group of the all-reduce
LARGEST_T0 = 256  # ports down: a 51.2T switch of 100G ports, half of them up
LARGE = 4096  # GPUs from which on fewer steps are run
PLANES = 8
MULTIPLE_FROM = 2.0  # ratio of times that is named as a multiple, not as a percentage
_SHARE = re.compile(r"\{1/(\d+)\}")

Summary = Mapping[str, Any]
Faults = list[dict[str, Any]]


class ComparedNetwork(Struct, frozen=True, forbid_unknown_fields=True):
    """One of the networks that are compared."""

    planes: int
    transport: dict[str, Any]


class Answer(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is said about the results: the best value, the last that survives, or each design beside itself."""

    best: str = ""  # the varied field
    words: str = ""  # of a value of it
    figure: str = "p99"
    survived: float = 0.0  # longest acceptable step, relative to the first point
    compared: tuple[str, ...] = ()  # what is said of each case of `against`; the first has no fault
    longer: str = ""  # said if the first design takes longer than the second without faults
    note: str = ""


class Question(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A question: its scenario and sweep for a number of GPUs, and the answer from its results."""

    asks: str
    plot: Plot
    answer_of: Answer = msgspec.field(name="answer")
    exchange: bool = False
    steps: tuple[int, int] = (5, 5)  # below and from LARGE on
    vary: dict[str, list[Any]] = {}
    together: tuple[dict[str, list[Any]], ...] = ()
    names: dict[str, str] = {}
    flapping: tuple[int, ...] = ()  # T0-T1 links, each a point; at most a quarter of them
    designs: dict[str, ComparedNetwork] = {}
    against: dict[str, Any] = {}  # faults, for each design

    def scenario(self, gpus: int) -> dict[str, Any]:
        collectives = [{"kind": "ring_all_reduce", "size": "2MiB", "group": FEWEST, "placement": "random"}]
        if self.exchange:
            collectives.append({"kind": "all_to_all", "size": "64KiB", "group": FEWEST, "placement": "random"})
        step = {"kind": "training_step", "steps": self.steps[gpus >= LARGE], "compute": "100us", "jitter": 0.02}
        workload = {**step, "collectives": collectives}
        return {"name": "steps", "fabric": fabric(gpus, PLANES), "workloads": [workload], "until": "2s"}

    def sweep(self, gpus: int) -> Sweep:
        links = gpus * PLANES
        groups = list(_shared(self.together, links))
        if self.flapping:
            counts = [count for count in self.flapping if count <= links // 4]
            names = [f"{count:,} link{'s' * (count != 1)}" for count in counts]
            groups.append({"name": names, "faults": [_flaps(count) for count in counts]})
        if self.designs:
            groups.append(_each_design(self.designs, self.against, gpus))
        varied: dict[str, Any] = {"vary": self.vary, "together": tuple(groups), "names": self.names}
        return Sweep(scenario="scenario.yaml", plot=self.plot, **varied)

    def answer(self, results: Sequence[Summary]) -> str:
        asked = self.answer_of
        if asked.best:
            return _best(results, asked)
        if not asked.compared:
            return _survived(results, asked.survived)
        said = _compared(results, asked.compared)
        first, second = _steps(results[0]), _steps(results[len(asked.compared)])
        is_longer = first is not None and second is not None and first > second
        return " ".join(filter(None, (said, asked.longer if is_longer else "", asked.note)))


def question(name: str) -> Question:
    return decode(Path(FOLDER / f"{name}.yaml"), Question)


def fabric(gpus: int, planes: int) -> dict[str, Any]:
    """Return a two-tier fabric without oversubscription; the NIC's rate is divided among planes."""
    if gpus < FEWEST or gpus % FEWEST:
        raise UsageError(f"--gpus: {gpus}: expected a multiple of {FEWEST}, at least {FEWEST}")
    down = FEWEST // 2
    while down * 2 <= LARGEST_T0 and gpus % (down * 2) == 0 and gpus // (down * 2) >= 4:
        down *= 2
    plane = {"count": planes, "host_gbps": NIC_GBPS / planes, "t0": {"down": down, "up": down}, "t1": {}}
    return {"name": f"{gpus} NICs, {planes} x {NIC_GBPS // planes}G", "hosts": {"count": gpus}, "planes": [plane]}


def _shared(tree: Any, links: int, is_name: bool = False) -> Any:
    """Return a document with the counts of links in place of their shares."""
    if isinstance(tree, str):
        return _SHARE.sub(lambda match: format(max(1, links // int(match[1])), "," if is_name else "d"), tree)
    if isinstance(tree, dict):
        return {_shared(key, links, True): _shared(each, links, key == "name") for key, each in tree.items()}
    return [_shared(each, links, is_name) for each in tree] if isinstance(tree, list | tuple) else tree


def _flaps(links: int) -> Faults:
    """Return flaps of this many T0-T1 links, in up to four alternating groups: each is down 150 of every 600 us."""
    turns = min(4, links)
    each = [links // turns + (turn < links % turns) for turn in range(turns)] if turns else []
    step = {"for": "150us", "every": "600us", "times": 50}
    return [
        {"at": f"{50 + 150 * turn}us", **step, "down": f"{count} random fabric links of all"}
        for turn, count in enumerate(each)
    ]


def _each_design(designs: Mapping[str, ComparedNetwork], against: Mapping[str, Any], gpus: int) -> dict[str, list[Any]]:
    group: dict[str, list[Any]] = {"name": [], "transport": [], "fabric": [], "faults": []}
    for name, design in designs.items():
        for what, faults in _shared(dict(against), gpus * design.planes).items():
            steps = _flaps(int(faults["flaps"])) if isinstance(faults, dict) else faults
            point = (f"{name}, {what}", design.transport, fabric(gpus, design.planes), steps)
            for column, value in zip(group.values(), point, strict=True):
                column.append(value)
    return group


def _steps(result: Summary, figure: str = "mean") -> float | None:
    summary = result.get("summary")
    if summary is None or summary["step_us"]["finished"] < summary["step_us"]["count"]:
        return None
    return float(summary["step_us"][figure])


def _us(value: float) -> str:
    """Return a time as text, never with an exponent."""
    return f"{value:,.0f} us" if value >= 10_000 else f"{value:,.4g} us"


def _beside(took: float, base: float) -> str:
    """Return a time with what it is more or less than another, absolute and relative."""
    times = f"{took / base - 1:+.1%}" if took < MULTIPLE_FROM * base else f"{took / base:,.1f} times as long"
    return f"{_us(took)} ({'+' if took >= base else '-'}{_us(abs(took - base))}, {times})"


def _best(results: Sequence[Summary], asked: Answer) -> str:
    groups: dict[str, list[Summary]] = {}
    for result in results:
        groups.setdefault(str(result["values"]["name"]), []).append(result)
    parts, calm = [], 0.0  # the best of the first group, which has no fault
    for name, group in groups.items():
        timed = [
            (took, each["values"][asked.best]) for each in group if (took := _steps(each, asked.figure)) is not None
        ]
        if not timed:
            parts.append(f"{name}: no run finished its steps")
            continue
        best, worst = min(timed), max(timed)
        named = asked.words.format(best[1]).removesuffix("s" if best[1] == 1 else "")
        figure = f"{_beside(best[0], calm)} beside {next(iter(groups))}" if calm else _us(best[0])
        others = f"; {_beside(worst[0], best[0])} with {worst[1]:,}" if len(timed) > 1 else ""
        stopped = f"; {len(group) - len(timed)} of {len(group)} runs did not finish" if len(timed) < len(group) else ""
        parts.append(f"{name}: shortest steps with {named}, {asked.figure} {figure}{others}{stopped}")
        calm = calm or best[0]
    return ". ".join(parts) + "."


def _survived(results: Sequence[Summary], limit: float) -> str:
    calm = _steps(results[0])
    if calm is None:
        return "The steps did not finish even without flaps."
    timed = [(str(result["values"]["name"]), _steps(result)) for result in results]
    held = [(name, took) for name, took in timed if took is not None and took <= limit * calm]
    said = (
        f"The mean step of {_us(calm)} stays within {limit - 1:.0%} with up to {held[-1][0]} flapping: "
        f"{_beside(held[-1][1], calm)}"
    )
    over = next(((name, took) for name, took in timed if took is None or took > limit * calm), None)
    if over is None:
        return said + "."
    return f"{said}; with {over[0]}, {_beside(over[1], calm) if over[1] is not None else 'the steps did not finish'}."


def _compared(results: Sequence[Summary], words: Sequence[str]) -> str:
    """Return the steps of each design under each of `words`, and those of the first design beside the others'."""
    said = [f"with {words[0]}", *words[1:]]
    parts, first = [], None
    for at in range(0, len(results), len(words)):
        group = results[at : at + len(words)]
        name = str(group[0]["values"]["name"]).removesuffix(f", {words[0]}")
        took = [each for each in map(_steps, group) if each is not None]
        if len(took) < len(group):
            parts.append(f"{name}: the steps did not finish")
            continue
        steps = group[0]["summary"]["step_us"]["count"]
        faults = (
            f"{_beside(each, took[0])} {word}, {_us(steps * (each - took[0]))} over {steps} steps"
            for each, word in zip(took[1:], said[1:], strict=True)
        )
        parts.append(f"{name}: steps of {_us(took[0])} {said[0]}; {'; '.join(faults)}")
        if first is None:
            first = name, took
        elif first[0] != name:
            pairs = zip(first[1], took, said, strict=True)
            parts.append(f"{first[0]} beside it: " + ", ".join(f"{_beside(*pair)} {word}" for *pair, word in pairs))
    return ". ".join(parts) + "."
