"""`mrc demo`: move memory between two processes while planes go down, beside TCP; then simulate a fabric."""

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from openmrc.base.shipped import DEMO
from openmrc.base.terminal import plain_console, print_table
from openmrc.programs.demo.result import DemoResult, Simulated
from openmrc.programs.demo.story import DemoTransfer, Story
from openmrc.programs.demo.view import View, comparison, drawing, page, timeline
from openmrc.programs.demo.view import summary as plane_table
from openmrc.programs.endpoint.opening import faults_text
from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import Json, check_folder, give, stoppable
from openmrc.programs.training.demo_train import train as train_over_planes
from openmrc.programs.warm import Compilation
from openmrc.report.folder import write
from openmrc.sim.results.summary import summary
from openmrc.sim.scenario.description import load
from openmrc.sim.simulate import simulate


@with_groups
def demo(
    transfer: DemoTransfer,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder for the page and the chart.")] = Path(
        "demo-out"
    ),
    simulation: Annotated[
        bool, typer.Option("--simulation/--no-simulation", help="Then run the demo scenario of mrc sim.")
    ] = True,
    train: Annotated[
        bool, typer.Option("--train", help="Train a network instead, over planes that fail; needs torch, scikit-learn.")
    ] = False,
    ranks: Annotated[int, typer.Option("--ranks", min=2, max=8, help="Processes that train (--train).")] = 2,
    as_json: Json = False,
) -> None:
    """Move memory between two processes over several planes, take planes down on the way, and show the rates.

    First the kernel's TCP does so over one plane, with the same outages of that plane.

    The last line is OK with the bytes, their SHA-256 and the longest stall, or FAILED with the reason and exit code 1.
    """
    if train:
        faults = faults_text(transfer.impair, transfer.schedule)
        with stoppable():
            train_over_planes(ranks, transfer.planes, faults, out, as_json)
        return
    story, view = Story(transfer), View(plain_console(stderr=as_json), quiet=as_json)
    result = story.result
    check_folder(out, "--out")
    out.mkdir(parents=True, exist_ok=True)  # fails before the transfer, not after it
    with stoppable(), Compilation("live", "sim") as compilation:
        with closing(view):
            story.run(view, compilation)
        if result.samples:
            _write_page(result, out)
        if result.ok and simulation:
            _simulate(result, out / "simulation", as_json, compilation)
            _write_page(result, out)  # with a link to the simulation's report
    give(result, as_json, lambda: _report(result))
    if not result.ok:
        raise typer.Exit(1)


def _write_page(result: DemoResult, out: Path) -> None:
    result.page = str(out / "index.html")
    (out / "timeline.svg").write_text(drawing(result), "utf-8")
    (out / "index.html").write_text(page(result), "utf-8")


def _simulate(result: DemoResult, out: Path, as_json: bool, compilation: Compilation) -> None:
    """Run the shipped scenario: the same engine on 64 NICs, with a flapping cable and a lost plane.

    What that needs is imported while the last of it is still being compiled: from sources, 3 s.
    """
    scenario = load(DEMO)
    compilation.wait_for("sim")
    typer.echo(f"simulating: {scenario.description}", err=as_json)
    done = simulate(scenario)
    figures = summary(done)
    for note in write(done, scenario, figures, out):
        typer.echo(f"note: {note}", err=True)
    result.simulation = Simulated(
        nics=figures["hosts"],
        flows=figures["flows"],
        finished=figures["finished"],
        packets=figures["packets"]["new"],
        step_p50_us=figures["step_us"]["p50"],
        step_max_us=figures["step_us"]["max"],
        wall_s=figures["wall_s"],
        report=str(out / "report.html"),
    )
    if figures["interrupted"]:
        raise KeyboardInterrupt
    if not done.is_complete:
        result.ok = False
        result.error = (
            f"simulation: {figures['finished']} of {figures['flows']} flows finished; see {result.simulation.report}"
        )


def _report(result: DemoResult) -> None:
    if result.samples:
        print_table(plane_table(result))
        typer.echo("\n".join(timeline(result)))
        if result.single_path is not None:
            typer.echo(comparison(result, result.single_path))
        typer.echo(f"page: {result.page}")
    if (row := result.simulation) is not None:
        typer.echo(
            f"simulated {row.nics} NICs, {row.packets:,} packets in {row.wall_s:.1f} s: {row.finished:,} of "
            f"{row.flows:,} flows finished, steps of {row.step_p50_us:.1f} us (median) to {row.step_max_us:.1f} us"
        )
        typer.echo(f"report: {row.report}")
    if not result.ok:
        typer.echo(f"FAILED: {result.error}")
        return
    down = ", ".join(map(str, sorted({each.plane for each in result.outages if each.up is None})))
    at_end = f"down at the end, as scheduled: plane {down}" if down else f"all {len(result.planes)} planes in use"
    stall = f"{result.longest_stall_ms:.1f}"
    typer.echo(f"OK {result.bytes} bytes, sha256 {result.sha256}, longest stall {stall} ms, {at_end}")
