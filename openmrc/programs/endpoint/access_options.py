"""Options that control who may connect: `--bind`, and the token of both sides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from openmrc.programs.endpoint.access import AccessPolicy, hosts_of, token_of

GROUP = "Access"

Bind = Annotated[
    str | None,
    typer.Option(
        "--bind",
        metavar="ADDR,...",
        help="Addresses to listen on, or all (default: loopback and the planes).",
        rich_help_panel=GROUP,
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TEXT",
        help="Shared secret of 16 characters or more. Other users of this machine see it in the process "
        "list; --token-file and MRC_TOKEN avoid that (default of a listener that other machines reach: generated).",
        rich_help_panel=GROUP,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="File that contains the token.", rich_help_panel=GROUP),
]
NoToken = Annotated[bool, typer.Option("--no-token", help="Accept any peer without a token.", rich_help_panel=GROUP)]


@dataclass(frozen=True)
class Credentials:
    """Addresses and token of a listening command."""

    bind: Bind = None
    token: Token = None
    token_file: TokenFile = None
    no_token: NoToken = False

    def listening(self) -> AccessPolicy:
        """Return the access rules of a listening command."""
        return AccessPolicy(hosts_of(self.bind), token_of(self.token, self.token_file, self.no_token))
