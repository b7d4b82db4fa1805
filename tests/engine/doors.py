"""The doors of the engine, callable interpreted or compiled, so that one test can run both and compare."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.core.jit import entry, kernel
from openmrc.engine import endpoint as doors
from openmrc.engine.state.tables import Engine, WriteRequest
from openmrc.live.datapath import handles as table_handles
from openmrc.live.datapath.handles import HANDLE_BYTES
from openmrc.live.datapath.rows import DataPath
from openmrc.native.description import tables


class Door(IntEnum):
    RECEIVE = 0
    NEXT_PACKET = 1
    EXPIRE = 2
    POST_WRITE = 3
    SET_PORT = 4


@kernel
def call_door(engine: Engine, write: WriteRequest, door: int, now: int, subject: int, packet: int, ports: int) -> int:
    """Call one door; what a door does not need is 0."""
    if door == Door.RECEIVE:
        doors.receive(engine, now, subject, packet)
    elif door == Door.NEXT_PACKET:
        return doors.next_packet(engine, now, subject, ports, packet)
    elif door == Door.EXPIRE:
        doors.expire(engine, now, subject)
    elif door == Door.POST_WRITE:
        return doors.post_write(engine, now, subject, write)
    else:
        doors.set_port(engine, now, subject, packet, ports)
    return 0


@entry
def open_door(at: int, door: int, now: int, subject: int, packet: int, ports: int) -> int:
    """Call one door of the engine whose handles lie at `at`; a write to post is the first command."""
    write = table_handles.datapath_at(at).commands[0]
    return call_door(table_handles.engine_at(at), write, door, now, subject, packet, ports)


def handles(engine: Engine, commands: Any) -> NDArray[np.int64]:
    """Return memory as C fills it: a handle for each table, zeros for those that no door reads."""
    words = np.zeros(2 * HANDLE_BYTES // 8, np.int64)
    for number, rows in enumerate(engine):
        _put(words, 7 * number, np.asarray(rows))
    matrices = {name.removeprefix("datapath_") for name, rows in tables(1).items() if rows.ndim == 2}
    before = DataPath._fields[: DataPath._fields.index("commands")]
    _put(words, HANDLE_BYTES // 8 + sum(9 if name in matrices else 7 for name in before), np.asarray(commands))
    return words


def _put(words: NDArray[np.int64], at: int, rows: Any) -> None:
    words[at : at + 7] = (0, 0, len(rows), rows.itemsize, rows.ctypes.data, len(rows), rows.itemsize)
