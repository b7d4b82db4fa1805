"""`mrc fabric schema`: print the JSON Schema of fabric.yaml."""

from __future__ import annotations

import typer

from openmrc.programs.fabrics.files import object_text
from openmrc.programs.outcome import Json


def schema(as_json: Json = False) -> None:
    """Print the JSON Schema of fabric.yaml, indented or on one line."""
    from openmrc.fabric.model.description import json_schema, schema_text

    typer.echo(object_text(json_schema()) if as_json else schema_text().rstrip())
