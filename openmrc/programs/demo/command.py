"""`mrc demo`: move memory between two processes while planes go down, beside TCP; then simulate a fabric."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from openmrc.base.amounts import size_bytes
from openmrc.base.faults import Schedule
from openmrc.base.shipped import DEMO
from openmrc.base.terminal import plain_console
from openmrc.errors import MrcError
from openmrc.programs.demo.memory_transfer import PIECE, TIMEOUT, send
from openmrc.programs.demo.result import DemoResult, outages_of, story_faults
from openmrc.programs.demo.single_path import transfer
from openmrc.programs.demo.view import View, drawing, page, report
from openmrc.programs.endpoint.opening import faults_text
from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import Json, check_folder, give, stoppable
from openmrc.programs.training.demo_train import train as train_over_planes
from openmrc.programs.warm import Compilation
from openmrc.report.folder import write
from openmrc.sim.results.summary import summary
from openmrc.sim.scenario.description import load
from openmrc.sim.simulate import simulate


@dataclass(frozen=True)
class DemoTransfer:
    """What is moved, and what happens to the planes meanwhile."""

    seconds: Annotated[float, typer.Option("-D", "--seconds", min=1, max=3600, help="Seconds of each transfer.")] = 8.0
    size: Annotated[
        str | None, typer.Option("-s", "--size", help="Bytes for MRC to move, such as 64M, instead of --seconds.")
    ] = None
    planes: Annotated[int, typer.Option("--planes", min=1, max=16, help="Number of loopback planes.")] = 4
    impair: Annotated[
        str | None, typer.Option("--impair", metavar="WORDS", help='Fault schedule: "at: 2s, down: plane 1; ...".')
    ] = None
    schedule: Annotated[
        Path | None, typer.Option("--schedule", metavar="FILE", help="YAML file with the fault schedule.")
    ] = None
    tcp: Annotated[bool, typer.Option("--tcp/--no-tcp", help="First send by TCP over one of the planes.")] = True
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, max=3600, help="Seconds without progress until failure.")
    ] = TIMEOUT


@with_groups
def demo(
    asked: DemoTransfer,
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

    The last line is OK with the bytes, a SHA-256 and the longest stall, or FAILED with the reason and exit code 1.
    """
    faults = faults_text(asked.impair, asked.schedule)
    if train:
        with stoppable():
            train_over_planes(ranks, asked.planes, faults, out, as_json)
        return
    most = None if asked.size is None else -(-size_bytes(asked.size, "--size", PIECE) // PIECE)
    faults = faults or story_faults(asked.seconds, asked.planes)
    result = DemoResult(faults=faults, outages=outages_of(Schedule.parse(faults, "--impair"), asked.planes))
    check_folder(out, "--out")
    out.mkdir(parents=True, exist_ok=True)  # fails before the transfer, not after it
    console = plain_console()
    console.quiet = as_json
    with stoppable(), Compilation("live", "sim") as compilation:
        try:
            console.print(f"schedule: {faults}", soft_wrap=True)
            if asked.tcp and result.outages:
                _send_by_tcp(asked, result, console, compilation.is_running)
            compilation.wait_for("live")
            send(result, console, planes=asked.planes, seconds=asked.seconds, most=most, timeout=asked.timeout)
            if result.ok and simulation:
                _simulate(result, out / "simulation", console, compilation)
        except MrcError as error:
            result.ok, result.error = False, str(error)
        finally:
            _write_page(result, out)
    give(result, as_json, lambda: report(result))
    if not result.ok:
        raise typer.Exit(1)


def _send_by_tcp(asked: DemoTransfer, result: DemoResult, console: Console, beside_compilation: bool) -> None:
    """Send by TCP over the plane that goes down first, with its outages."""
    plane = result.outages[0].plane
    meanwhile = "; the engine is compiled meanwhile" if beside_compilation else ""
    title = f"a single path: TCP over plane {plane}, for {asked.seconds:g} s{meanwhile}"
    try:
        with closing(View(console, title, [plane], result.outages)) as view:
            result.single_path = transfer(plane, result.outages, asked.seconds, view.show)
    except OSError:  # EPERM, or a sandbox without filters
        console.print("no TCP to compare with: this kernel lets only root take its plane down", soft_wrap=True)


def _simulate(result: DemoResult, out: Path, console: Console, compilation: Compilation) -> None:
    """Run the shipped scenario: the same engine on 64 NICs, with a flapping cable and a lost plane."""
    scenario = load(DEMO)
    compilation.wait_for("sim")
    console.print(f"simulating: {scenario.description}", soft_wrap=True)
    done = simulate(scenario)
    figures = summary(done)
    for note in write(done, scenario, figures, out):
        typer.echo(f"note: {note}", err=True)
    result.simulation = {**figures, "report": str(out / "report.html")}
    if figures["interrupted"]:
        raise KeyboardInterrupt
    if not done.is_complete:
        finished = f"{figures['finished']} of {figures['flows']}"
        raise MrcError(f"simulation: {finished} flows finished; see {out / 'report.html'}")


def _write_page(result: DemoResult, out: Path) -> None:
    if result.samples:
        result.page = str(out / "index.html")
        (out / "timeline.svg").write_text(drawing(result), "utf-8")
        (out / "index.html").write_text(page(result), "utf-8")
