"""The doors of the engine, callable interpreted or compiled, so that one test can run both and compare."""

from __future__ import annotations

from enum import IntEnum

from openmrc.core.jit import entry
from openmrc.core.rows import Table
from openmrc.engine import endpoint as doors
from openmrc.engine.state.tables import Engine, WriteRequest


class Door(IntEnum):
    RECEIVE = 0
    NEXT_PACKET = 1
    EXPIRE = 2
    POST_WRITE = 3
    SET_PORT = 4


@entry
def open_door(
    engine: Engine, write: Table[WriteRequest], door: int, now: int, subject: int, packet: int, ports: int
) -> int:
    """Call one door; what a door does not need is 0."""
    if door == Door.RECEIVE:
        doors.receive(engine, now, subject, packet)
    elif door == Door.NEXT_PACKET:
        return doors.next_packet(engine, now, subject, ports, packet)
    elif door == Door.EXPIRE:
        doors.expire(engine, now, subject)
    elif door == Door.POST_WRITE:
        return doors.post_write(engine, now, subject, write[0])
    else:
        doors.set_port(engine, now, subject, packet, ports)
    return 0
