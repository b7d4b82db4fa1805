"""`mrc fabric show`: summarise a fabric or one of its nodes."""

from __future__ import annotations

from typing import Annotated

import typer

from openmrc.programs.fabrics.files import FabricFile, load_plan, load_topology, tell
from openmrc.programs.outcome import Json


def show(
    file: FabricFile,
    node: Annotated[str | None, typer.Argument(help="Show one NIC or switch.")] = None,
    as_json: Json = False,
) -> None:
    """Summarise a fabric, or show one node with its links and table."""
    from openmrc.fabric.proof.show import fabric_facts, node_facts

    tell(node_facts(load_plan(file), node) if node else fabric_facts(load_topology(file)), as_json)
