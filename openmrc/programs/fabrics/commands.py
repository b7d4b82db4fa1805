"""Short commands of `mrc fabric`; longer ones have a file of their own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from openmrc.fabric.addressing.profiles import profile as make
from openmrc.fabric.model.description import json_schema, schema_text
from openmrc.fabric.proof.folder import write
from openmrc.fabric.proof.show import fabric_facts, node_facts, path_facts
from openmrc.programs.fabrics.files import (
    FabricFile,
    TableFile,
    answer,
    load_plan,
    load_tables,
    load_topology,
    seconds_since,
    tell,
)
from openmrc.programs.outcome import Json, give


def build(
    file: FabricFile,
    out: Annotated[Path, typer.Option("--out", help="Folder to write to.")] = Path("fabric-out"),
    text: Annotated[bool, typer.Option(help="Also write text files, templates and, up to 64 NICs, profiles.")] = True,
    as_json: Json = False,
) -> None:
    """Write names, addresses, tables, path templates and EV profiles."""
    start = time.perf_counter()
    result = write(load_plan(file), out, text)
    answer({**result, "wall_s": seconds_since(start)}, as_json)


def schema(as_json: Json = False) -> None:
    """Print the JSON Schema of fabric.yaml, indented or on one line."""
    give(json_schema(), as_json, schema_text().rstrip())


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
    plan = load_plan(file)
    name = plan.topology.node_named
    answer(make(plan, name(source), name(destination), mode, count), as_json)


def path(
    file: FabricFile,
    source: Annotated[str, typer.Argument(help="Source NIC.")],
    destination: Annotated[str, typer.Argument(help="Destination NIC.")],
    ev: Annotated[int, typer.Option("--ev", min=0, help="EV number; its lowest bits are the plane.")] = 0,
    tables: TableFile = None,
    as_json: Json = False,
) -> None:
    """Follow one EV from NIC to NIC through the tables, hop by hop."""
    plan = load_plan(file)
    tell(path_facts(plan, source, destination, ev, load_tables(plan, tables)), as_json)


def show(
    file: FabricFile,
    node: Annotated[str | None, typer.Argument(help="Show one NIC or switch.")] = None,
    as_json: Json = False,
) -> None:
    """Summarise a fabric, or show one node with its links and table."""
    tell(node_facts(load_plan(file), node) if node else fabric_facts(load_topology(file)), as_json)
