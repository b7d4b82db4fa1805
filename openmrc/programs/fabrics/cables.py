"""`mrc fabric cables` and `bom`: what to plug where, and what to buy."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from openmrc.errors import ConfigError
from openmrc.fabric.cables.listing import Cables, csv_blocks, list_cables
from openmrc.fabric.cables.materials import bill, csv_text
from openmrc.fabric.cables.ports import check_scheme
from openmrc.fabric.model.parts import load_parts
from openmrc.programs.fabrics.files import FabricFile, answer, load_topology, seconds_since
from openmrc.programs.outcome import Json

Names = Annotated[str, typer.Option("--names", help="Interface names of switches: linux, sonic, cumulus or eos.")]
PartsFile = Annotated[Path | None, typer.Option("--parts", help="Parts file instead of the built-in one.")]


def cables(
    file: FabricFile,
    out: Annotated[Path | None, typer.Option("--out", help="CSV file to write [default: print].")] = None,
    names: Names = "sonic",
    as_json: Json = False,
) -> None:
    """List every cable: both ends with rack, cage and lane, label, length class and transceivers."""
    start = time.perf_counter()
    scheme = check_scheme(names)
    found = list_cables(load_topology(file))
    blocks = csv_blocks(found, scheme)
    if out is None and not as_json:
        _print_blocks(blocks)
        return
    size = write_blocks(out, blocks) if out else 0
    answer({"cables": len(found), **_lengths(found), **_written(out, size), "wall_s": seconds_since(start)}, as_json)


def bom(
    file: FabricFile,
    out: Annotated[Path | None, typer.Option("--out", help="CSV file to write [default: print].")] = None,
    parts: PartsFile = None,
    as_json: Json = False,
) -> None:
    """Count the parts: machines, NICs, switches, transceivers, and cables by medium and length."""
    items = bill(list_cables(load_topology(file)), load_parts(parts))
    if out:
        write_blocks(out, [csv_text(items)])
    if as_json:
        answer({"items": msgspec.to_builtins(items), **_written(out, 0)}, True)
    elif out is None:
        typer.echo(csv_text(items), nl=False)


def _lengths(found: Cables) -> dict[str, Any]:
    """Count cables by length class, in metres."""
    counts = Counter(found.length_mm.tolist())
    return {"by_length_m": {f"{length / 1000:g}": counts[length] for length in sorted(counts)}}


def write_blocks(path: Path, blocks: Iterable[str]) -> int:
    """Write blocks of text; return the number of characters."""
    try:
        with path.open("w", encoding="utf-8") as stream:
            return sum(stream.write(block) for block in blocks)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def _print_blocks(blocks: Iterator[str]) -> None:
    for block in blocks:
        typer.echo(block, nl=False)


def _written(out: Path | None, size: int) -> dict[str, Any]:
    return {"out": str(out), **({"bytes": size} if size else {})} if out else {}
