"""`mrc fabric grow`: list what a larger fabric adds, and check that existing devices keep their configuration."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from openmrc.cli.fabrics.fabric_cables import Names, write_blocks
from openmrc.cli.fabrics.fabric_files import Json, answer, load_plan


def grow(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="fabric.yaml of the existing fabric.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="fabric.yaml of the larger fabric.")],
    cables: Annotated[Path | None, typer.Option("--cables", help="CSV file for the added cables.")] = None,
    names: Names = "sonic",
    as_json: Json = False,
) -> None:
    """Print the additions, and prove that nothing existing changes; exit 1 if something does.

    Compares names, uSIDs and addresses, every table entry, every cable with ports and cages, racks and units.
    """
    import msgspec

    from openmrc.fabric.cabling.grow import grow as compare
    from openmrc.fabric.cabling.ports import check_scheme

    start = time.perf_counter()
    scheme = check_scheme(names)
    before, after = load_plan(old), load_plan(new)
    found = compare(before, after)
    if cables is not None:
        from openmrc.fabric.cabling.cables import csv_blocks, list_cables

        write_blocks(cables, csv_blocks(list_cables(after.topology, found.links), scheme))
    added = {
        "machines": found.machines, "nics": found.nics, "switches": found.switches, "cables": found.cables,
        "entries_on_new_switches": found.entries_on_new, "entries_on_existing_switches": found.entries_on_existing,
        "existing_switches_with_new_entries": found.switches_with_new_entries,
    }  # fmt: skip
    result = {
        "unchanged": found.is_pure, "added": added, "cables_to_move": found.cables_to_move, "changes": found.changes,
        "listed": found.listed,
    }  # fmt: skip
    answer({**msgspec.to_builtins(result), "wall_s": round(time.perf_counter() - start, 3)}, as_json)
    if not found.is_pure:
        raise typer.Exit(1)
