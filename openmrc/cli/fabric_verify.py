"""`mrc fabric verify`: prove a fabric's tables."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from openmrc.cli.fabric_files import FabricFile, Json, TableFile, answer, load_plan, load_tables


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
    plan = load_plan(file)
    given = load_tables(plan, tables)
    verdict = prove(plan, given, max_entries)
    said = {"proven": verdict.proven, **msgspec.to_builtins(verdict), "wall_s": time.perf_counter() - start}
    if exhaustive:
        from openmrc.fabric.exhaustive import check_all
        from openmrc.fabric.tables import build_tables

        said["exhaustive"] = msgspec.to_builtins(check_all(plan, given or build_tables(plan)))
        said["exhaustive_wall_s"] = time.perf_counter() - start - said["wall_s"]
    answer(said, as_json)
    if not verdict.proven:
        raise typer.Exit(1)
