"""The options that say who may connect: `--bind`, and the token of both sides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from openmrc.apps.access import Access

GROUP = "Access"

Bind = Annotated[
    str | None,
    typer.Option(
        "--bind",
        metavar="ADDR,...",
        help="Listen on these addresses; all: on every one (default: loopback and the planes).",
        rich_help_panel=GROUP,
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TEXT",
        help="Secret that both sides hold, 16 characters or more; other users of this machine see it in the process "
        "list, which --token-file and MRC_TOKEN avoid (default of a listener that other machines reach: a fresh one).",
        rich_help_panel=GROUP,
    ),
]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="Read it from a file.", rich_help_panel=GROUP)
]
NoToken = Annotated[
    bool, typer.Option("--no-token", help="Do without: everybody who can connect may.", rich_help_panel=GROUP)
]


@dataclass(frozen=True)
class Secret:
    """The token of a connecting command."""

    token: Token = None
    token_file: TokenFile = None
    no_token: NoToken = False

    def client(self) -> str:
        """Return the token to give, empty for none."""
        return client_token(self.token, self.token_file, self.no_token)


@dataclass(frozen=True)
class Credentials:
    """Where a command listens, and its token."""

    bind: Bind = None
    token: Token = None
    token_file: TokenFile = None
    no_token: NoToken = False

    def listening(self) -> Access:
        """Return what they say to a listening command."""
        return listening_access(self.bind, self.token, self.token_file, self.no_token)


def listening_access(bind: str | None, token: str | None, token_file: Path | None, no_token: bool) -> Access:
    """Return what the options of a listening command say."""
    from openmrc.apps.access import Access, hosts_of, token_of

    return Access(hosts_of(bind), token_of(token, token_file, no_token))


def client_token(token: str | None, token_file: Path | None, no_token: bool) -> str:
    """Return the token that a connecting command gives, empty for none."""
    from openmrc.apps.access import token_of

    return token_of(token, token_file, no_token) or ""
