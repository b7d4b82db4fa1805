"""`mrc warm`: compile the code that the other commands run."""

from __future__ import annotations

import time

import typer

from openmrc.programs.outcome import Json


def warm(
    as_json: Json = False,
) -> None:
    """Compile the live endpoint and the simulator; later runs load them in a second.

    Takes one to three minutes after an installation or a change of the sources.
    """
    from openmrc.programs.outcome import print_json
    from openmrc.programs.warm import compile_all

    begun = time.monotonic()
    compile_all()
    seconds = round(time.monotonic() - begun, 1)
    if as_json:
        print_json({"ok": True, "seconds": seconds})
    else:
        typer.echo(f"OK compiled and cached in {seconds:.1f} s")
