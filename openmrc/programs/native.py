"""`mrc native`: where the native library is, and how to use it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from openmrc.native import library as built
from openmrc.native.library import include_folder, library
from openmrc.programs.outcome import Json, give, print_json
from openmrc.version import __version__


def native(
    path: Annotated[bool, typer.Option("--path", help="Print the path of the library alone.")] = False,
    include: Annotated[bool, typer.Option("--include", help="Print the folder of the headers alone.")] = False,
    install: Annotated[
        str, typer.Option("--install", metavar="PREFIX", help="Install library, headers, libmrc.pc, manual page there.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Show the native library; in a checkout, build it if it is not there.

    The library holds the engine and a verbs device, and needs no Python: programs link it, open it by path, or run with
    it preloaded, as `mrc run` does.
    """
    if install:
        made = built.install(Path(install).absolute(), lambda line: typer.echo(line, err=True))
        give({"ok": True, "installed": [str(file) for file in made]}, as_json, "\n".join(map(str, made)))
        return
    found, headers = library(lambda line: typer.echo(line, err=True)), include_folder()
    if as_json:
        print_json({"ok": True, "library": str(found), "include": str(headers), "version": __version__})
    elif path or include:
        typer.echo(found if path else headers)
    else:
        typer.echo(f"library  {found}\nheaders  {headers}\nversion  {__version__}")
        typer.echo(f"compile  cc program.c -I{headers} {found} -Wl,-rpath,{found.parent}")
        typer.echo("run      mrc run --planes loopback PROGRAM ARGS...")
