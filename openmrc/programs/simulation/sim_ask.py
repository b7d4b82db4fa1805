"""`mrc sim ask`: design questions of a network architect, one command each."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import yaml

from openmrc.errors import UsageError
from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import check_folder, give, print_json
from openmrc.programs.simulation.plan import answer
from openmrc.programs.simulation.plan_options import JobCourse, JobNetwork, JobOutput, JobPolicy
from openmrc.programs.simulation.sim import SweepRun, outcome
from openmrc.report import sweep as report
from openmrc.report.terminal import show_sweep
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
        metavar="QUESTION",
        help="planes, flaps, evs, loss-threshold, window, roce, t1, drain or month; omit to list them.",
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


@with_groups
def ask(question: Asked = None, gpus: Gpus = None, seeds: Seeds = 1, save: Save = None, *, how: SweepRun) -> None:
    """Answer a design question with a sweep: a table, a page and a one-sentence answer."""
    if question is None:
        asks = {name: shipped(name).asks for name in NAMES} | {MONTH: MONTH_ASKS}
        give(asks, how.as_json, "\n".join(f"mrc sim ask {name:<15} {text}" for name, text in asks.items()))
    elif question == MONTH:
        _month(gpus or MONTH_GPUS, seeds, save, how)
    elif question not in NAMES:
        raise UsageError(f"mrc sim ask: unknown question {question!r}; choose from {', '.join((*NAMES, MONTH))}")
    else:
        asked, gpus = shipped(question), gpus or GPUS
        plan, scenario = _planned(asked, gpus, seeds)
        if save is not None:
            _save(plan, scenario, save)
        else:
            points = points_of(plan, msgspec.convert(scenario, Scenario), Path("ask"))
            _answer(asked, plan, points, how.out or Path("runs") / f"ask-{question}-{gpus}", how)


def _month(gpus: int, seeds: int, save: Path | None, how: SweepRun) -> None:
    """Answer by `mrc plan job`: its costs of failures are measured by the simulator already."""
    if save is not None:
        raise UsageError("--save: the question month has no scenario to edit; see mrc plan job --help")
    output = JobOutput(out=how.out or Path("runs") / f"ask-month-{gpus}", as_json=how.as_json)
    course = JobCourse(jobs=max(20, seeds), on="ray" if how.on == "ray" else "threads", threads=how.processes or 1)
    answer(JobNetwork(gpus=gpus), course, JobPolicy(), output)


def _planned(asked: Question, gpus: int, seeds: int) -> tuple[Sweep, dict[str, Any]]:
    plan = asked.sweep(gpus)
    if seeds > 1:
        plan = msgspec.structs.replace(plan, vary={**plan.vary, "seed": list(range(1, seeds + 1))})
    return plan, asked.scenario(gpus)


def _save(plan: Sweep, scenario: dict[str, Any], folder: Path) -> None:
    check_folder(folder, "--save")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scenario.yaml").write_text(yaml.safe_dump(scenario, sort_keys=False))
    (folder / "sweep.yaml").write_text(written(plan))
    typer.echo(f"written to {folder}; run it: mrc sim sweep {folder / 'sweep.yaml'}")


def _answer(asked: Question, plan: Sweep, points: list[Point], folder: Path, how: SweepRun) -> None:
    results = how.results(points, folder, plan)
    notes = report.write(plan, results, folder, asked.asks, asked.answer(results))
    result = {"question": asked.asks, "answer": asked.answer(results), **outcome(points, results, folder, notes)}
    if how.as_json:
        print_json(result | {"runs": [flat(each) for each in results]})
    else:
        typer.echo(asked.asks)
        show_sweep(*report.table(plan, results), result)
        typer.echo(result["answer"])
    if result["refused"]:
        raise typer.Exit(1)
