"""Write the data path's captured packets to a pcapng file, one interface per plane."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from openmrc.errors import ConfigError
from openmrc.live.attributes import CaptureReport, PeerAddress
from openmrc.live.datapath.packets.capture import RING, captured, note_written
from openmrc.live.host.addresses import PlaneAddress
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.wire.ip import datagram
from openmrc.wire.pcapng import PcapngWriter

_LENGTH_AT = 4  # offset of the length in a block


class OpenCapture:
    def __init__(self, path: str | Path, runtime: EndpointRuntime) -> None:
        """Create or truncate the file; ConfigError if that fails."""
        self.path = Path(path)
        self._runtime = runtime
        self._ring = memoryview(np.asarray(runtime.datapath.captured).data)
        self._lock = threading.Lock()
        self._error: str | None = None
        names = [f"plane {plane} {address}" for plane, address in enumerate(runtime.sockets.addresses)]
        try:
            self._file = open(self.path, "wb", buffering=0)  # noqa: SIM115  # lives as long as the NIC
            PcapngWriter(self._file, names)
        except OSError as error:
            raise ConfigError(f"capture: {self.path}: {error.strerror}") from error
        self._preamble = self._file.tell()  # bytes before the first packet

    def add_peer(self, peer: int, remote: PeerAddress) -> None:
        """Prepare the IP and UDP headers of packets from and to a peer. Call inside the runtime."""
        tables, sockets = self._runtime.datapath, self._runtime.sockets
        for plane, text in enumerate(remote.planes):
            here, there = sockets.addresses[plane], PlaneAddress.parse(text)
            flow = 2 * (peer * len(sockets.addresses) + plane)
            for row, source, target in ((flow, here, there), (flow + 1, there, here)):
                headers = np.frombuffer(datagram(source.ip, target.ip, 0, target.port, b""), np.uint8)
                tables.frame_headers[row, : len(headers)] = headers

    def drain(self) -> None:
        """Write the packets captured since the last call; if the file fails, only the capture ends."""
        ring = self._runtime.datapath.capture[0]
        with self._lock:
            if self._file.closed or ring.closed:
                return
            at, end = ring.head, captured(self._runtime.at)
            try:
                while at < end:
                    begin = at % RING
                    at += self._file.write(self._ring[begin : min(begin + end - at, RING)])
                note_written(self._runtime.at, end)
            except OSError as error:
                ring.closed = True
                self._error = error.strerror
                self._end_at_last_block(at)

    def close(self) -> None:
        """Write the rest and close the file. Call when the event loop has ended."""
        self.drain()
        with self._lock:
            if self._file.closed:
                return
            ring = self._runtime.datapath.capture[0]
            unwritten = sum(1 for _ in self._blocks())
            ring.packets -= unwritten
            ring.lost += unwritten
            ring.head = ring.tail
            try:
                self._file.close()
            except OSError as error:
                self._error = self._error or error.strerror

    def report(self) -> CaptureReport:
        """Return how many packets are in the file, and how many are missing; final once the context is closed."""
        ring = self._runtime.datapath.capture[0]
        return CaptureReport(path=str(self.path), packets=ring.packets, lost=ring.lost, error=self._error)

    def _end_at_last_block(self, written: int) -> None:
        ring = self._runtime.datapath.capture[0]
        for end in self._blocks():
            if end > written:
                break
            ring.head = end
        with contextlib.suppress(OSError):  # a pipe cannot be truncated
            os.ftruncate(self._file.fileno(), self._preamble + ring.head)

    def _blocks(self) -> Iterator[int]:
        """Yield the end of each block in the ring."""
        at, end = self._runtime.datapath.capture[0].head, self._runtime.datapath.capture[0].tail
        while at < end:
            at += int.from_bytes(bytes(self._ring[(at + _LENGTH_AT + byte) % RING] for byte in range(4)), "little")
            yield at
