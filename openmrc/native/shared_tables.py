"""Endpoints of programs that run through the native library, read from the tables that they publish.

With `MRC_METRICS` or `MRC_CTL` such a program lays its tables into a memory file and leaves a lead to it in the folder
of controllers, `PID-NUMBER.tables`. They are mapped read-only through /proc, which lets in the same user and root. A
lead whose process has gone is removed; tables of another release are left alone, with a line that says so.
"""

import logging
import mmap
import os
import time
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from openmrc.core.rows import CACHE_LINE, column
from openmrc.engine.state.machines import QpState
from openmrc.engine.state.tables import NONE, Engine
from openmrc.errors import PeerError
from openmrc.live.attributes import PeerAddress
from openmrc.live.ctl import table_readings
from openmrc.live.datapath.handles import HANDLE_BYTES
from openmrc.live.datapath.rows import DataPath
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.live.host.sockets import MAX_PLANES
from openmrc.native.description import tables, tables_digest
from openmrc.telemetry.snapshots import EndpointSnapshot, TransportTotals
from openmrc.telemetry.totals import FIELDS
from openmrc.units import PS_PER_NS, PS_PER_S
from openmrc.version import __version__

log = logging.getLogger(__name__)
_ENGINE, _DATAPATH = "engine_", "datapath_"
_SAME_MEMORY = {"datapath_matrix": "engine_packets"}  # the codec's view of packets
_V4, _V4_AT, _V6_AT = 2, 4, 8  # AF_INET; where a sockaddr has its address
_MOST_LEAD = 1 << 14  # bytes


class TablesLead(msgspec.Struct, kw_only=True):
    """What a process says of its tables."""

    layout: str
    pid: int
    descriptor: int
    token: int
    counts_at: int  # byte of the mapping
    opened_at: int  # s since 1970
    command: str
    planes: list[str]


class PublishedCounts(NamedTuple):
    """`struct published_counts`."""

    errors: int
    downs: list[int]
    ended: list[int]


def snapshots(leads: list[Path], with_evs: bool) -> list[EndpointSnapshot]:
    """Return a snapshot of each endpoint that its lead leads to; others are removed, or logged."""
    found = []
    for path in leads:
        try:
            found.append(_read(path, with_evs))
        except FileNotFoundError:
            path.unlink(missing_ok=True)  # the process has gone
        except (OSError, ValueError, msgspec.MsgspecError, PeerError) as error:
            log.warning("mrc: %s: %s", path.name, error)
    return found


def _read(path: Path, with_evs: bool) -> EndpointSnapshot:
    with path.open("rb") as file:
        lead = msgspec.json.decode(file.read(_MOST_LEAD), type=TablesLead)
    if lead.layout != tables_digest() or not 1 <= len(lead.planes) <= MAX_PLANES:
        raise PeerError(f"process {lead.pid} has tables of another release; use its own mrc")
    descriptor = os.open(f"/proc/{lead.pid}/fd/{lead.descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        memory = mmap.mmap(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    finally:
        os.close(descriptor)
    counts = _counts(memory, lead, path)
    runtime = _runtime(memory, lead)
    engine = runtime.engine
    states = column(engine.qps, "state")
    rows = [int(row) for row in np.flatnonzero(states != QpState.RESET)]
    found = table_readings.snapshot(_SharedPeers(runtime), runtime, rows, counts.downs, with_evs)
    running = (sum(int(getattr(engine.qps[row], name)) for row in rows) for name in FIELDS)
    totals = dict(zip(FIELDS, (now + ended for now, ended in zip(running, counts.ended, strict=True)), strict=True))
    return msgspec.structs.replace(
        found,
        device=f"mrc_{lead.planes[0].replace(':', '_')}",
        pid=lead.pid,
        uptime=max(time.time() - lead.opened_at, 0.0),
        release=__version__,
        command=lead.command,
        totals=TransportTotals(**totals),
        queue_pair_errors=counts.errors,
    )


def _counts(memory: mmap.mmap, lead: TablesLead, path: Path) -> PublishedCounts:
    words = np.frombuffer(memory, np.int64, 2 + MAX_PLANES + len(FIELDS), lead.counts_at).tolist()
    if words[0] != lead.token:
        raise FileNotFoundError(path)  # another process has this number now
    planes = len(lead.planes)
    return PublishedCounts(words[1], words[2 : 2 + planes], words[2 + MAX_PLANES :])


def _runtime(memory: mmap.mmap, lead: TablesLead) -> EndpointRuntime:
    """Return what readings need of a runtime: the tables where C laid them (`native/src/endpoint/tables.c`)."""
    found: dict[str, Any] = {}
    at = 2 * HANDLE_BYTES
    for name, rows in tables(len(lead.planes)).items():
        if name in _SAME_MEMORY:
            found[name] = rows
            continue
        found[name] = np.frombuffer(memory, rows.dtype, rows.size, at).reshape(rows.shape)
        at += -(-rows.nbytes // CACHE_LINE) * CACHE_LINE
    engine = Engine(*(found[_ENGINE + name] for name in Engine._fields))
    datapath = DataPath(*(found[_DATAPATH + name] for name in DataPath._fields))
    nic = datapath.nic[0]
    view = SimpleNamespace(
        engine=engine,
        datapath=datapath,
        nic=nic,
        sockets=SimpleNamespace(addresses=lead.planes),
        now=lambda: time.monotonic_ns() * PS_PER_NS - int(nic.epoch) * PS_PER_S,
    )
    return cast("EndpointRuntime", view)


class _SharedPeers:
    """Peers, by the addresses that packets to them get."""

    def __init__(self, runtime: EndpointRuntime) -> None:
        self._planes = int(runtime.nic.planes)
        names: NDArray[np.int64] = runtime.datapath.names
        self._names = names.view(np.uint8).reshape(-1, names.shape[1] * names.itemsize)
        self._each = int(runtime.nic.evs)

    def address(self, peer: int) -> PeerAddress | None:
        if peer == NONE:
            return None
        rows = ((peer * self._planes + plane) * self._each for plane in range(self._planes))
        return PeerAddress(planes=tuple(_text(self._names[row]) for row in rows))

    def path(self, peer: int, plane: int, ev: int) -> str:
        address = self.address(peer)
        return address.planes[plane] if address is not None else ""


def _text(name: NDArray[np.uint8]) -> str:
    first, length = (_V4_AT, 4) if name[0] == _V4 else (_V6_AT, 16)
    return str(ip_address(name[first : first + length].tobytes()))
