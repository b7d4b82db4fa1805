"""`mrc fabric learn`: a fabric file from the configurations and dumps of switches that exist."""

import re
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from openmrc.base.terminal import counted
from openmrc.fabric.model.build import build, json_of, text_of
from openmrc.fabric.model.topology import Topology
from openmrc.fabric.readback.learn import Learned, Unknown
from openmrc.fabric.readback.learn import learn as learn_folder
from openmrc.programs.fabrics.files import write_blocks
from openmrc.programs.outcome import Json, give

_MOST_SHOWN = 40  # kinds of lines that could not be used
_NUMBERS = re.compile(r"[0-9a-f]*:[0-9a-f:]*(/\d+)?|\d+", re.IGNORECASE)


def learn(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Files SWITCH.ENDING, or folders SWITCH with the files of each.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Fabric file to write, .yaml or .json [default: print].")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the fabric [default: the folder's].")] = None,
    as_json: Json = False,
) -> None:
    """Write a fabric file from configurations and dumps of its switches; exit 1 if it is irregular, so not provable."""
    found = learn_folder(folder, name)
    topology = build(found.fabric)
    is_json = out is not None and out.suffix == ".json"
    text = json_of(found.fabric) if is_json else text_of(found.fabric, f"learned from {folder.name}")
    if out is not None:
        write_blocks(out, [text])
    result = {**_counts(topology), "irregular": found.irregular, "doubts": found.doubts}
    unknown = [each._asdict() for each in found.unknown]
    fabric: dict[str, Any] = {"fabric": msgspec.to_builtins(found.fabric)} if out is None else {"out": str(out)}
    give({**fabric, **result, "not_used": unknown}, as_json, lambda: _tell(found, topology, text, out))
    if found.irregular:
        raise typer.Exit(1)


def _counts(topology: Topology) -> dict[str, int]:
    planes = len({int(plane) for plane in topology.node_plane[topology.nics :]})
    switches = topology.nodes - topology.nics
    return {"switches": switches, "nics": topology.nics, "planes": planes, "cables": topology.links // 2}


def _tell(found: Learned, topology: Topology, text: str, out: Path | None) -> None:
    """Print the file, or what is in it; what is to be said of it goes to stderr."""
    if out is None:
        typer.echo(text, nl=False)
    else:
        counts = ", ".join(f"{count} {what.replace('nics', 'NICs')}" for what, count in _counts(topology).items())
        typer.echo(f"{out}: {counts}")
    if found.irregular:
        typer.echo(f"mrc: irregular, kept as a list of nodes and links: {found.irregular}", err=True)
    for doubt in found.doubts:
        typer.echo(f"mrc: note: {doubt}", err=True)
    alike = _alike(found.unknown)
    for each, more in alike[:_MOST_SHOWN]:
        like = f" (and {counted(more, 'line', 'lines')} like it)" if more else ""
        typer.echo(f"{each.file}{f':{each.line}' if each.line else ''}: not used: {each.what}{like}", err=True)
    if len(alike) > _MOST_SHOWN:
        typer.echo(f"mrc: note: {len(alike) - _MOST_SHOWN} more kinds of lines are not used; --json has all", err=True)


def _alike(unknown: list[Unknown]) -> list[tuple[Unknown, int]]:
    """Return the first of the lines that differ in numbers and addresses only, and how many more there are."""
    kinds: dict[str, list[Unknown]] = {}
    for each in unknown:
        kinds.setdefault(_NUMBERS.sub("#", each.what), []).append(each)
    return [(own[0], len(own) - 1) for own in kinds.values()]
