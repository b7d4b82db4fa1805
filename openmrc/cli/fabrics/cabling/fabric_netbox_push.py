"""`mrc fabric netbox --push`: the token, the progress bars, the result."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import typer

if TYPE_CHECKING:
    from openmrc.fabric.cabling.cables import Cables
    from openmrc.fabric.cabling.netbox import NetboxNaming

TOKEN_VARIABLE = "NETBOX_TOKEN"


def push_to(url: str, token_file: Path | None, cables: Cables, naming: NetboxNaming) -> dict[str, Any]:
    """Create what is missing, with a bar for each table on a terminal; return the counts by table."""
    import msgspec
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    from openmrc.cli.outcome import stoppable
    from openmrc.fabric.cabling.netbox_push import connect, push

    api = connect(_checked(url), _token(token_file))
    console = Console(stderr=True)
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with stoppable(), Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def show(table: str, done: int, total: int) -> None:
            if table not in tasks:
                tasks[table] = bars.add_task(table)
            bars.update(tasks[table], completed=done, total=total)

        found: dict[str, Any] = msgspec.to_builtins(push(cables, naming, api, show))
    return found


def _checked(url: str) -> str:
    """Return an address that may be given a token; over the network in the clear only with a warning."""
    from openmrc.errors import UsageError

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--push {url!r}: expected an address such as https://netbox.example")
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        typer.echo(f"mrc: {url} is not encrypted: others on the network can read the token", err=True)
    return url


def _token(file: Path | None) -> str:
    """Return the token from a file or the environment; not from the command line, which others on a host can see."""
    from openmrc.documents import read_text
    from openmrc.errors import UsageError

    token = read_text(file).strip() if file is not None else os.environ.get(TOKEN_VARIABLE, "")
    if not token:
        raise UsageError(f"--push needs an API token of NetBox: --token-file FILE, or {TOKEN_VARIABLE}")
    return token
