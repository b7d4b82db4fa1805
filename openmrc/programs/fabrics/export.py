"""`mrc fabric export`: write device configurations."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track

from openmrc.errors import UsageError
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.targets import check, every_node, warnings, write_all
from openmrc.fabric.export.targets import export as write
from openmrc.programs.fabrics.files import FabricFile, SwitchesAndHosts, answer, fork_each, load_plan, seconds_since
from openmrc.programs.option_groups import with_groups
from openmrc.programs.outcome import Json, give

_PRINTED_WHOLE = "containerlab"  # small, and one file refers to the others


@with_groups
def export(
    file: FabricFile,
    to: Annotated[str, typer.Option("--to", help="sonic, frr, cumulus, linux, eos, hosts or containerlab.")],
    asked: SwitchesAndHosts,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder to write; without it, print one switch or host."),
    ] = None,
    switch: Annotated[list[str] | None, typer.Option("--switch", help="Only this switch; may be repeated.")] = None,
    host: Annotated[list[str] | None, typer.Option("--host", help="Only this host; may be repeated.")] = None,
    as_json: Json = False,
) -> None:
    """Write complete device configurations; progress and warnings go to stderr."""
    plan = load_plan(file)
    options = asked.of(plan.topology.fabric.plant)
    check(to, options)
    nodes = _hosts(plan, host) if to == "hosts" else [plan.topology.node_named(name) for name in switch or ()] or None
    if out is None and to != _PRINTED_WHOLE and (nodes is None or len(nodes) > 1):
        raise UsageError("give --out FOLDER, or --switch (--host) NAME once to print one")
    notes = warnings(plan, to, options)
    if out is None:
        texts = dict(write(plan, to, options, nodes))
        headed = (f"# file {name}\n{text}" if len(texts) > 1 else text for name, text in texts.items())
        give(texts, as_json, lambda: typer.echo("".join(headed), nl=False))
        _warn(notes)
        return
    start = time.perf_counter()
    sizes = _written(plan, to, options, out, nodes)
    took = seconds_since(start)
    if not as_json:
        _warn(notes)
    result = {"to": to, "out": str(out), "files": len(sizes), "bytes": sum(sizes), "wall_s": took}
    answer({**result, "warnings": notes} if as_json else result, as_json)


def _warn(notes: list[str]) -> None:
    for line in notes:
        typer.echo(f"mrc: note: {line}", err=True)


def _hosts(plan: UsidPlan, names: list[str] | None) -> list[int] | None:
    """Return the numbers of hosts by name, such as h3, or by the name of one of their NICs, such as h3-n1."""
    if not names:
        return None
    return [
        plan.topology.node_named(name if plan.topology.nics_per_host == 1 or "-" in name else f"{name}-n0")
        // plan.topology.nics_per_host
        for name in names
    ]


def _written(plan: UsidPlan, to: str, options: ExportOptions, out: Path, nodes: list[int] | None) -> list[int]:
    """Write exported files, with a progress bar on a terminal."""
    total = None if to == _PRINTED_WHOLE else len(nodes or every_node(plan, to))
    return [
        size
        for sizes in tracked(write_all(plan, to, options, out, nodes, fork_each), "writing", total)
        for size in sizes
    ]


def tracked(items: Iterator[Any], what: str, total: int | None) -> Iterator[Any]:
    """Iterate over items, with a progress bar on a terminal."""
    console = Console(stderr=True)
    return iter(track(items, what, total, console=console, transient=True, disable=not console.is_terminal))
