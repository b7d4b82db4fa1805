"""Compile the engine for all commands in advance: `mrc warm`, `python -m openmrc.warm`.

Each world compiles in its own process, in parallel; loading compiled code takes a second.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import time

from openmrc.errors import MrcError

WORLDS = ("openmrc.live.warm", "openmrc.sim.warm", "openmrc.jobs.warm")


def main() -> None:
    """Compile every world, or the one named on the command line."""
    if len(sys.argv) > 1:
        importlib.import_module(sys.argv[1]).warm()
        return
    begun = time.monotonic()
    compile_all()
    sys.stderr.write(f"openmrc: the engine is ready ({time.monotonic() - begun:.0f} s)\n")


def compile_all() -> None:
    """Compile every world in parallel; MrcError if one fails."""
    running = {world: subprocess.Popen([sys.executable, "-m", "openmrc.warm", world]) for world in WORLDS}
    failed = [world for world, process in running.items() if process.wait() != 0]
    if failed:
        raise MrcError(f"{', '.join(failed)}: could not be compiled, see above")


if __name__ == "__main__":
    main()
