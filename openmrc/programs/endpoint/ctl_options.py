"""Options of all commands of `mrc ctl`, and those of `mrc ctl profile` in groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

Endpoint = Annotated[
    str, typer.Option("--endpoint", "-e", help="Name of the endpoint, or how it begins (default: the only one).")
]
Folder = Annotated[str | None, typer.Option(help="Folder of the sockets (default: as MRC_CTL says).")]


@dataclass(frozen=True)
class ProfileSettings:
    """What an EV profile is set to."""

    mode: Annotated[str | None, typer.Option(help="auto, explicit or generated.")] = None
    form: Annotated[int | None, typer.Option("--format", help="Number of its EV format profile.")] = None
    count: Annotated[int | None, typer.Option(help="How many EVs.")] = None
    fields: Annotated[
        list[str] | None, typer.Option("--field", metavar="W,INIT,MIN,MAX,MASK", help="A field; once for each.")
    ] = None
    min_active: Annotated[int | None, typer.Option(help="EVs that stay in use whatever their state.")] = None
    events: Annotated[str | None, typer.Option(help="States to report: good,assumed_bad, or none.")] = None


@dataclass(frozen=True)
class ArrayChanges:
    """What happens to the EVs of a profile."""

    fill: Annotated[
        list[str] | None, typer.Option("--fill", metavar="PORT:EV", help="Put an EV into an entry that is empty.")
    ] = None
    replace: Annotated[
        list[str] | None, typer.Option("--replace", metavar="PORT:EV=PORT:EV", help="Replace an EV by another.")
    ] = None
    set_state: Annotated[
        list[str] | None, typer.Option("--set", metavar="PORT:EV=STATE", help="Set an EV to good, denied, assumed_bad.")
    ] = None
    all_copies: Annotated[bool, typer.Option(help="Change all copies of an EV, not one.")] = False
