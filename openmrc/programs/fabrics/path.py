"""`mrc fabric path`: follow one EV hop by hop."""

from __future__ import annotations

from typing import Annotated

import typer

from openmrc.programs.fabrics.files import FabricFile, TableFile, load_plan, load_tables, tell
from openmrc.programs.outcome import Json


def path(
    file: FabricFile,
    source: Annotated[str, typer.Argument(help="Source NIC.")],
    destination: Annotated[str, typer.Argument(help="Destination NIC.")],
    ev: Annotated[int, typer.Option("--ev", min=0, help="EV number; its lowest bits are the plane.")] = 0,
    tables: TableFile = None,
    as_json: Json = False,
) -> None:
    """Follow one EV from NIC to NIC through the tables, hop by hop."""
    from openmrc.fabric.proof.show import path_facts

    plan = load_plan(file)
    tell(path_facts(plan, source, destination, ev, load_tables(plan, tables)), as_json)
