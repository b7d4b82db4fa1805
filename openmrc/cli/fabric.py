"""`mrc fabric`: from a few numbers to switch tables that are proven before they are pushed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from openmrc.fabric.usid import UsidPlan

app = typer.Typer(no_args_is_help=True, help="Build, prove, export and read back a fabric's tables.")

FabricFile = Annotated[Path, typer.Argument(metavar="FABRIC", help="fabric.yaml, or an htsim .topo file.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Mode = Literal["explicit", "generated"]
TableFile = Annotated[
    Path | None,
    typer.Option("--tables", help="Tables instead of the planned ones: .npz, SWITCH.txt or a folder."),
]


@app.command()
def build(
    file: FabricFile,
    out: Annotated[Path, typer.Option("--out", help="Folder to write to.")] = Path("fabric-out"),
    text: Annotated[bool, typer.Option(help="Also text files, templates and, up to 64 NICs, profiles.")] = True,
    as_json: Json = False,
) -> None:
    """Write names, addresses, tables, path templates and EV profiles."""
    from openmrc.fabric.build import write

    start = time.perf_counter()
    said = write(_plan(file), out, text)
    _answer({**said, "wall_s": time.perf_counter() - start}, as_json)


@app.command()
def show(
    file: FabricFile,
    node: Annotated[str | None, typer.Argument(help="Show one NIC or switch.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a fabric consists of, or one node with its links and table."""
    from openmrc.fabric.show import fabric_facts, node_facts

    _answer(node_facts(_plan(file), node) if node else fabric_facts(_topology(file)), as_json)


@app.command()
def path(
    file: FabricFile,
    source: Annotated[str, typer.Argument(help="NIC that sends.")],
    destination: Annotated[str, typer.Argument(help="NIC that receives.")],
    ev: Annotated[int, typer.Option("--ev", min=0, help="EV number; the plane is in its lowest bits.")] = 0,
    tables: TableFile = None,
    as_json: Json = False,
) -> None:
    """Follow one EV from NIC to NIC through the tables, hop by hop."""
    from openmrc.fabric.show import path_facts

    plan = _plan(file)
    _answer(path_facts(plan, source, destination, ev, _tables(plan, tables)), as_json)


@app.command()
def verify(
    file: FabricFile,
    tables: TableFile = None,
    max_entries: Annotated[int | None, typer.Option(min=1, help="Most entries a switch may have.")] = None,
    exhaustive: Annotated[bool, typer.Option("--exhaustive", help="Also try every path (slow).")] = False,
    as_json: Json = False,
) -> None:
    """Prove that every EV of every pair of NICs is delivered on the path its name says."""
    import msgspec

    from openmrc.fabric.verify import verify as prove

    start = time.perf_counter()
    plan = _plan(file)
    given = _tables(plan, tables)
    verdict = prove(plan, given, max_entries)
    said = {"proven": verdict.proven, **msgspec.to_builtins(verdict), "wall_s": time.perf_counter() - start}
    if exhaustive:
        from openmrc.fabric.exhaustive import check_all
        from openmrc.fabric.tables import build_tables

        said["exhaustive"] = msgspec.to_builtins(check_all(plan, given or build_tables(plan)))
        said["exhaustive_wall_s"] = time.perf_counter() - start - said["wall_s"]
    _answer(said, as_json)
    if not verdict.proven:
        raise typer.Exit(1)


@app.command()
def profile(
    file: FabricFile,
    source: Annotated[str, typer.Argument(help="NIC that sends.")],
    destination: Annotated[str, typer.Argument(help="NIC that receives.")],
    mode: Annotated[
        Literal["explicit", "generated"], typer.Option(help="List EVs, or let the endpoint make them.")
    ] = "explicit",
    count: Annotated[int, typer.Option(min=1, help="EVs of an explicit profile.")] = 256,
    as_json: Json = False,
) -> None:
    """Print the EV format and profile of a pair, as the endpoint reads them."""
    from openmrc.fabric.profiles import profile as make

    plan = _plan(file)
    name = plan.topology.node_named
    _answer(make(plan, name(source), name(destination), mode, count), as_json)


@app.command()
def export(
    file: FabricFile,
    to: Annotated[str, typer.Option("--to", help="sonic, frr, cumulus, linux, eos (experimental) or containerlab.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder, .tar or .tar.gz to write to; else print (one switch).")
    ] = None,
    switch: Annotated[list[str] | None, typer.Option("--switch", help="Only this switch; may be repeated.")] = None,
    breakout: Annotated[int, typer.Option(min=1, help="Ports a cage, for port names.")] = 1,
    lanes: Annotated[int, typer.Option(min=1, help="Lanes a cage, for port names.")] = 8,
    image: Annotated[str, typer.Option(help="old: a SONiC that knows no uA.")] = "current",
    as_json: Json = False,
) -> None:
    """Write the switches' configurations; how far it is goes to stderr."""
    from openmrc.errors import ConfigError
    from openmrc.fabric.export.targets import export as write
    from openmrc.fabric.export.targets import files_of
    from openmrc.fabric.export.view import Options

    plan = _plan(file)
    switches = [plan.topology.node_named(name) for name in switch] if switch else None
    if out is None and to != "containerlab" and (switches is None or len(switches) > 1):
        raise ConfigError("give --out FOLDER or --out FILE.tar, or --switch NAME once to print one switch")
    files = write(plan, to, Options(breakout, lanes, image), switches)
    if out is None:
        texts = dict(files)
        headed = (f"# file {name}\n{text}" if len(texts) > 1 else text for name, text in texts.items())
        typer.echo(_json(texts) if as_json else "".join(headed), nl=as_json)
        return
    start = time.perf_counter()
    total = files_of(to) * len(switches or range(plan.topology.nics, plan.topology.nodes))
    sizes = _written(files, out, None if to == "containerlab" else total)
    took = time.perf_counter() - start
    _answer({"to": to, "out": str(out), "files": len(sizes), "bytes": sum(sizes), "wall_s": round(took, 3)}, as_json)


def _written(files: Iterator[tuple[str, str]], out: Path, total: int | None) -> list[int]:
    """Write exported files; a second and more of it shows a bar on a terminal."""
    from rich.console import Console
    from rich.progress import track

    from openmrc.fabric.export.archive import write

    console = Console(stderr=True)
    shown = track(write(files, out), "writing", total, console=console, transient=True, disable=not console.is_terminal)
    return list(shown)


@app.command()
def diff(
    file: FabricFile,
    switch: Annotated[str, typer.Argument(help="Switch the dump is of.")],
    dump: Annotated[Path | None, typer.Argument(help="`ip -6 -j route`, CONFIG_DB JSON, FRR text or JSON.")] = None,
    of: Annotated[str, typer.Option("--of", help="linux, sonic or frr: what wrote the dump.")] = "linux",
    namespace: Annotated[str | None, typer.Option("--netns", help="Ask this network namespace instead.")] = None,
    breakout: Annotated[int, typer.Option(min=1, help="Ports a cage, for port names.")] = 1,
    lanes: Annotated[int, typer.Option(min=1, help="Lanes a cage, for port names.")] = 8,
    as_json: Json = False,
) -> None:
    """Print what is missing, extra or wrong on a switch; exit 1 when anything is."""
    import msgspec

    from openmrc.errors import ConfigError
    from openmrc.fabric.diff import compare
    from openmrc.fabric.export.view import Options

    if (dump is None) == (namespace is None):
        raise ConfigError("give a dump file or --netns NAME, one of the two")
    plan = _plan(file)
    text = _dump_of(namespace) if namespace else _read(dump)
    source = f"namespace {namespace}" if namespace else str(dump)
    found = compare(plan, plan.topology.node_named(switch), of, text, source, Options(breakout, lanes))
    _answer({"clean": found.clean, **msgspec.to_builtins(found)}, as_json)
    if not found.clean:
        raise typer.Exit(1)


def _read(path: Path | None) -> str:
    from openmrc.documents import MOST_DUMP_BYTES, read_text

    assert path is not None
    return read_text(path, MOST_DUMP_BYTES)


def _dump_of(namespace: str) -> str:
    """Ask iproute2 for the routes of a network namespace."""
    import subprocess

    from openmrc.errors import ConfigError

    command = ["ip", "-n", namespace, "-6", "-j", "route", "show", "table", "main"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{' '.join(command)}: {error}") from None
    if done.returncode:
        raise ConfigError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout or "[]"


@app.command()
def schema(as_json: Json = False) -> None:
    """Print the JSON Schema of fabric.yaml, laid out to be read, or on one line."""
    from openmrc.fabric.description import json_schema, schema_text

    typer.echo(_json(json_schema()) if as_json else schema_text().rstrip())


def _topology(file: Path) -> Any:
    from openmrc.fabric.description import load
    from openmrc.fabric.topology import build as lay

    return lay(load(file))


def _plan(file: Path) -> UsidPlan:
    from openmrc.fabric.description import load_placed
    from openmrc.fabric.topology import build as lay
    from openmrc.fabric.usid import usid_plan

    fabric, where = load_placed(file)
    return usid_plan(lay(fabric), where)


def _tables(plan: UsidPlan, path: Path | None) -> Any:
    from openmrc.fabric.table_files import load_tables

    return load_tables(plan.topology, path) if path else None


def _answer(what: dict[str, Any], as_json: bool) -> None:
    """Print as one JSON object, or as YAML, which reads well and is exact."""
    if as_json:
        typer.echo(_json(what))
        return
    import yaml

    typer.echo(yaml.safe_dump(what, sort_keys=False, width=120).rstrip())


def _json(what: dict[str, Any]) -> str:
    import msgspec

    return msgspec.json.encode(what).decode()
