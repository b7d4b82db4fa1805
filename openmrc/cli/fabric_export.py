"""`mrc fabric export`: write the configurations that bring a fabric up."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openmrc.cli.fabric_files import FabricFile, Json, answer, load_plan, object_text

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    from openmrc.errors import UsageError
    from openmrc.fabric.export.targets import export as write
    from openmrc.fabric.export.targets import files_of
    from openmrc.fabric.export.view import Options

    plan = load_plan(file)
    switches = [plan.topology.node_named(name) for name in switch] if switch else None
    if out is None and to != "containerlab" and (switches is None or len(switches) > 1):
        raise UsageError("give --out FOLDER or --out FILE.tar, or --switch NAME once to print one switch")
    files = write(plan, to, Options(breakout, lanes, image), switches)
    if out is None:
        texts = dict(files)
        headed = (f"# file {name}\n{text}" if len(texts) > 1 else text for name, text in texts.items())
        typer.echo(object_text(texts) if as_json else "".join(headed), nl=as_json)
        return
    start = time.perf_counter()
    total = files_of(to) * len(switches or range(plan.topology.nics, plan.topology.nodes))
    sizes = _written(files, out, None if to == "containerlab" else total)
    took = time.perf_counter() - start
    answer({"to": to, "out": str(out), "files": len(sizes), "bytes": sum(sizes), "wall_s": round(took, 3)}, as_json)


def _written(files: Iterator[tuple[str, str]], out: Path, total: int | None) -> list[int]:
    """Write exported files; a second and more of it shows a bar on a terminal."""
    from rich.console import Console
    from rich.progress import track

    from openmrc.fabric.export.archive import write

    console = Console(stderr=True)
    shown = track(write(files, out), "writing", total, console=console, transient=True, disable=not console.is_terminal)
    return list(shown)
