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

import numpy as np

from harness.engine_pair import Pair
from openmrc.engine import endpoint as doors
from openmrc.engine.state.tables import Engine
from openmrc.live.datapath import handles as table_handles
from openmrc.live.datapath.handles import HANDLE_BYTES
from openmrc.live.datapath.rows import DataPath, PostCommand
from openmrc.native import objects
from openmrc.native.library import compiler, entries_folder
from tests.engine.doors import Door

ROOT = Path(__file__).parents[2]


def open_door(at: int, door: int, now: int, subject: int, packet: int, ports: int) -> int:
    """Call one door of the engine whose handles lie at `at`; a write to post is the first command."""
    engine = table_handles.engine_at(at)
    if door == Door.RECEIVE:
        doors.receive(engine, now, subject, packet)
    elif door == Door.NEXT_PACKET:
        return doors.next_packet(engine, now, subject, ports, packet)
    elif door == Door.EXPIRE:
        doors.expire(engine, now, subject)
    elif door == Door.POST_WRITE:
        return doors.post_write(engine, now, subject, table_handles.datapath_at(at).commands[0])
    else:
        doors.set_port(engine, now, subject, packet, ports)
    return 0


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
        self.handles: Any = None
        super().__post_init__()

    def _door(self, door: int, subject: int, packet: int = 0, ports: int = 0) -> int:
        if self.handles is None:
            self.command = np.zeros(1, np.dtype([(name, np.int64) for name in _command_fields()]))
            self.handles = handles(self.engine, self.command)
        for name in self.request.dtype.names:  # type: ignore[attr-defined]
            self.command[name] = np.asarray(self.request)[name]
        result, exception = ctypes.c_int64(), ctypes.c_void_p()
        words = (self.handles.ctypes.data, int(door), self.now, subject, packet, ports)
        failed = native_door()(ctypes.byref(result), ctypes.byref(exception), *map(ctypes.c_int64, words))
        assert failed == 0
        return result.value


def _command_fields() -> list[str]:
    from openmrc.core.rows import dtype_of

    return list(dtype_of(PostCommand).names or ())


def handles(engine: Engine, command: Any) -> Any:
    """Memory as C fills it: a handle for each table, zeros for those that no door reads."""
    words = np.zeros(2 * HANDLE_BYTES // 8, np.int64)
    at = 0
    for rows in engine:
        at = _put(words, at, np.asarray(rows))
    at = HANDLE_BYTES // 8
    for name in DataPath._fields:
        if name == "commands":
            _put(words, at, command)
        at += 9 if name in _matrices() else 7
    return words


@functools.cache
def _matrices() -> frozenset[str]:
    from openmrc.native.description import tables

    return frozenset(name.removeprefix("datapath_") for name, rows in tables(1).items() if rows.ndim == 2)


def _put(words: Any, at: int, rows: Any) -> int:
    words[at : at + 7] = (0, 0, len(rows), rows.itemsize, rows.ctypes.data, len(rows), rows.itemsize)
    return at + 7


if __name__ == "__main__":
    from openmrc.core.object_code import WORD, compile_object

    Path(sys.argv[1]).write_bytes(compile_object(open_door, "open_door", (WORD,) * 6, *objects.target(), True))
