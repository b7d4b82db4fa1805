"""Writes what the data path copied aside to a pcapng file, one interface per plane."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from openmrc.live.datapath.tables import FRAME
from openmrc.live.host.addresses import PlaneAddress
from openmrc.live.host.peers import Peers
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.units import PS_PER_NS
from openmrc.wire.ip import datagram
from openmrc.wire.pcapng import PcapngWriter


class Recording:
    """An open capture file."""

    def __init__(self, path: str | Path, runtime: EndpointRuntime, peers: Peers) -> None:
        """Create the file; what it held before is gone."""
        self._runtime = runtime
        self._peers = peers
        self._file = open(path, "wb")  # noqa: SIM115  # lives as long as the NIC
        names = [f"plane {plane} {address}" for plane, address in enumerate(runtime.sockets.addresses)]
        self._writer = PcapngWriter(self._file, names)
        self._clock = time.time_ns() - time.monotonic_ns()

    def drain(self) -> None:
        """Write what has been copied since. Only one thread may call it at a time."""
        nic, tables = self._runtime.nic, self._runtime.datapath
        while nic.capture_head < nic.capture_tail:
            slot = nic.capture_head % len(tables.captured)
            self._write(slot)
            nic.capture_head += 1

    def close(self) -> None:
        """Write the rest and end the file."""
        if not self._file.closed:
            self.drain()
            self._file.close()

    def _write(self, slot: int) -> None:
        row = self._runtime.datapath.captured[slot]
        remote = self._peers.address(row.peer)
        if remote is None:
            return
        here = self._runtime.sockets.addresses[row.plane]
        there = PlaneAddress.parse(remote.planes[row.plane])
        source, destination = (here, there) if row.outgoing else (there, here)
        payload = np.asarray(self._runtime.datapath.captured_bytes)[slot * FRAME : slot * FRAME + row.length].tobytes()
        frame = datagram(source.ip, destination.ip, row.port, destination.port, payload, traffic_class=row.tos)
        self._writer.write(row.plane, self._clock + row.at // PS_PER_NS, frame)
