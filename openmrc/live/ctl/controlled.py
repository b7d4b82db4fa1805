"""A NIC as controllers see it: the reports and commands of `openmrc.ctl.device.CtlDevice`."""

import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from openmrc.ctl.device import COUNTED, DeviceReport, EvReport, PortReport, QpReport
from openmrc.ctl.folder import folder_of, wanted
from openmrc.ctl.server import CtlServer
from openmrc.engine.state.tables import Event, EventKind
from openmrc.errors import ConfigError, InvalidArgumentError
from openmrc.live.attributes import DeviceAttr, PeerAddress
from openmrc.live.ctl import report
from openmrc.live.ctl.denied_evs import DeniedEvs
from openmrc.live.ctl.nic_requests import NicRequests
from openmrc.live.ctl.observed import NicTelemetry
from openmrc.live.ctl.profiled import NicProfiles
from openmrc.live.ctl.queue_pair_rows import QueuePairRows
from openmrc.live.datapath.loop.link_state import Fault
from openmrc.live.host.addresses import host_of
from openmrc.live.host.nic_file import from_environment
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.telemetry.event_log import TelemetryEvent
from openmrc.telemetry.snapshots import EndpointSnapshot
from openmrc.version import __version__

_MOST_DEPARTED = 1 << 16  # paths


class NicControl:
    """What controllers may see and change of one NIC. Its socket, if one was asked for, lives as long as the NIC."""

    def __init__(
        self,
        rows: QueuePairRows,
        runtime: EndpointRuntime,
        telemetry: NicTelemetry,
        known: DeviceAttr,
        set_plane: Callable[[int, bool], None],
    ) -> None:
        """`known` are the NIC's limits; `set_plane(plane, up)` sets one of its planes up or down."""
        self._rows = rows
        self._runtime = runtime
        self._telemetry = telemetry
        self._known = known
        self._set_plane = set_plane
        self._opened_at = time.time()
        self.profiles = NicProfiles(rows, runtime)
        self.denied = DeniedEvs(rows, runtime, self.profiles.denies)
        self.profiles.on_changed = self.denied.enforce
        self.requests = NicRequests(rows, runtime)
        self._departed: dict[tuple[tuple[str, ...], int, int], EvReport] = {}  # by peer, port and EV; oldest first
        self._departed_lock = threading.Lock()
        self.server: CtlServer | None = None  # its threads call us before it is assigned

    def listen(self, asked: str | None) -> None:
        """Open the socket if `asked` or the environment says so; ConfigError: its folder cannot be used."""
        if wanted(asked) != "off":
            self.server = CtlServer(self, folder_of(asked), self.denied.lift_lapsed)

    def close(self) -> None:
        self.profiles.events.close()
        if self.server is not None:
            self.server.close()

    # Reports

    def device(self) -> DeviceReport:
        known = self._known
        return DeviceReport(
            endpoint=self.server.name if self.server is not None else "",
            pid=os.getpid(),
            command=" ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[:200],
            host=_host(),
            release=__version__,
            opened_at=self._opened_at,
            planes=list(known.planes),
            ev_format=known.ev_format.name,
            evs_per_plane=known.evs_per_plane,
            max_qp=known.max_qp,
            max_mtu=known.max_mtu,
            port_mask=sum(1 << port for port in range(1, len(known.planes) + 1)),
        )

    def ports(self) -> list[PortReport]:
        up = int(self._runtime.engine.endpoints[0].ports_up)
        return [self._port(plane, str(address), up) for plane, address in enumerate(self._runtime.sockets.addresses)]

    def _port(self, plane: int, address: str, up: int) -> PortReport:
        faults = int(self._runtime.datapath.planes[plane].faults)
        return PortReport(
            port=plane + 1,
            address=address,
            enabled=not faults & Fault.DISABLED,
            up=bool(up >> plane & 1),
            faults=[fault.name for fault in Fault if faults & fault],
        )

    def queue_pairs(self) -> list[QpReport]:
        return [self._queue_pair(row, peer) for row, peer in self._rows.connected()]

    def snapshot(self, with_evs: bool) -> EndpointSnapshot:
        return self._telemetry.snapshot(with_evs)

    def events(self, since: int, most: int) -> list[TelemetryEvent]:
        return self._telemetry.log.since(since, most)

    def _queue_pair(self, row: int, peer: PeerAddress) -> QpReport:
        return QpReport(
            qpn=self._rows.qpn(row),
            peer=[host_of(plane) for plane in peer.planes],
            state=self._rows.state(row).name,
            evs=report.ev_reports(self._runtime, row, self._rows.peers.path),
        )

    def departed(self) -> list[QpReport]:
        with self._departed_lock:
            peers: dict[tuple[str, ...], list[EvReport]] = {}
            for (peer, _, _), ev in self._departed.items():
                peers.setdefault(peer, []).append(ev)
            return [QpReport(qpn=0, peer=list(peer), state="RESET", evs=evs) for peer, evs in peers.items()]

    def on_disconnecting(self, row: int) -> None:
        """Keep what a queue pair counted that goes to RESET, so that votes only grow."""
        peer = self._rows.peer(row)
        if peer is None or self.server is None:
            return
        report_of_it = self._queue_pair(row, peer)
        with self._departed_lock:
            for ev in report_of_it.evs:
                if ev.sent + ev.probes > 0:
                    self._keep((tuple(report_of_it.peer), ev.port, ev.ev), ev)

    def _keep(self, key: tuple[tuple[str, ...], int, int], ev: EvReport) -> None:
        before = self._departed.pop(key, None)
        total = msgspec.structs.replace(ev, state="", active=False)
        for name in COUNTED if before is not None else ():
            setattr(total, name, getattr(total, name) + getattr(before, name))
        self._departed[key] = total
        if len(self._departed) > _MOST_DEPARTED:
            del self._departed[next(iter(self._departed))]

    # Commands

    def set_port(self, port: int, enabled: bool) -> None:
        if not 1 <= port <= len(self._runtime.sockets.addresses):
            raise InvalidArgumentError(f"port: {port} is not in 1..{len(self._runtime.sockets.addresses)}")
        self._set_plane(port - 1, enabled)

    def on_event(self, record: Event) -> bool:
        """Take note of an event of the engine; return whether it is for controllers only."""
        if record.kind == EventKind.ENDPOINT_RESPONSE:
            self.requests.on_response(record)
            return True
        if record.kind == EventKind.EV_STATE:
            self.profiles.on_ev_state(record)
        return False

    def on_connected(self, row: int) -> None:
        """Give a queue pair that is now in RTR what its profiles say, and deny what is denied."""
        self.profiles.apply(row)
        self.denied.enforce(row)


def _host() -> str:
    """Return the name of the NIC in its fabric, if this process was told, else that of the machine."""
    try:
        described = from_environment()
    except ConfigError:
        described = None
    return described.name if described else socket.gethostname()
