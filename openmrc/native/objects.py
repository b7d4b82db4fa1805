"""Compile the entries of the native library into object files: `python -m openmrc.native.objects FOLDER NAME...`.

A process of its own, because the processor to compile for must be known before Numba is imported.
"""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from openmrc.errors import MrcError

LONGEST = "take_in"  # holds most of the engine: as long as all others together


class Processor(NamedTuple):
    """A processor to compile for: any of its kind that runs Linux distributions of today."""

    triple: str
    cpu: str


# x86-64-v2: processors since about 2009; the compiled loop is as fast as for v3, whose vectors it hardly uses.
TARGETS = {
    "x86_64": Processor("x86_64-unknown-linux-gnu", "x86-64-v2"),
    "aarch64": Processor("aarch64-unknown-linux-gnu", "generic"),
}


def target() -> Processor:
    """Return the target of this machine; MrcError if there is none."""
    found = TARGETS.get(platform.machine())
    if found is None or not sys.platform.startswith("linux"):
        raise MrcError(f"native library: {platform.machine()}, {sys.platform}: only Linux on {', '.join(TARGETS)}")
    return found


def compile_into(folder: Path, names: list[str]) -> None:
    """Compile the named entries, the longest beside all others."""
    shares = [[name for name in names if name == LONGEST], [name for name in names if name != LONGEST]]
    commands = [[sys.executable, "-m", __spec__.name, str(folder), *share] for share in shares if share]
    running = [subprocess.Popen(command, env=_environment(os.environ)) for command in commands]
    statuses = [process.wait() for process in running]
    if any(statuses):
        raise MrcError("native library: its entries could not be compiled, see above")


def _environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a compiling process: for the target, and always compiled."""
    package = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (package, inherited.get("PYTHONPATH"))))
    mine = {"NUMBA_CPU_NAME": target().cpu, "NUMBA_CPU_FEATURES": "", "NUMBA_DISABLE_JIT": "0", "PYTHONPATH": path}
    return {name: value for name, value in {**inherited, **mine}.items() if name != "NUMBA_BOUNDSCHECK"}


def main() -> None:
    """Compile the entries named on the command line."""
    from openmrc.core.object_code import compile_object
    from openmrc.native.entries import ENTRIES

    folder, triple, cpu = Path(sys.argv[1]), *target()
    for name in sys.argv[2:]:
        entry = ENTRIES[name]
        code = compile_object(entry.function, f"mrc_entry_{name}", entry.arguments, triple, cpu)
        (folder / f"{name}.part").write_bytes(code)
        (folder / f"{name}.part").rename(folder / f"{name}.o")


if __name__ == "__main__":
    main()
