"""`mrc fabric profile`: the EV profile of a pair of NICs."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from openmrc.programs.fabrics.files import FabricFile, answer, load_plan
from openmrc.programs.outcome import Json


def profile(
    file: FabricFile,
    source: Annotated[str, typer.Argument(help="Source NIC.")],
    destination: Annotated[str, typer.Argument(help="Destination NIC.")],
    mode: Annotated[
        Literal["explicit", "generated"], typer.Option(help="List EVs, or let the endpoint generate them.")
    ] = "explicit",
    count: Annotated[int, typer.Option(min=1, help="Number of EVs in an explicit profile.")] = 256,
    as_json: Json = False,
) -> None:
    """Print the EV format and profile of a pair of NICs, as the endpoint reads them."""
    from openmrc.fabric.addressing.profiles import profile as make

    plan = load_plan(file)
    name = plan.topology.node_named
    answer(make(plan, name(source), name(destination), mode, count), as_json)
