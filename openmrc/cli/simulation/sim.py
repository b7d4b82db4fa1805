"""`mrc sim`: run scenarios on a virtual fabric."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from openmrc.cli.outcome import INTERRUPTED, print_json, stoppable
from openmrc.cli.simulation.sim_ask import ask
from openmrc.cli.simulation.sweep_output import PointsDone, outcome, print_how_to_resume

if TYPE_CHECKING:
    from openmrc.sim.scenario.scenario import Matrix, Scenario, Transport
    from openmrc.sim.simulate import Status
    from openmrc.sim.sweep import Point, Sweep
    from openmrc.sim.workloads.trace import Trace

app = typer.Typer(no_args_is_help=True, help="Simulate fabrics packet by packet, with failures.")
app.command()(ask)

TransportName = Literal["mrc", "uet", "roce"]
LoadBalancing = Literal["oblivious", "bitmap", "reps", "mixed"]
StartUnit = Literal["us", "ps"]
Threads = Annotated[int, typer.Option(min=1, max=256, help="Threads; the result is the same for any number.")]
LONGEST_NAME = 200  # bytes of a folder's name; file systems accept 255
Json = Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")]


@app.command()
def run(
    scenario: Annotated[
        Path | None,
        typer.Argument(metavar="[SCENARIO.yaml]", help="A scenario file, or the name of a shipped one, such as demo."),
    ] = None,
    tm: Annotated[Path | None, typer.Option(help="Run an htsim connection matrix (.cm) instead of a scenario.")] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="Run a trace instead of a scenario: Chakra (NAME or NAME.0.et), GOAL, or SimAI text."),
    ] = None,
    topo: Annotated[
        Path | None, typer.Option(help="The fabric for --tm or --trace: fabric.yaml, or htsim's .topo.")
    ] = None,
    transport: Annotated[TransportName, typer.Option(help="Transport, with --topo.")] = "mrc",
    load_balancing: Annotated[LoadBalancing | None, typer.Option(help="Load balancing, with --transport uet.")] = None,
    qps: Annotated[int, typer.Option(min=1, max=16, help="Queue pairs per flow, with --topo.")] = 1,
    mtu: Annotated[int, typer.Option(min=256, max=9216, help="Payload bytes per packet, with --topo.")] = 4096,
    cm_start_unit: Annotated[StartUnit, typer.Option(help="Unit of `start` in the matrix.")] = "us",
    ranks_per_nic: Annotated[int, typer.Option(min=1, help="Ranks of a --trace that share a NIC.")] = 1,
    compute_scale: Annotated[
        float, typer.Option(min=0, max=1000, help="Factor for the computation times of a --trace.")
    ] = 1.0,
    layers: Annotated[int, typer.Option(min=0, help="Run only the first N layers of a SimAI --trace; 0: all.")] = 0,
    until: Annotated[str, typer.Option(help="Simulated time limit of a --topo run.")] = "10s",
    seed: Annotated[
        int | None, typer.Option(min=0, max=(1 << 32) - 1, help="Random seed; overrides the scenario's.")
    ] = None,
    threads: Threads = 1,
    capture: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Capture this NIC's packets to HOST.pcapng; a number or a name such as h3."),
    ] = None,
    check_tables: Annotated[
        bool,
        typer.Option("--check-tables", help="Before the run, compare every EV's path with the fabric's uSID tables."),
    ] = False,
    perfetto: Annotated[
        Path | None, typer.Option(help="Write a timeline for ui.perfetto.dev (trace event JSON) to this file.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results [runs/NAME; none with --topo].")] = None,
    as_json: Json = False,
) -> None:
    """Run one scenario; exit 1 if not every flow finished."""
    from openmrc.errors import FieldError, UsageError
    from openmrc.shipped import find
    from openmrc.sim.scenario.scenario import load, located

    if sum(each is not None for each in (scenario, tm, trace)) != 1 or (scenario is None) == (topo is None):
        raise UsageError("mrc sim run: expected SCENARIO.yaml, or --tm FILE.cm or --trace FILE with --topo FABRIC")
    if scenario is not None:
        scenario = find(scenario)
        wanted = load(scenario)
        out = out or Path("runs") / _folder_name(wanted.name, scenario)
    else:
        carried = _transport(transport, load_balancing, qps, mtu)
        work = _matrix(tm, cm_start_unit) if tm else _trace(cast("Path", trace), ranks_per_nic, compute_scale, layers)
        wanted = _scenario_of_file(work, cast("Path", topo), carried, until)
    wanted = _with_overrides(wanted, seed, capture, check_tables)
    if wanted.capture is not None and out is None:
        raise UsageError("--capture: give --out FOLDER, where the capture files go")
    _refuse_unwritable(out, perfetto)
    try:
        _run(wanted, threads, out, perfetto, as_json)
    except FieldError as error:
        raise error if scenario is None else located(error, scenario) from None


def _folder_name(name: str, file: Path) -> str:
    """Return the folder under `runs` for a scenario's name; refuse a name that is not the name of a folder."""
    from openmrc.errors import ConfigError

    if not name.strip(". ") or not name.isprintable() or "/" in name or len(name.encode()) > LONGEST_NAME:
        shown = repr(name[:40]) + ("..." if len(name) > 40 else "")
        raise ConfigError(f"{file}: name: {shown} cannot be the name of the folder for the results; give --out FOLDER")
    return name


def _refuse_unwritable(out: Path | None, perfetto: Path | None) -> None:
    """Refuse results that could not be written before the run, not after it."""
    from openmrc.errors import UsageError

    if out is not None and out.exists() and not out.is_dir():
        raise UsageError(f"--out: {out} is a file; expected a folder")
    if perfetto is not None and (perfetto.is_dir() or not perfetto.parent.is_dir()):
        wrong = f"{perfetto} is a folder" if perfetto.is_dir() else f"folder {perfetto.parent} does not exist"
        raise UsageError(f"--perfetto: {wrong}; expected a file such as timeline.json")


def _with_overrides(scenario: Scenario, seed: int | None, capture: list[str] | None, check_tables: bool) -> Scenario:
    """Apply the command line's overrides to a scenario."""
    import msgspec

    from openmrc.errors import UsageError
    from openmrc.sim.scenario.scenario import Capture

    changes: dict[str, Any] = {"check_tables": True} if check_tables else {}
    if seed is not None:
        changes["seed"] = seed
    if capture:
        hosts = tuple(host for word in capture for host in word.split(",") if host)
        if not hosts:
            raise UsageError(f"--capture: {','.join(capture)!r} names no NIC; expected numbers or names such as h3")
        rest = msgspec.structs.asdict(scenario.capture) if scenario.capture else {}
        changes["capture"] = Capture(**{**rest, "hosts": hosts})
    return msgspec.structs.replace(scenario, **changes)


def _transport(name: TransportName, load_balancing: LoadBalancing | None, qps: int, mtu: int) -> Transport:
    from openmrc.sim.scenario.scenario import Transport

    return Transport(name=name, load_balancing=load_balancing, qps=qps, mtu=mtu)


def _matrix(file: Path, unit: StartUnit) -> Matrix:
    from openmrc.sim.scenario.scenario import Matrix

    return Matrix(file=str(file), start_unit=unit)


def _trace(file: Path, ranks_per_nic: int, compute_scale: float, layers: int) -> Trace:
    from openmrc.sim.workloads.trace import Trace

    return Trace(file=str(file), ranks_per_nic=ranks_per_nic, compute_scale=compute_scale, layers=layers)


def _scenario_of_file(work: Matrix | Trace, topo: Path, transport: Transport, until: str) -> Scenario:
    """Build the scenario of a --topo run from its matrix or trace."""
    from openmrc.fabric.model.fabric_file import load
    from openmrc.sim.scenario.scenario import Scenario
    from openmrc.sim.workloads.amounts import ps_of

    ps_of(until)
    name = Path(work.file).stem
    return Scenario(name=name, fabric=load(topo), transport=transport, workloads=(work,), until=until)


def _run(scenario: Scenario, threads: int, out: Path | None, perfetto: Path | None, as_json: bool) -> None:
    from openmrc.report import perfetto as timeline
    from openmrc.report.folder import ProgressStream, write
    from openmrc.report.terminal import ProgressLine, show
    from openmrc.sim.results.results import summary
    from openmrc.sim.results.unfinished import describe
    from openmrc.sim.simulate import simulate

    listeners: list[ProgressLine | ProgressStream] = [
        ProgressLine(),
        *([ProgressStream(out)] if out is not None else []),
    ]

    def publish(status: Status) -> None:
        for listener in listeners:
            listener(status)

    try:
        done = simulate(scenario, threads, publish, watch_links=perfetto is not None)
    finally:
        for listener in listeners:
            listener.close()
    result = summary(done)
    if out is not None:
        result["out"] = str(out)
        result["warnings"] = result["warnings"] + write(done, scenario, result, out)
    if perfetto is not None:
        result["perfetto"] = str(perfetto)
        result["warnings"] = result["warnings"] + timeline.write(done, perfetto)
    _print(result, as_json, lambda: show(result, str(out) if out else None))
    if result["interrupted"]:
        raise typer.Exit(INTERRUPTED)
    if not done.is_complete:
        why = describe(result["unfinished"], result["flows"], scenario.until, result["simulated_us"])
        typer.echo(f"mrc: {why}", err=True)
        raise typer.Exit(1)


@app.command()
def sweep(
    file: Annotated[
        Path, typer.Argument(metavar="SWEEP.yaml", help="A sweep file: the scenario's path and the fields to vary.")
    ],
    out: Annotated[Path | None, typer.Option(help="Folder for the results [runs/NAME of the file].")] = None,
    on: Annotated[
        Literal["processes", "ray"], typer.Option(help="Run in local processes or on a Ray cluster.")
    ] = "processes",
    processes: Annotated[int | None, typer.Option(min=1, help="Concurrent runs [all cores].")] = None,
    as_json: Json = False,
) -> None:
    """Run every combination of a sweep; finished points are kept and not run again."""
    import os

    from openmrc.sim.sweep import read

    plan, points = read(file)
    _sweep(plan, points, out or Path("runs") / file.stem, on, processes or os.cpu_count() or 1, as_json)


def _sweep(plan: Sweep, points: list[Point], folder: Path, on: str, processes: int, as_json: bool) -> None:
    """Run the points and print the outcome; exit 1 if any was refused or has unfinished flows."""
    from openmrc.report import sweep as report
    from openmrc.report.terminal import show_sweep

    with stoppable(lambda how: print_how_to_resume(how, points, folder, as_json)):
        results = report.run(points, folder, on, processes, PointsDone(), plan)
    notes = report.write(plan, results, folder)
    result = outcome(points, results, folder, notes)
    _print(result, as_json, lambda: show_sweep(*report.table(plan, results), result))
    if result["unfinished"] or result["refused"]:
        raise typer.Exit(1)


@app.command()
def compare(
    files: Annotated[
        list[Path], typer.Argument(metavar="A.yaml B.yaml ...", help="Two or more scenarios with training steps.")
    ],
    out: Annotated[Path | None, typer.Option(help="Folder for the results [runs/A-B-...].")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Concurrent runs [all cores].")] = None,
    as_json: Json = False,
) -> None:
    """Run scenarios with and without their faults, side by side: step times and GPU time lost."""
    import json
    import os

    from openmrc.report import sweep as report
    from openmrc.report.comparison import comparison_page
    from openmrc.report.terminal import show_comparison
    from openmrc.sim.comparison import compared, points_of

    points = points_of(files)
    folder = out or Path("runs") / "-".join(dict.fromkeys(file.stem for file in files))
    with stoppable(lambda how: print_how_to_resume(how, points, folder, as_json)):
        results = report.run(points, folder, "processes", processes or os.cpu_count() or 1, PointsDone())
    result = compared(points, results)
    (folder / "comparison.json").write_text(json.dumps(result, indent=1) + "\n")
    (folder / "report.html").write_text(comparison_page(result), encoding="utf-8")
    _print(result | {"out": str(folder)}, as_json, lambda: show_comparison(result, str(folder)))
    if result["unfinished"]:
        raise typer.Exit(1)


@app.command()
def schema(as_json: Annotated[bool, typer.Option("--json", help="Print it on one line.")] = False) -> None:
    """Print the JSON Schema of scenario files, indented or on one line."""
    from openmrc.sim.scenario.scenario import schema_text

    if as_json:
        import json

        print_json(json.loads(schema_text()))
    else:
        typer.echo(schema_text(), nl=False)


def _print(result: dict[str, Any], as_json: bool, show: Callable[[], None]) -> None:
    if as_json:
        print_json(result)
    else:
        show()
