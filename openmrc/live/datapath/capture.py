"""Copies packets aside for a capture file; the file itself is written by Python, out of the way."""

from __future__ import annotations

from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine.tables import Engine
from openmrc.live.datapath.libc import copy
from openmrc.live.datapath.tables import FRAME, OUT, DataPath

NO_SLOT = -1


@rare_kernel
def outgoing(engine: Engine, datapath: DataPath, begin: int, headers: int, tail: int, port: int) -> None:
    """Copy a packet that is about to leave: headers, payload, pad and ICRC."""
    out = engine.packets[OUT]
    length = headers + out.payload_length + tail
    at = _claim(datapath, out.port, out.destination, port, datapath.traffic[out.traffic_class, 0], length, 1)
    if at == NO_SLOT:
        return
    memory = datapath.captured_bytes.ctypes.data + at
    copy(memory, datapath.headers.ctypes.data + begin, headers)
    if out.payload_length > 0:
        copy(memory + headers, out.payload, out.payload_length)
    copy(memory + headers + out.payload_length, datapath.headers.ctypes.data + begin + headers, tail)


@rare_kernel
def arrived(datapath: DataPath, train: int, begin: int, length: int) -> None:
    """Copy a packet that arrived, as the engine will see it."""
    row = datapath.trains[train]
    at = _claim(datapath, row.plane, row.peer, row.port, row.tos, length, 0)
    if at != NO_SLOT:
        copy(datapath.captured_bytes.ctypes.data + at, datapath.staging.ctypes.data + begin, length)


@kernel
def _claim(datapath: DataPath, plane: int, peer: int, port: int, tos: int, length: int, is_outgoing: int) -> int:
    """Return where the bytes go, or NO_SLOT: the file does not keep up, or the packet is too long."""
    nic = datapath.nic[0]
    if nic.capture_tail - nic.capture_head >= len(datapath.captured) or length > FRAME:
        nic.capture_lost += 1
        return NO_SLOT
    slot = nic.capture_tail % len(datapath.captured)
    nic.capture_tail += 1
    row = datapath.captured[slot]
    row.at = nic.now
    row.plane = plane
    row.outgoing = is_outgoing
    row.peer = peer
    row.port = port
    row.tos = tos
    row.length = length
    return slot * FRAME
