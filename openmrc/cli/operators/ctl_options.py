"""Options of all commands of `mrc ctl`."""

from __future__ import annotations

from typing import Annotated

import typer

Endpoint = Annotated[
    str, typer.Option("--endpoint", "-e", help="Name of the endpoint, or how it begins (default: the only one).")
]
Folder = Annotated[str | None, typer.Option(help="Folder of the sockets (default: as MRC_CTL says).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
