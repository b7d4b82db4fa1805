"""`mrc sim ask`: design questions of a network architect, one command each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer
import yaml

from openmrc.errors import UsageError
from openmrc.programs.outcome import Json, check_folder, print_json, stoppable
from openmrc.programs.simulation.plan import answer
from openmrc.programs.simulation.plan_options import JobCourse, JobNetwork, JobOutput, JobPolicy
from openmrc.programs.simulation.sim import PointsDone, outcome, print_how_to_resume
from openmrc.report import sweep as report
from openmrc.report.terminal import show_sweep
from openmrc.sim import sweep_runs
from openmrc.sim.questions import NAMES, Question
from openmrc.sim.questions import question as shipped
from openmrc.sim.scenario.description import Scenario
from openmrc.sim.sweep import Point, Sweep, flat, points_of, written

MONTH = "month"
MONTH_ASKS = "What share of a month of training does the network take, with MRC and with RoCE?"
GPUS, MONTH_GPUS = 64, 100_000  # unless said
MOST_GPUS = 131_072  # what a fabric of two tiers can join


Asked = Annotated[
    str | None,
    typer.Argument(
        metavar="QUESTION", help="planes, flaps, evs, loss-threshold, window, roce, t1 or month; omit to list them."
    ),
]
Gpus = Annotated[
    int | None,
    typer.Option(
        min=16, max=MOST_GPUS, help="GPUs, one NIC each; a multiple of 16 [64; of month, any number: 100,000]."
    ),
]
Seeds = Annotated[int, typer.Option(min=1, max=1000, help="Number of random seeds for each point.")]
Save = Annotated[
    Path | None, typer.Option(help="Write scenario.yaml and sweep.yaml to this folder for editing, and run nothing.")
]
Out = Annotated[Path | None, typer.Option(help="Folder for the results [runs/ask-QUESTION-GPUS].")]
On = Annotated[Literal["processes", "ray"], typer.Option(help="Run in local processes or on a Ray cluster.")]
Processes = Annotated[int | None, typer.Option(min=1, help="Concurrent runs [all cores].")]


def ask(
    question: Asked = None,
    gpus: Gpus = None,
    seeds: Seeds = 1,
    save: Save = None,
    out: Out = None,
    on: On = "processes",
    processes: Processes = None,
    as_json: Json = False,
) -> None:
    """Answer a design question with a sweep: a table, a page and a one-sentence answer."""
    if question is None:
        _list({name: shipped(name) for name in NAMES}, as_json)
        return
    if question == MONTH:
        _month(gpus or MONTH_GPUS, seeds, save, out, on, processes, as_json)
        return
    gpus = gpus or GPUS
    if question not in NAMES:
        known = ", ".join((*NAMES, MONTH))
        raise UsageError(f"mrc sim ask: unknown question {question!r}; choose from {known}")
    asked = shipped(question)
    plan, scenario = _planned(asked, gpus, seeds)
    if save is not None:
        _save(plan, scenario, save)
        return

    folder = out or Path("runs") / f"ask-{question}-{gpus}"
    _answer(asked, plan, _points(plan, scenario), folder, on, processes or os.cpu_count() or 1, as_json)


def _list(questions: dict[str, Question], as_json: bool) -> None:
    asked = {name: each.asks for name, each in questions.items()} | {MONTH: MONTH_ASKS}
    if as_json:
        print_json(asked)
        return
    for name, asks in asked.items():
        typer.echo(f"mrc sim ask {name:<15} {asks}")


def _month(
    gpus: int, seeds: int, save: Path | None, out: Path | None, on: str, processes: int | None, as_json: bool
) -> None:
    """Answer by `mrc plan job`: its costs of failures are measured by the simulator already."""
    if save is not None:
        raise UsageError("--save: the question month has no scenario to edit; see mrc plan job --help")
    output = JobOutput(out=out or Path("runs") / f"ask-month-{gpus}", as_json=as_json)
    course = JobCourse(jobs=max(20, seeds), on="ray" if on == "ray" else "threads", threads=processes or 1)
    answer(JobNetwork(gpus=gpus), course, JobPolicy(), output)


def _planned(asked: Question, gpus: int, seeds: int) -> tuple[Sweep, dict[str, Any]]:
    plan = asked.sweep(gpus)
    if seeds > 1:
        plan = msgspec.structs.replace(plan, vary={**plan.vary, "seed": list(range(1, seeds + 1))})
    return plan, asked.scenario(gpus)


def _points(plan: Sweep, scenario: dict[str, Any]) -> list[Point]:
    return points_of(plan, msgspec.convert(scenario, Scenario), Path("ask"))


def _save(plan: Sweep, scenario: dict[str, Any], folder: Path) -> None:
    check_folder(folder, "--save")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scenario.yaml").write_text(yaml.safe_dump(scenario, sort_keys=False))
    (folder / "sweep.yaml").write_text(written(plan))
    typer.echo(f"written to {folder}; run it: mrc sim sweep {folder / 'sweep.yaml'}")


def _answer(
    asked: Question, plan: Sweep, points: list[Point], folder: Path, on: str, processes: int, as_json: bool
) -> None:
    with stoppable(lambda how: print_how_to_resume(how, points, folder, as_json)):
        results = sweep_runs.run(points, folder, on, processes, PointsDone(), plan)
    notes = report.write(plan, results, folder, asked.asks, asked.answer(results))
    result = {"question": asked.asks, "answer": asked.answer(results), **outcome(points, results, folder, notes)}
    if as_json:
        print_json(result | {"runs": [flat(each) for each in results]})
    else:
        typer.echo(asked.asks)
        show_sweep(*report.table(plan, results), result)
        typer.echo(result["answer"])
    if result["refused"]:
        raise typer.Exit(1)
