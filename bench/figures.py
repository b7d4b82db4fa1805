"""Figures as data: run a bench and keep its figure, or write the tables of README and docs from what is kept.

    python -m bench.figures --run goodput        # run the command of `goodput` once and add its figure
    python -m bench.figures --run goodput -n 5   # five runs
    python -m bench.figures --write              # the tables, from bench/results (`make figures`)

`bench/figures.toml` says for each figure what it answers, the command a reader runs, where in its output the figure
stands, and the goal. `bench/results/NAME.json` holds every run: figure, date, machine, commit. Figures of different
machines are never put together.
"""

from __future__ import annotations

import argparse
import json
import operator
import re
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench._support.commit import commit
from bench._support.page import put
from bench.train import sweep_results

HERE = Path(__file__).parent
ROOT = HERE.parent
RESULTS = HERE / "results"
PAGES = (
    ROOT / "README.md",
    ROOT / "docs" / "performance.md",
    ROOT / "docs" / "training.md",
    ROOT / "docs" / "native.md",
)
TRAINING = "python -m bench.train."  # commands whose figures the page of training shows as well
NATIVE = "python -m bench.live.native_library"  # commands whose figures stand on the page of the native library only
SECTION = "figures"
GOALS = {"<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True)
class Figure:
    """One question with its command, and the goal that its figure is held against."""

    name: str
    question: str
    command: str
    pattern: str  # regular expression of the command's output; the group is the figure
    unit: str = ""
    goal: str = ""  # "<= 0.45"; empty: no goal
    scale: float = 1.0  # the printed figure times this is the one that is kept
    headline: bool = False  # also in README
    root: bool = False

    def meets(self, value: float) -> bool | None:
        """Whether a figure meets the goal; None without one."""
        if not self.goal:
            return None
        relation, _, limit = self.goal.partition(" ")
        return bool(GOALS[relation](value, float(limit)))


@dataclass(frozen=True)
class RecordedRun:
    """One run of a command."""

    value: float
    date: str
    machine: str
    commit: str = ""


def figures() -> list[Figure]:
    """Return all figures, in the order of the table."""
    with (HERE / "figures.toml").open("rb") as file:
        return [Figure(name=name, **fields) for name, fields in tomllib.load(file)["figures"].items()]


def machines() -> dict[str, str]:
    """Return what each label of a machine stands for."""
    with (HERE / "figures.toml").open("rb") as file:
        return dict(tomllib.load(file)["machines"])


def recorded(figure: Figure) -> list[RecordedRun]:
    """Return the runs that are kept, oldest first."""
    path = RESULTS / f"{figure.name}.json"
    return [RecordedRun(**run) for run in json.loads(path.read_text())] if path.exists() else []


def keep(figure: Figure, runs: list[RecordedRun]) -> None:
    """Write the runs of a figure, one a line."""
    lines = ",\n".join(json.dumps({key: value for key, value in vars(run).items() if value != ""}) for run in runs)
    (RESULTS / f"{figure.name}.json").write_text(f"[\n{lines}\n]\n")


def run(figure: Figure, machine: str) -> RecordedRun:
    """Run the command of a figure; SystemExit if it fails or prints no figure."""
    words = figure.command.split()
    command = [sys.executable, *words[1:]] if words[0] == "python" else words
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = re.search(figure.pattern, done.stdout, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{figure.name}: `{figure.command}` printed no {figure.pattern!r}\n{done.stdout}{done.stderr}")
    value = float(found[1].replace(",", "")) * figure.scale
    print(f"{figure.name}: {value:.4g} {figure.unit} (goal {figure.goal or 'none'})", flush=True)
    return RecordedRun(value, datetime.now(UTC).date().isoformat(), machine, commit())


def this_machine() -> str:
    """Return a label such as `AMD EPYC 9B45, 2 cores`."""
    facts = Path("/proc/cpuinfo").read_text()
    model = next((line.partition(":")[2] for line in facts.splitlines() if line.startswith("model name")), "unknown")
    cores = facts.count("processor\t")
    kind = re.sub(r"\(R\)|\(TM\)|CPU|Processor|@.*|[0-9]+-Core", "", model).strip()
    return f"{kind}, {cores} cores"


def table(chosen: Iterable[Figure], newest_only: bool = False) -> Iterator[str]:
    """Yield the lines of a table; a row for each figure and machine, or for the newest machine only."""
    yield "| question | goal | median | range | runs | machine | date | command |"
    yield "|---|---|---|---|---|---|---|---|"
    for figure in chosen:
        by_machine: dict[str, list[RecordedRun]] = {}
        for each in recorded(figure):
            by_machine.setdefault(each.machine, []).append(each)
        rows = sorted(by_machine.items(), key=lambda item: max(run.date for run in item[1]), reverse=True)
        for machine, runs in rows[:1] if newest_only else rows:
            yield _row(figure, machine, runs)


def _row(figure: Figure, machine: str, runs: list[RecordedRun]) -> str:
    values = sorted(each.value for each in runs)
    median = statistics.median(values)
    unit = f" {figure.unit}" if figure.unit else ""
    verdict = {True: "", False: ", missed", None: ""}[figure.meets(median)]
    spread = f"{number(values[0])} to {number(values[-1])}" if len(values) > 1 else ""
    command = f"`{figure.command}`" + (" (root)" if figure.root else "")
    goal = f"{figure.goal}{unit}" if figure.goal else ""
    cells = [
        figure.question, goal, f"{number(median)}{unit}{verdict}", spread, str(len(values)), machine,
        max(each.date for each in runs), command,
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def number(value: float) -> str:
    """Return a figure with three significant digits, never with an exponent."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    digits = f"{value:.3g}"
    return digits if "e" not in digits else f"{value:.6f}".rstrip("0")


def legend(chosen: Iterable[Figure]) -> Iterator[str]:
    """Yield the lines that say what the machines of a table are."""
    used = {run.machine for figure in chosen for run in recorded(figure)}
    yield ""
    yield from (f"- {label}: {text}" for label, text in machines().items() if label in used)


def headlines() -> Iterator[str]:
    """Yield README's table: one figure a cell."""
    yield "| question | median | goal | machine | command |"
    yield "|---|---|---|---|---|"
    for row in table((figure for figure in figures() if figure.headline), newest_only=True):
        if row.startswith(("| question", "|---")):
            continue
        question, goal, median, _, _, machine, date, command = row.strip("| ").split(" | ")
        yield f"| {question} | {median} | {goal} | {machine}, {date} | {command} |"


def pages() -> dict[Path, str]:
    """Return the section of each page that shows figures."""
    native = [figure for figure in figures() if figure.command.startswith(NATIVE)]
    training = [figure for figure in figures() if figure.command.startswith(TRAINING)]
    others = [figure for figure in figures() if figure not in native]
    return {
        PAGES[0]: "\n".join(headlines()),
        PAGES[1]: "\n".join([*table(others), *legend(others)]),
        PAGES[2]: "\n".join([*sweep_results.tables(), *table(training), *legend(training)]),
        PAGES[3]: "\n".join([*table(native), *legend(native)]),
    }


def main() -> None:
    """Run benches or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", nargs="+", default=[], metavar="NAME", help="run these figures' commands")
    parser.add_argument("-n", type=int, default=1, help="runs of each")
    parser.add_argument("--machine", default=None, help="label of this machine, instead of its processor's name")
    parser.add_argument("--write", action="store_true", help="write the tables of README and docs")
    options = parser.parse_args()
    known: dict[str, Any] = {figure.name: figure for figure in figures()}
    if unknown := set(options.run) - set(known):
        parser.error(f"{', '.join(sorted(unknown))}: not in bench/figures.toml ({', '.join(known)})")
    for name in options.run:
        for _ in range(options.n):
            new = run(known[name], options.machine or this_machine())
            keep(known[name], [*recorded(known[name]), new])
    if options.write:
        for page, text in pages().items():
            put(page, SECTION, text)


if __name__ == "__main__":
    main()
