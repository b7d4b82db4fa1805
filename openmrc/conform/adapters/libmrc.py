"""Adapter of libmrc, the native library: `mrc conform --device libmrc`.

It builds the C program native/examples/mrc_conform.c of a checkout and becomes it. Where there is no C compiler, no
checkout or no library, it exits with code 127, as adapters do for what they lack.
"""

import argparse
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from openmrc.conform.adapters.endpoint import own_loopback
from openmrc.conform.devices.contract import UNSUPPORTED_EXIT
from openmrc.core.cache import PACKAGE

SOURCE = PACKAGE.parent / "native" / "examples" / "mrc_conform.c"
HEADERS = PACKAGE.parent / "native" / "include"
MOST_PLANES = 16
_COMPILER = ("cc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread")


def native_library() -> Path:
    """Return the library, built if it is not there; OSError or CalledProcessError if that is impossible."""
    words = [sys.executable, "-m", "openmrc.programs.main", "native", "--path"]
    return Path(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())


def built(library: Path) -> Path:
    """Return the program beside the library that it is linked with."""
    key = hashlib.sha256(SOURCE.read_bytes() + str(library).encode()).hexdigest()[:16]
    made = library.parent / f"{SOURCE.stem}-{key}"
    if not made.exists():
        part = made.with_suffix(f".{os.getpid()}")
        places = [f"-I{HEADERS}", f"-Wl,-rpath,{library.parent}"]
        subprocess.run([*_COMPILER, *places, str(SOURCE), "-o", str(part), str(library), "-libverbs"], check=True)
        part.replace(made)
    return made


def main() -> None:
    """Read the options, build, and become the program."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--plane", action="append", default=[], help="local IPv4 address of a plane; may be repeated")
    given = options.parse_args().plane
    planes = given or [each.partition(":")[0] for each in own_loopback(MOST_PLANES)]
    try:
        program = built(native_library())
    except (OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"libmrc: {error}\n")
        sys.exit(UNSUPPORTED_EXIT)
    os.execve(program, [str(program)], {**os.environ, "MRC_PLANES": ",".join(planes), "MRC_LOG": "off"})


if __name__ == "__main__":
    main()
