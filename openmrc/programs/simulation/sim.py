"""`mrc sim`: run scenarios on a virtual fabric."""

import json
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from openmrc.base.documents import schema_of, schema_text
from openmrc.base.shipped import find
from openmrc.errors import ConfigError, FieldError, UsageError
from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import INTERRUPTED, Json, give, print_json, stoppable
from openmrc.programs.simulation.sim_run_options import RunOutput, RunOverrides, WithoutScenario
from openmrc.report import perfetto as timeline
from openmrc.report import sweep as report
from openmrc.report.folder import write
from openmrc.report.terminal import ProgressLine, show, show_comparison, show_sweep
from openmrc.sim import sweep_runs
from openmrc.sim.comparison import compared, points_of
from openmrc.sim.results.summary import summary
from openmrc.sim.results.unfinished import describe
from openmrc.sim.scenario.description import Scenario, load, located
from openmrc.sim.simulate import simulate
from openmrc.sim.sweep import Point, Sweep, read
from openmrc.sim.sweep_runs import count_done

EARLIEST_ESTIMATE = 0.05  # of a point, before the time left is estimated
LONG_S = 120  # from here on the time left is in minutes


class PointsDone:
    """Prints how many points are done, the share of each that runs, and the time left for all."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._before: int | None = None  # points that were done before this call

    def __call__(self, done: int, of: int, shares: list[float]) -> None:
        self._before = done if self._before is None else self._before
        typer.echo(f"{done} of {of} points done{_running(shares)}{self._left(done + sum(shares), of)}", err=True)

    def _left(self, done: float, of: int) -> str:
        """Estimate the time left from the points of this call; they may differ in length."""
        ran, took = done - (self._before or 0), time.monotonic() - self._begun
        if ran < EARLIEST_ESTIMATE or done >= of:
            return ""
        left = took * (of - done) / ran
        return f"; about {left:.0f} s left for all" if left < LONG_S else f"; about {left / 60:.0f} min left for all"


def _running(shares: list[float]) -> str:
    """Return what the points that run have done, each as a share of itself."""
    if not shares:
        return ""
    which = "the point that runs" if len(shares) == 1 else f"the {len(shares)} points that run"
    return f"; {', '.join(f'{share:.0%}' for share in shares)} of {which}"


def print_how_to_resume(how: str, points: list[Point], folder: Path, as_json: bool) -> None:
    """Print after an interrupt how many points are kept; the same command runs the rest.

    `how` is "interrupted" or "terminated".
    """
    done = count_done(points, folder)
    typer.echo(
        f"mrc: {how}: {done} of {len(points)} points are done and kept in {folder}; "
        f"the same command again runs only the other {len(points) - done}",
        err=True,
    )
    if as_json:
        print_json({"points": len(points), "done": done, "interrupted": True, "out": str(folder)})


def outcome(points: list[Point], results: list[dict[str, Any]], folder: Path, warnings: list[str]) -> dict[str, Any]:
    """Return the object that `--json` prints for a sweep: points, and how many were unfinished or refused, and why."""
    refused = report.refusals(results)
    summaries = [each["summary"] for each in results if "summary" in each]
    return {
        "points": len(points),
        "unfinished": sum(each["finished"] < each["flows"] for each in summaries),
        "refused": sum(refused.values()),
        "refused_because": refused,
        "out": str(folder),
        "warnings": warnings,
    }


LONGEST_NAME = 200  # bytes of a folder's name; file systems accept 255


@with_groups
def run(
    what: WithoutScenario,
    overrides: RunOverrides,
    output: RunOutput,
    scenario: Annotated[
        Path | None,
        typer.Argument(metavar="SCENARIO.yaml", help="A scenario file, or the name of a shipped one, such as demo."),
    ] = None,
) -> None:
    """Run one scenario; exit 1 if not every flow finished."""
    what.check(scenario)
    if scenario is not None:
        scenario = find(scenario)
        wanted = load(scenario)
        output = replace(output, out=output.out or Path("runs") / _folder_name(wanted.name, scenario))
    else:
        wanted = what.scenario()
    wanted = overrides.applied(wanted)
    if wanted.capture is not None and output.out is None:
        raise UsageError("--capture: give --out FOLDER, where the capture files go")
    output.refuse_unwritable()
    try:
        _run(wanted, overrides.threads, output)
    except FieldError as error:
        overrides.refuse(error)
        raise error if scenario is None else located(error, scenario) from None


def _folder_name(name: str, file: Path) -> str:
    """Return the folder under `runs` for a scenario's name; refuse a name that is not the name of a folder."""
    if not name.strip(". ") or not name.isprintable() or "/" in name or len(name.encode()) > LONGEST_NAME:
        shown = repr(name[:40]) + ("..." if len(name) > 40 else "")
        raise ConfigError(f"{file}: name: {shown} cannot be the name of the folder for the results; give --out FOLDER")
    return name


def _run(scenario: Scenario, threads: int, output: RunOutput) -> None:
    out, perfetto = output.out, output.perfetto
    progress = ProgressLine()
    try:
        done = simulate(scenario, threads, progress)
    finally:
        progress.close()
    result = summary(done)
    if out is not None:
        result["out"] = str(out)
        result["warnings"] = result["warnings"] + write(done, scenario, result, out)
    if perfetto is not None:
        result["perfetto"] = str(perfetto)
        result["warnings"] = result["warnings"] + timeline.write(done, perfetto)
    give(result, output.as_json, lambda: show(result, str(out) if out else None))
    if result["interrupted"]:
        raise typer.Exit(INTERRUPTED)
    if not done.is_complete:
        why = describe(result["unfinished"], result["flows"], scenario.until, result["simulated_us"])
        typer.echo(f"mrc: {why}", err=True)
        raise typer.Exit(1)


@dataclass(frozen=True)
class SweepRun:
    """How the points of a sweep are run, and where the results go."""

    out: Annotated[Path | None, typer.Option(help="Folder for the results [below runs].")] = None
    on: Annotated[Literal["processes", "ray"], typer.Option(help="Run in local processes or on a Ray cluster.")] = (
        "processes"
    )
    processes: Annotated[int | None, typer.Option(min=1, help="Concurrent runs [all cores].")] = None
    as_json: Json = False

    def results(self, points: list[Point], folder: Path, plan: Sweep | None = None) -> list[dict[str, Any]]:
        """Run the points that are not done yet, and return the results of all."""
        processes = self.processes or os.cpu_count() or 1
        with stoppable(lambda how: print_how_to_resume(how, points, folder, self.as_json)):
            return sweep_runs.run(points, folder, self.on, processes, PointsDone(), plan)


@with_groups
def sweep(
    file: Annotated[
        Path, typer.Argument(metavar="SWEEP.yaml", help="A sweep file: the scenario's path and the fields to vary.")
    ],
    how: SweepRun,
) -> None:
    """Run every combination of a sweep; finished points are kept and not run again."""
    plan, points = read(file)
    folder = how.out or Path("runs") / file.stem
    results = how.results(points, folder, plan)
    result = outcome(points, results, folder, report.write(plan, results, folder))
    give(result, how.as_json, lambda: show_sweep(*report.table(plan, results), result))
    if result["unfinished"] or result["refused"]:
        raise typer.Exit(1)


def compare(
    files: Annotated[
        list[Path], typer.Argument(metavar="A.yaml B.yaml ...", help="Two or more scenarios with training steps.")
    ],
    out: Annotated[Path | None, typer.Option(help="Folder for the results [runs/A-B-...].")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Concurrent runs [all cores].")] = None,
    as_json: Json = False,
) -> None:
    """Run scenarios with and without their faults, side by side: step times and GPU time lost."""
    points = points_of(files)
    folder = out or Path("runs") / "-".join(dict.fromkeys(file.stem for file in files))
    result = compared(points, SweepRun(processes=processes, as_json=as_json).results(points, folder))
    (folder / "comparison.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / "report.html").write_text(report.comparison_page(result), encoding="utf-8")
    give(result | {"out": str(folder)}, as_json, lambda: show_comparison(result, str(folder)))
    if result["unfinished"]:
        raise typer.Exit(1)


def schema(as_json: Json = False) -> None:
    """Print the JSON Schema of scenario files, indented or on one line."""
    give(schema_of(Scenario), as_json, schema_text(Scenario).rstrip())
