"""A NIC as controllers see it: the reports and commands of `openmrc.ctl.device.CtlDevice`."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from openmrc.ctl.denials import Denial, Denials, text
from openmrc.ctl.device import DeviceReport, EvReport, PortReport, QpReport
from openmrc.ctl.folder import folder_of, wanted
from openmrc.ctl.server import CtlServer
from openmrc.engine.paths import paths
from openmrc.engine.state.queue_pairs import working_ports
from openmrc.engine.state.states import EvEvent, EvState, QpState
from openmrc.engine.state.tables import EventKind
from openmrc.errors import BusyError, CallError, InvalidArgumentError
from openmrc.live.api.attributes import PeerAddress
from openmrc.live.datapath.datapath_tables import EventRecord
from openmrc.live.datapath.link_state import Fault
from openmrc.live.host.addresses import host_of
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.live.objects import report
from openmrc.telemetry.event_log import TelemetryEvent
from openmrc.telemetry.snapshots import EndpointSnapshot
from openmrc.live.objects.nic_requests import NicRequests
from openmrc.live.objects.profiled import NicProfiles
from openmrc.version import __version__

if TYPE_CHECKING:
    from openmrc.live.objects.nic import Nic

_WIDEST_EV = (1 << 32) - 1


class NicControl:
    """What controllers may see and change of one NIC. Its socket, if one was asked for, lives as long as the NIC."""

    def __init__(self, nic: Nic, runtime: EndpointRuntime, asked: str | None) -> None:
        """Open the socket if `asked` or the environment says so; ConfigError: its folder cannot be used."""
        self._nic = nic
        self._runtime = runtime
        self._opened_at = time.time()
        self._denials = Denials()
        self._lock = threading.Lock()  # of the denials
        self.profiles = NicProfiles(nic, runtime)
        self.requests = NicRequests(nic, runtime)
        self.server = CtlServer(self, folder_of(asked), self.tick) if wanted(asked) != "off" else None

    def close(self) -> None:
        """Close the socket."""
        self.profiles.events.close()
        if self.server is not None:
            self.server.close()

    # Reports

    def device(self) -> DeviceReport:
        """Return identity and limits."""
        known = self._nic.device
        return DeviceReport(
            endpoint=self.server.name if self.server is not None else "",
            pid=os.getpid(),
            command=" ".join([Path(sys.argv[0]).name, *sys.argv[1:]])[:200],
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
        """Return every port."""
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
        """Return the connected queue pairs with their EVs."""
        return [self._queue_pair(row, peer) for row, peer in self._connected()]

    def snapshot(self, with_evs: bool) -> EndpointSnapshot:
        """Return what telemetry publishes."""
        assert self._nic.telemetry is not None
        return self._nic.telemetry.snapshot(with_evs)

    def events(self, since: int, most: int) -> list[TelemetryEvent]:
        """Return lines of the event log after a number."""
        assert self._nic.telemetry is not None
        return self._nic.telemetry.log.since(since, most)

    def _queue_pair(self, row: int, peer: PeerAddress) -> QpReport:
        number = int(self._runtime.engine.qps[row].peer)
        return QpReport(
            qpn=self._nic.qpn(row),
            peer=[host_of(plane) for plane in peer.planes],
            state=self._nic.qp_state(row).name,
            evs=[
                EvReport(
                    port=ev.plane + 1,
                    ev=ev.ev,
                    state=ev.state.name,
                    active=ev.active,
                    path=self._nic.peers.path(number, ev.plane, ev.ev),
                    sent=ev.sent,
                    acked=ev.acked,
                    lost=ev.lost,
                    marked=ev.marked,
                    trimmed=ev.trimmed,
                    probes=ev.probes,
                )
                for ev in report.ev_states(self._runtime, row)
            ],
        )

    def _connected(self) -> Iterator[tuple[int, PeerAddress]]:
        for row in self._nic.qp_rows():
            if self._nic.qp_state(row) not in (QpState.RESET, QpState.INIT):
                peer = self._nic.peers.address(int(self._runtime.engine.qps[row].peer))
                if peer is not None:
                    yield row, peer

    # Commands

    def set_port(self, port: int, enabled: bool) -> None:
        """Enable or disable a port."""
        if not 1 <= port <= len(self._runtime.sockets.addresses):
            raise InvalidArgumentError(f"port: {port} is not in 1..{len(self._runtime.sockets.addresses)}")
        self._nic.set_plane(port - 1, enabled)

    def deny(self, denials: Sequence[Denial], epoch: int | None, lease: float) -> int:
        """Deny EVs in order, up to the first refused one (`done`); return the epoch."""
        with self._lock:
            epoch = self._denials.check(epoch, lease)
            for index, denial in enumerate(denials):
                self._check_denial(denial, index)
            self._denials.check_room(denials)
            self._denials.epoch = epoch
            for index, denial in enumerate(denials):
                try:
                    self._apply(denial)
                except CallError as error:
                    error.done = index
                    raise
                self._denials.add(denial, time.monotonic() + lease)
        return epoch

    def renew(self, epoch: int | None, lease: float) -> int:
        """Extend all denials."""
        with self._lock:
            self._denials.epoch = self._denials.check(epoch, lease)
            return self._denials.extend(time.monotonic() + lease)

    def lift(self, denials: Sequence[Denial] | None, epoch: int | None) -> int:
        """Lift denials."""
        with self._lock:
            self._denials.epoch = self._denials.check(epoch)
            gone = self._denials.remove(denials)
            self._allow(gone)
        return len(gone)

    def denials(self) -> tuple[int, list[tuple[Denial, float]]]:
        """Return the epoch, and each denial with the seconds left."""
        with self._lock:
            return self._denials.epoch, self._denials.left(time.monotonic())

    def tick(self) -> None:
        """Lift what nobody renewed."""
        with self._lock:
            over = self._denials.lapsed(time.monotonic())
            if over:
                self._allow(over)

    def on_event(self, record: EventRecord) -> bool:
        """Take note of an event of the engine; return whether it is for controllers only."""
        if record.kind == EventKind.ENDPOINT_RESPONSE:
            self.requests.on_response(record)
            return True
        if record.kind == EventKind.EV_STATE:
            self.profiles.on_ev_state(record)
        return False

    def on_events_taken(self) -> None:
        """Count the events of EVs that the engine's ring had no room for."""
        self.profiles.count_lost_events()

    def on_connected(self, row: int) -> None:
        """Give a queue pair that is now in RTR what its profiles say, and deny what is denied."""
        self.profiles.apply(row)
        with self._lock:
            if len(self._denials) == 0:
                return
            peer = self._nic.peers.address(int(self._runtime.engine.qps[row].peer))
            with self._runtime.locked() as now:
                for index, plane, ev in self._evs_of(row):
                    if peer is not None and self._denials.covers(plane + 1, ev, host_of(peer.planes[plane])):
                        paths.transition(self._runtime.engine, now, index, EvEvent.DENY)

    # Internals

    def _check_denial(self, denial: Denial, index: int) -> None:
        count = len(self._runtime.sockets.addresses)
        if not 1 <= denial.port <= count:
            raise InvalidArgumentError(f"denials[{index}].port: {denial.port} is not in 1..{count}")
        if not 0 <= denial.ev <= _WIDEST_EV:
            raise InvalidArgumentError(f"denials[{index}].ev: {denial.ev} does not fit 32 bits")

    def _apply(self, denial: Denial) -> None:
        """Deny an EV of all queue pairs that it concerns; EBUSY, and nothing is changed, if one would keep no path."""
        with self._runtime.locked() as now:
            found = list(self._named((denial,)))
            for row, index in found:
                self._check_a_path_remains(row, index, denial)
            for _, index in found:
                paths.transition(self._runtime.engine, now, index, EvEvent.DENY)

    def _allow(self, denials: Sequence[Denial]) -> None:
        """Use EVs again that no other denial covers."""
        with self._runtime.locked() as now:
            for row, index in list(self._named(denials)):
                ev = self._runtime.engine.evs[index]
                peer = self._nic.peers.address(int(self._runtime.engine.qps[row].peer))
                is_denied = peer is not None and self._denials.covers(
                    int(ev.port) + 1, int(ev.value), host_of(peer.planes[int(ev.port)])
                )
                if ev.state == EvState.DENIED and not is_denied:
                    paths.transition(self._runtime.engine, now, index, EvEvent.ALLOW)

    def _named(self, denials: Iterable[Denial]) -> Iterator[tuple[int, int]]:
        """Yield (queue pair, EV) rows that denials name."""
        known = set(denials)
        for row, peer in self._connected():
            for index, plane, ev in self._evs_of(row):
                names = (Denial(port=plane + 1, ev=ev, peer=who) for who in ("", host_of(peer.planes[plane])))
                if any(name in known for name in names):
                    yield row, index

    def _evs_of(self, row: int) -> Iterator[tuple[int, int, int]]:
        """Yield (row, plane, value) of a queue pair's EVs."""
        qp, evs = self._runtime.engine.qps[row], self._runtime.engine.evs
        for index in range(int(qp.ev_base), int(qp.ev_base) + int(qp.ev_count)):
            yield index, int(evs[index].port), int(evs[index].value)

    def _check_a_path_remains(self, row: int, denied: int, denial: Denial) -> None:
        engine = self._runtime.engine
        working = int(working_ports(engine, row))
        left = [
            index
            for index, plane, _ in self._evs_of(row)
            if index != denied and working >> plane & 1 and engine.evs[index].state != EvState.DENIED
        ]
        good = [index for index in left if engine.evs[index].state <= EvState.SKIP]
        if not left or (not good and engine.evs[denied].state <= EvState.SKIP):
            raise BusyError(f"{text(denial)}: queue pair {self._nic.qpn(row):#x} would keep no path to its peer")
