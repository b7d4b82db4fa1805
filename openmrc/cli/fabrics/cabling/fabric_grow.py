"""`mrc fabric grow`: what a larger fabric adds, whether anything existing changes, and which growth moves least."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from openmrc.cli.fabrics.cabling.fabric_cables import Names, write_blocks
from openmrc.cli.fabrics.fabric_files import Json, answer, load_plan, seconds_since


def grow(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="fabric.yaml of the existing fabric.")],
    new: Annotated[Path | None, typer.Argument(metavar="NEW", help="fabric.yaml of the larger fabric.")] = None,
    machines: Annotated[
        int | None, typer.Option("--machines", min=1, help="Instead of NEW: propose ways to grow to so many machines.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="fabric.yaml for the way that moves fewest cables.")] = None,
    cables: Annotated[Path | None, typer.Option("--cables", help="CSV file for the added cables.")] = None,
    names: Names = "sonic",
    as_json: Json = False,
) -> None:
    """Print the additions, and prove that nothing existing changes; exit 1 if something does.

    Compares names, uSIDs and addresses, every table entry, every cable with ports and cages, racks and units. With
    --machines: the ways to grow that the shape leaves open, the fewest cables to move first; exit 1 if there is none.
    """
    from openmrc.errors import UsageError

    if (new is None) == (machines is None) or (out and not machines) or (cables and not new):
        raise UsageError("grow: give NEW (and --cables), or --machines (and --out)")
    if machines is not None:
        _propose(old, machines, out, as_json)
        return
    assert new is not None
    _compare(old, new, cables, names, as_json)


def _compare(old: Path, new: Path, cables: Path | None, names: str, as_json: bool) -> None:
    """Print what the larger fabric adds, and whether it changes anything."""
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
    answer({**msgspec.to_builtins(result), "wall_s": seconds_since(start)}, as_json)
    if not found.is_pure:
        raise typer.Exit(1)


def _propose(old: Path, machines: int, out: Path | None, as_json: bool) -> None:
    """Print the ways to grow, and write the first."""
    from openmrc.fabric.cabling.growth_choices import growth_choices
    from openmrc.fabric.model.fabric_file import load, save

    start = time.perf_counter()
    choices = growth_choices(load(old), machines)
    ways = [
        {"way": each.step.text, "cables_to_move": each.growth.cables_to_move, "changes": each.growth.changes,
         "oversubscription": each.oversubscription,
         "added": {"machines": each.growth.machines, "switches": each.growth.switches, "cables": each.growth.cables}}
        for each in choices if each.growth is not None
    ]  # fmt: skip
    refused = [{"way": each.step.text, "because": each.refused} for each in choices if each.growth is None]
    best = choices[0].fabric
    if out is not None and best is not None:
        save(best, out, f"{old.name}, grown to {machines} machines: {choices[0].step.text}")
    written = {"out": str(out)} if out is not None and best is not None else {}
    wall = seconds_since(start)
    answer({"ways": ways, "impossible": refused, **written, "wall_s": wall}, as_json)
    if best is None:
        raise typer.Exit(1)
