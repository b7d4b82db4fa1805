"""The doors of the engine in a shared object of their own: compiled and linked as the native library is, called by C.

`python -m tests.native.doors FILE` compiles them, in a process of its own, as `openmrc.native.objects` does.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness.engine_pair import Pair
from openmrc.native import objects
from openmrc.native.library import compiler, entries_folder
from tests.engine.doors import open_door

ROOT = Path(__file__).parents[2]


@functools.cache
def native_door() -> Any:
    """The compiled function, loaded; built once for each state of the sources."""
    folder = entries_folder(lambda line: None)
    made = folder / "doors.so"
    if not made.exists():
        part = folder / f"doors-{os.getpid()}.o"
        environment = objects._environment(os.environ)
        command = [sys.executable, "-m", "tests.native.doors", str(part)]
        subprocess.run(command, env=environment, cwd=ROOT, check=True)
        linked = part.with_suffix(".so")
        subprocess.run([compiler(), "-shared", "-Wl,-z,text", str(part), "-o", str(linked)], check=True)
        linked.rename(made)
    return ctypes.CDLL(str(made)).open_door


class NativePair(Pair):
    """Two endpoints in tables of Python, whose doors are those of the native code."""

    def __post_init__(self) -> None:
        self.compiled = True
        super().__post_init__()

    def _open(self, *words: int) -> int:
        result, exception = ctypes.c_int64(), ctypes.c_void_p()
        failed = native_door()(ctypes.byref(result), ctypes.byref(exception), *map(ctypes.c_int64, words))
        assert failed == 0
        return result.value


if __name__ == "__main__":
    from openmrc.core.calls import WORD
    from openmrc.core.object_code import compile_object

    Path(sys.argv[1]).write_bytes(compile_object(open_door, "open_door", (WORD,) * 6, *objects.target(), True))
