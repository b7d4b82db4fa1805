"""`mrc sim steps`: a job of many equal training steps, each simulated once."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from openmrc.base.shipped import find
from openmrc.base.terminal import print_table
from openmrc.errors import FieldError
from openmrc.programs.outcome import Json, give
from openmrc.report.simulation import number
from openmrc.report.terminal import ProgressLine
from openmrc.sim.scenario.description import load, located
from openmrc.sim.steps.course import summary
from openmrc.sim.steps.job import StepsProgress, run_steps


def steps(
    scenario: Annotated[
        Path, typer.Argument(metavar="SCENARIO.yaml", help="A scenario with training steps and nothing beside them.")
    ],
    seed: Annotated[
        int | None, typer.Option(min=0, max=(1 << 32) - 1, help="Random seed; overrides the scenario's.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, max=256, help="Threads; the result is the same for any number.")] = 1,
    every_step: Annotated[bool, typer.Option("--every-step", help="Simulate equal steps, too, to compare.")] = False,
    as_json: Json = False,
) -> None:
    """Run hours of training steps, packet by packet where faults come and go; exit 1 if the job stops."""
    file = find(scenario)
    wanted = load(file)
    if seed is not None:
        wanted = msgspec.structs.replace(wanted, seed=seed)
    progress = ProgressLine()

    def show(at: StepsProgress) -> None:
        text = f"{at.job_ps / 1e12:,.4f} s of the job, {at.steps:,} steps, {at.simulated:,} of them simulated"
        progress.show(f"{text}, {at.wall_s:,.0f} s", at.wall_s)

    try:
        result = summary(run_steps(wanted, threads, show, leave_out=not every_step))
    except FieldError as error:
        raise located(error, file) from None
    finally:
        progress.close()
    give(result, as_json, lambda: _print(result))
    if result["stopped"]:
        typer.echo(f"mrc: the job stopped after {result['steps']:,} steps: {result['stopped']}", err=True)
        raise typer.Exit(1)


def _print(result: dict[str, Any]) -> None:
    typer.echo(
        f"{result['name']}: {result['steps']:,} steps in {number(result['job_s'], ' s')} on {result['transport']}, "
        f"{result['nics']:,} NICs; {result['steps_simulated']:,} of them simulated, {number(result['wall_s'], ' s')}"
    )
    table = Table()
    for name in ("at, s", "steps", "simulated", "changes", "repaired packets", "longest step, us", "lost, us", "+-"):
        table.add_column(name, justify="right")
    for row in result["disturbances"]:
        table.add_row(
            f"{row['at_s']:,.4f}", f"{row['steps']:,}", f"{row['steps_simulated']:,}", f"{row['changes']:,}",
            f"{row['repaired']:,}", number(row["longest_us"]), number(row["cost_us"]), number(row["uncertain_us"]),
        )  # fmt: skip
    if result["disturbances"]:
        print_table(table)
    if result["calm_step_us"] is None:
        typer.echo("no step without faults was simulated: nothing to compare with")
        return
    typer.echo(
        f"a calm step takes {number(result['calm_step_us'], ' us')}; faults cost {number(result['lost_us'], ' us')} "
        f"+- {number(result['uncertain_us'], ' us')}, {result['lost_percent']:.4g} % of the time"
    )
    if result["note"]:
        typer.echo(result["note"])
