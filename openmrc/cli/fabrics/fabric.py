"""`mrc fabric`: build, verify and export switch tables from a short description.

Each command has its own file, `fabric_NAME.py`.
"""

from __future__ import annotations

import typer

from openmrc.cli.fabrics.cabling.fabric_cabled import cabled
from openmrc.cli.fabrics.cabling.fabric_cables import bom, cables
from openmrc.cli.fabrics.fabric_build import build
from openmrc.cli.fabrics.fabric_diff import diff
from openmrc.cli.fabrics.fabric_export import export
from openmrc.cli.fabrics.fabric_page import page
from openmrc.cli.fabrics.fabric_path import path
from openmrc.cli.fabrics.fabric_profile import profile
from openmrc.cli.fabrics.fabric_schema import schema
from openmrc.cli.fabrics.fabric_show import show
from openmrc.cli.fabrics.fabric_verify import verify

app = typer.Typer(no_args_is_help=True, help="Build, verify, export and compare a fabric's tables.")
for command in (build, show, path, verify, profile, export, diff, cables, cabled, bom, page, schema):
    app.command()(command)
