"""`mrc warm`: compile the code that the other commands run."""

from __future__ import annotations

import time

from openmrc.programs.outcome import Json, give
from openmrc.programs.warm import compile_all


def warm(
    as_json: Json = False,
) -> None:
    """Compile the live endpoint and the simulator; later runs load them in a second.

    Takes one to three minutes after an installation or a change of the sources.
    """
    begun = time.monotonic()
    compile_all()
    seconds = round(time.monotonic() - begun, 1)
    give({"ok": True, "seconds": seconds}, as_json, f"OK compiled and cached in {seconds:.1f} s")
