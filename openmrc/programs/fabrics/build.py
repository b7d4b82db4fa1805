"""`mrc fabric build`: write a fabric's tables, addresses and profiles."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from openmrc.programs.fabrics.files import FabricFile, answer, load_plan, seconds_since
from openmrc.programs.outcome import Json


def build(
    file: FabricFile,
    out: Annotated[Path, typer.Option("--out", help="Folder to write to.")] = Path("fabric-out"),
    text: Annotated[bool, typer.Option(help="Also write text files, templates and, up to 64 NICs, profiles.")] = True,
    as_json: Json = False,
) -> None:
    """Write names, addresses, tables, path templates and EV profiles."""
    from openmrc.fabric.proof.folder import write

    start = time.perf_counter()
    result = write(load_plan(file), out, text)
    answer({**result, "wall_s": seconds_since(start)}, as_json)
