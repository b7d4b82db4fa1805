"""`mrc fabric page`: one page of a fabric to hand on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from openmrc.fabric.cables.listing import list_cables
from openmrc.fabric.cables.materials import bill
from openmrc.fabric.model.parts import load_parts
from openmrc.fabric.proof.verify import verify
from openmrc.programs.fabrics.cables import PartsFile, write_blocks
from openmrc.programs.fabrics.files import FabricFile, answer, load_plan
from openmrc.programs.fabrics.verdict import verdict_sentence
from openmrc.programs.outcome import Json
from openmrc.report.fabric import fabric_page


def page(
    file: FabricFile,
    out: Annotated[Path, typer.Option("--out", help="HTML file to write.")],
    parts: PartsFile = None,
    as_json: Json = False,
) -> None:
    """Write one HTML page to hand on: counts, planes, proof, tables, cables and what to order."""
    plan = load_plan(file)
    verdict = verify(plan)
    cables = list_cables(plan.topology)
    text = fabric_page(plan, verdict_sentence(verdict), verdict, cables, bill(cables, load_parts(parts)))
    size = write_blocks(out, [text])
    answer({"out": str(out), "bytes": size, "proven": verdict.proven}, as_json)
    if not verdict.proven:
        raise typer.Exit(1)
