"""`mrc fabric path`: follow one EV hop by hop."""

from __future__ import annotations

from typing import Annotated

import typer

from openmrc.cli.fabric_files import FabricFile, Json, TableFile, answer, load_plan, load_tables


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

    plan = load_plan(file)
    answer(path_facts(plan, source, destination, ev, load_tables(plan, tables)), as_json)
