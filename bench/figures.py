"""Figures as data: run a bench and keep its figure, or write the tables of the docs from what is kept.

    python -m bench.figures --run goodput        # run the command of `goodput` once and add its figure
    python -m bench.figures --run goodput -n 5   # five runs
    python -m bench.figures --write              # the tables, from bench/results (`make figures`)

`bench/figures.toml` says for each figure what it answers, the command a reader runs, where in its output the figure
stands, and the goal. `bench/results/NAME.json` holds every run: figure, date, machine, commit. Figures of different
machines are never put together: a page shows those of the machine that ran the command last, the appendix the others.
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

from bench.train import sweep_results
from harness.commit import commit
from harness.page import put

HERE = Path(__file__).parent
ROOT = HERE.parent
RESULTS = HERE / "results"
PAGES = (
    ROOT / "docs" / "performance.md",
    ROOT / "docs" / "evidence" / "training.md",
    ROOT / "docs" / "evidence" / "native.md",
    ROOT / "docs" / "evidence" / "runs.md",
)
TRAINING = "python -m bench.train."  # commands whose figures stand on the evidence page of training only
NATIVE = "python -m bench.live.native_library"  # and on that of the native library only
SECTION = "figures"
BUSY = ", busy"  # in the label of a machine: beside other work
NEWEST, EARLIER = slice(1), slice(1, None)  # of the machines, that which ran last first
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


def printed(command: str) -> str:
    """Run the command of figures and return what it prints; SystemExit if it fails."""
    words = command.split()
    done = subprocess.run(
        [sys.executable, *words[1:]] if words[0] == "python" else words,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"`{command}` failed\n{done.stdout}{done.stderr}")
    return done.stdout


def value_in(output: str, figure: Figure) -> float:
    """Return a figure out of what its command printed; SystemExit if it is not there."""
    found = re.search(figure.pattern, output, re.MULTILINE)
    if found is None:
        raise SystemExit(f"{figure.name}: `{figure.command}` printed no {figure.pattern!r}\n{output}")
    return float(found[1].replace(",", "")) * figure.scale


def run(command: str, chosen: list[Figure], machine: str) -> None:
    """Run a command once, and keep the figures among those chosen that it prints."""
    output = printed(command)
    for figure in chosen:
        if figure.command == command:
            value = value_in(output, figure)
            print(f"{figure.name}: {value:.4g} {figure.unit} (goal {figure.goal or 'none'})", flush=True)
            new = RecordedRun(value, datetime.now(UTC).date().isoformat(), machine, commit())
            keep(figure, [*recorded(figure), new])


def this_machine() -> str:
    """Return a label such as `AMD EPYC 9B45, 2 cores`."""
    facts = Path("/proc/cpuinfo").read_text()
    model = next((line.partition(":")[2] for line in facts.splitlines() if line.startswith("model name")), "unknown")
    cores = facts.count("processor\t")
    kind = re.sub(r"\(R\)|\(TM\)|CPU|Processor|@.*|[0-9]+-Core", "", model).strip()
    return f"{kind}, {cores} cores"


def by_machine(figure: Figure) -> list[tuple[str, list[RecordedRun]]]:
    """Return the runs of each machine, those of the machine that ran last first, and runs beside other work last."""
    found: dict[str, list[RecordedRun]] = {}
    for each in recorded(figure):
        found.setdefault(each.machine, []).append(each)
    return sorted(found.items(), key=lambda item: (BUSY not in item[0], max(run.date for run in item[1])), reverse=True)


def table(chosen: Iterable[Figure], of_machines: slice = NEWEST) -> Iterator[str]:
    """Yield the lines of a table; a row for each figure and machine."""
    yield "| question | goal | median | range | runs | machine | date | command |"
    yield "|---|---|---|---|---|---|---|---|"
    for figure in chosen:
        yield from (_row(figure, machine, runs) for machine, runs in by_machine(figure)[of_machines])


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


def legend(chosen: Iterable[Figure], of_machines: slice = NEWEST) -> Iterator[str]:
    """Yield the lines that say what the machines of a table are."""
    used = {machine for figure in chosen for machine, _ in by_machine(figure)[of_machines]}
    yield ""
    yield from (f"- {label}: {text}" for label, text in machines().items() if label in used)


def pages() -> dict[Path, str]:
    """Return the section of each page that shows figures."""
    native = [figure for figure in figures() if figure.command.startswith(NATIVE)]
    training = [figure for figure in figures() if figure.command.startswith(TRAINING)]
    others = [figure for figure in figures() if figure not in (*native, *training)]
    return {
        PAGES[0]: "\n".join([*table(others), *legend(others)]),
        PAGES[1]: "\n".join([*sweep_results.table(sweep_results.kept()), "", *table(training), *legend(training)]),
        PAGES[2]: "\n".join([*table(native), *legend(native)]),
        PAGES[3]: "\n".join([*table(figures(), EARLIER), *legend(figures(), EARLIER)]),
    }


def main() -> None:
    """Run benches or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", nargs="+", default=[], metavar="NAME", help="run these figures' commands")
    parser.add_argument("-n", type=int, default=1, help="runs of each")
    parser.add_argument("--machine", default=None, help="label of this machine, instead of its processor's name")
    parser.add_argument("--write", action="store_true", help="write the tables of the docs")
    options = parser.parse_args()
    known = {figure.name: figure for figure in figures()}
    if unknown := set(options.run) - set(known):
        parser.error(f"{', '.join(sorted(unknown))}: not in bench/figures.toml ({', '.join(known)})")
    chosen = [known[name] for name in options.run]
    for command in dict.fromkeys(figure.command for figure in chosen):
        for _ in range(options.n):
            run(command, chosen, options.machine or this_machine())
    if options.write:
        for page, text in pages().items():
            put(page, SECTION, text)


if __name__ == "__main__":
    main()
