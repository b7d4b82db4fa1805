"""The native library and programs in C, built once and kept between runs."""

from __future__ import annotations

import functools
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from openmrc.native import library as native
from tests.needs import require

ROOT = Path(__file__).parents[2]
PLANES = ",".join(f"127.0.0.{plane}" for plane in range(1, 5))


@functools.cache
def library(*extra: str) -> Path:
    """The library; tests are skipped on a machine that cannot build it."""
    require("cc", "verbs.h", "jit")
    return native.library(_say, extra)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def program(source: str, *options: str, linked: bool = True) -> Path:
    """A C program of the tests or the examples, linked with the library unless it opens that itself."""
    path, lib = ROOT / "native" / source, library()
    parts = [path, *sorted((ROOT / "native").rglob("*.h"))]
    key = hashlib.sha256(b"".join(part.read_bytes() for part in parts) + str((lib, options)).encode()).hexdigest()[:16]
    made = lib.parent / f"{path.stem}-{key}"
    if not made.exists():
        command = [shutil.which("cc") or "cc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]
        places = [f"-I{ROOT / 'native' / 'include'}", f"-I{ROOT / 'native' / 'src'}", f"-I{lib.parents[1]}"]
        part = f"{made}.{os.getpid()}"  # another worker may build it, too
        subprocess.run(
            [*command, *places, *options, str(path), "-o", part, *(with_library(lib) if linked else ())], check=True
        )
        os.replace(part, made)
    return made


def beside(lib: Path, source: str, *options: str) -> Path:
    """A C program of the tests, built anew beside a library that is built with options of its own."""
    made = lib.parent / source.removesuffix(".c")
    places = [f"-I{ROOT / 'native/include'}", str(ROOT / "native/tests" / source), *with_library(lib)]
    subprocess.run(["cc", "-std=gnu11", "-O1", "-g", "-pthread", *options, *places, "-o", str(made)], check=True)
    return made


def with_library(lib: Path) -> list[str]:
    return [str(lib), f"-Wl,-rpath,{lib.parent}"]


def environment(**settings: str) -> dict[str, str]:
    shell = {name: value for name, value in os.environ.items() if not name.startswith("MRC_")}
    return {**shell, "LD_PRELOAD": str(library()), "MRC_PLANES": PLANES, **settings}


def run(command: str | list[str], timeout: float = 60, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a program with the library preloaded, over four planes of the loopback."""
    words = shlex.split(command) if isinstance(command, str) else command
    return subprocess.run(
        words, env=environment(**settings), capture_output=True, text=True, timeout=timeout, check=False
    )
