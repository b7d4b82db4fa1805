"""`mrc fabric`: build, verify and export switch tables from a short description.

Each command has its own file, `fabric_NAME.py`.
"""

from __future__ import annotations

import typer

from openmrc.programs.fabrics.build import build
from openmrc.programs.fabrics.cabled import cabled
from openmrc.programs.fabrics.cables import bom, cables
from openmrc.programs.fabrics.diff import diff
from openmrc.programs.fabrics.export import export
from openmrc.programs.fabrics.page import page
from openmrc.programs.fabrics.path import path
from openmrc.programs.fabrics.profile import profile
from openmrc.programs.fabrics.schema import schema
from openmrc.programs.fabrics.show import show
from openmrc.programs.fabrics.verify import verify

app = typer.Typer(no_args_is_help=True, help="Build, verify, export and compare a fabric's tables.")
for command in (build, show, path, verify, profile, export, diff, cables, cabled, bom, page, schema):
    app.command()(command)
