"""`mrc sim ask`: design questions of a network architect, one command each."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import yaml

from openmrc.errors import UsageError
from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import check_folder, give, print_json
from openmrc.programs.simulation.sim import SweepRun, outcome
from openmrc.report import sweep as report
from openmrc.report.terminal import show_sweep
from openmrc.sim.questions import NAMES, Question
from openmrc.sim.questions import question as shipped
from openmrc.sim.scenario.description import Scenario
from openmrc.sim.sweep import Point, Sweep, flat, points_of, written

GPUS = 64  # unless said
MOST_GPUS = 131_072  # what a fabric of two tiers can join


Asked = Annotated[
    str | None,
    typer.Argument(
        metavar="QUESTION",
        help="planes, flaps, evs, loss-threshold, window, roce, t1 or drain; omit to list them.",
    ),
]
Gpus = Annotated[int, typer.Option(min=16, max=MOST_GPUS, help="GPUs, one NIC each; a multiple of 16.")]
Seeds = Annotated[int, typer.Option(min=1, max=1000, help="Number of random seeds for each point.")]
Save = Annotated[
    Path | None, typer.Option(help="Write scenario.yaml and sweep.yaml to this folder for editing, and run nothing.")
]


@with_groups
def ask(question: Asked = None, gpus: Gpus = GPUS, seeds: Seeds = 1, save: Save = None, *, how: SweepRun) -> None:
    """Answer a design question with a sweep: a table, a page and a one-sentence answer."""
    if question is None:
        asks = {name: shipped(name).asks for name in NAMES}
        give(asks, how.as_json, "\n".join(f"mrc sim ask {name:<15} {text}" for name, text in asks.items()))
    elif question not in NAMES:
        raise UsageError(f"mrc sim ask: unknown question {question!r}; choose from {', '.join(NAMES)}")
    else:
        asked = shipped(question)
        plan, scenario = _planned(asked, gpus, seeds)
        if save is not None:
            _save(plan, scenario, save)
        else:
            points = points_of(plan, msgspec.convert(scenario, Scenario), Path("ask"))
            _answer(asked, plan, points, how.out or Path("runs") / f"ask-{question}-{gpus}", how)


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
