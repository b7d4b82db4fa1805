"""The software NIC behind the verbs objects: registered memory, connections, posted requests."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from openmrc.base.faults import Schedule
from openmrc.core.rows import column
from openmrc.ctl.profiles.store import ProfileIds
from openmrc.engine.responder import regions
from openmrc.engine.state.machines import QpEvent, QpState
from openmrc.engine.state.params import Settings
from openmrc.engine.state.queue_pairs import INFINITE_RETRIES
from openmrc.engine.state.tables import NONE, CompletionKind
from openmrc.errors import BusyError, CallError, InvalidArgumentError
from openmrc.live.attributes import (
    PROTOCOL_V1,
    ContextAttr,
    DeviceAttr,
    DeviceCap,
    PeerAddress,
    QpAttr,
    QpCap,
)
from openmrc.live.checks import check_attributes
from openmrc.live.ctl import report
from openmrc.live.ctl.controlled import NicControl
from openmrc.live.ctl.observed import NicTelemetry
from openmrc.live.ctl.queue_pair_rows import QueuePairRows
from openmrc.live.datapath.loop import attendance, operations
from openmrc.live.datapath.loop.link_state import Fault, set_fault
from openmrc.live.datapath.rows import RECORDS
from openmrc.live.errors import NoRoomError
from openmrc.live.host.control import ControlThread, ending, uninterrupted
from openmrc.live.host.impairments import Impairments
from openmrc.live.host.link_watch import LinkWatch
from openmrc.live.host.numbers import QueuePairNumbers, RegionKeys
from openmrc.live.host.peers import Peers
from openmrc.live.host.recording import OpenCapture
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.live.host.sockets import CarrierOf, Sockets
from openmrc.live.host.tuning import settings_for
from openmrc.live.objects.memory import MemoryRegion, ProtectionDomain
from openmrc.live.objects.nic_completions import LARGEST_CQ, NicCompletions
from openmrc.live.objects.posting import Posting
from openmrc.units import NEVER, PS_PER_S

if TYPE_CHECKING:
    from openmrc.live.objects.context import Context
    from openmrc.live.objects.queue_pair import QueuePair

_SEND, _RECEIVE = int(CompletionKind.SEND), int(CompletionKind.RECEIVE)
_MOST_DESCRIBED = 4  # queue pairs in the text of an error
_MONTH_SECONDS = 30 * 86_400


class Nic:
    """One software NIC: the runtime and all objects created on it."""

    def __init__(
        self,
        context: Context,
        planes: tuple[str, ...],
        attr: ContextAttr,
        settings: Settings | None,
        schedule: Schedule | None,
        capture: str | Path | None,
        carrier_of: CarrierOf | None,
    ) -> None:
        check_attributes(attr)
        self._context = weakref.proxy(context)
        self._attr = attr
        self.sockets = Sockets(planes, attr)
        self._mtu = min(attr.mtu, self.sockets.mtu)
        self.recording: OpenCapture | None = None
        self.runtime = self._opened(settings, capture is not None)
        try:
            self._link_watch = LinkWatch(self.runtime)
            self.peers = Peers(self.runtime, attr.max_peers, carrier_of)
            self._impairments = Impairments(self.runtime, attr.seed)
            self.runtime.on_set_back = self._impairments.set_back
            if schedule is not None:
                self.impair(schedule)
            if capture is not None:
                self.recording = OpenCapture(capture, self.runtime)
        except BaseException:
            self.runtime.stop()
            raise
        self._regions: dict[int, MemoryRegion] = {}
        self._keys = RegionKeys(attr.max_mr)
        self._qp_numbers = QueuePairNumbers(self.runtime.engine)
        self._qps: list[QueuePair | None] = [None] * attr.max_qp
        self.rows = QueuePairRows(self.runtime, self.peers, attr.max_qp)
        self.completions = NicCompletions(self.runtime, self._error_of)
        self.posting = Posting(self.runtime, self._is_registered)
        self._queued = column(self.runtime.datapath.queues, "posted")
        self.device = self._device()
        self.address = PeerAddress(
            planes=self.device.planes, source_ports=tuple(tuple(ports) for ports in self.sockets.source_ports)
        )
        self.telemetry = NicTelemetry(self.rows, self.runtime)
        self.controlled = NicControl(self.rows, self.runtime, self.telemetry, self.device, self.set_plane)

    def _opened(self, settings: Settings | None, captures: bool) -> EndpointRuntime:
        """Return the runtime on our sockets, which are closed if there is none."""
        try:
            tuning = settings or settings_for(self.sockets, self._mtu)
            return EndpointRuntime(self.sockets, self._attr, tuning, captures)
        except BaseException:
            self.sockets.close()
            raise

    # Lifetime

    @property
    def is_closed(self) -> bool:
        """Whether the NIC is unusable: closed, or its thread died."""
        return self.runtime.is_closed

    def start(self) -> None:
        """Start the threads."""
        self.runtime.start(self._run_python_work)
        _open_nics.add(self)
        self.telemetry.publish()
        self.controlled.listen(self._attr.ctl)

    def close(self) -> None:
        """Stop everything, and wake waiting calls; an interrupted call still closes completely."""
        self.control.end(self._close)
        self.control.stop()

    def _close(self) -> None:
        self.controlled.close()
        self.telemetry.close()
        _open_nics.discard(self)
        if self.runtime.is_stopped:
            return
        self.runtime.stop()
        self._link_watch.close()
        if self.recording is not None:
            self.recording.close()
        self._wake_all()

    def abandon(self) -> None:
        """Become closed in a forked child, without using the parent's mutexes and threads."""
        self.posting.lock = threading.RLock()
        self.completions.abandon()
        for qp in self._qps:
            if qp is not None:
                qp.abandon()
        self.runtime.abandon()

    @property
    def control(self) -> ControlThread:
        """The thread of the methods that are `uninterrupted`."""
        return self.runtime.control

    def progress(self) -> str:
        """Return the progress of each connected queue pair, for errors."""
        if self.runtime.error is not None:
            return f"the endpoint's thread has died: {self.runtime.error!r}"
        connected = [qp for qp in self._qps if qp is not None and self.rows.state(qp.row) != QpState.RESET]
        connected.sort(key=lambda qp: qp.outstanding() == 0)  # those that wait for something first
        lines = [self.describe(qp) for qp in connected[:_MOST_DESCRIBED]]
        if len(connected) > len(lines):
            lines.append(f"and {len(connected) - len(lines)} more queue pairs")
        if wrong := sum(int(plane.bad_icrc) for plane in self.runtime.datapath.planes):
            lines.append(f"{wrong} packets had a wrong ICRC, as has every IPv4 packet whose identification is not 0")
        return "; ".join(lines) or "no queue pair is connected"

    @uninterrupted
    def impair(self, schedule: Schedule, replace_all: bool = False) -> None:
        """Begin a schedule of impairments now, beside those that there are or instead of them."""
        with self.runtime.locked() as now:
            self._impairments.begin(schedule, now, replace_all)

    @uninterrupted
    def set_plane(self, plane: int, up: bool) -> None:
        """Set one local plane up or down; it is up only while its interface works too."""
        if not 0 <= plane < len(self.sockets.addresses):
            raise InvalidArgumentError(f"plane: {plane} is not in 0..{len(self.sockets.addresses) - 1}")
        with self.runtime.locked() as now:
            self.runtime.nic.now = now
            set_fault(self.runtime.engine, self.runtime.datapath, plane, int(Fault.DISABLED), not up)

    # Memory

    @uninterrupted
    def register(self, region: MemoryRegion) -> None:
        """Register a region with the engine and set its key."""
        self.runtime.check_open()
        with self.runtime.locked():
            key = self._keys.draw()
            if key == 0:
                raise NoRoomError(f"max_mr: all {self._attr.max_mr} memory regions are in use")
            regions.register(
                self.runtime.engine, 0, key, region.addr, region.length, region.access, region.pd.number, region.addr
            )
            self._regions[key] = region
            region.key = key

    @ending
    def deregister(self, region: MemoryRegion) -> None:
        """Deregister a region from the engine; EBUSY while posted writes read from it."""
        if self.runtime.is_abandoned:
            region.key = 0
            return
        with self.posting.lock:
            if not self.is_closed and any(self.posting.reads_from(qp, region) for qp in self._qps if qp is not None):
                raise BusyError(f"memory region {region.key:#x}: posted writes still read from it")
            with self.runtime.locked():
                regions.deregister(self.runtime.engine, 0, region.key)
                if self._regions.pop(region.key, None) is not None:
                    self._keys.give_back(region.key)
                region.key = 0

    def check_domain_is_free(self, pd: ProtectionDomain) -> None:
        """Raise EBUSY while regions or queue pairs are in the domain."""
        if any(region.pd is pd for region in self._regions.values()):
            raise BusyError("protection domain: memory regions are in it")
        if any(qp is not None and qp.pd is pd for qp in self._qps):
            raise BusyError("protection domain: queue pairs are in it")

    # Queue pairs

    @uninterrupted
    def add_qp(self, qp: QueuePair) -> None:
        """Assign a row to a new queue pair."""
        self.runtime.check_open()
        attr, init = self._attr, qp.init
        for name, limit in (("max_send_wr", attr.max_send_wr), ("max_recv_wr", attr.max_recv_wr)):
            if not 1 <= getattr(init, name) <= limit:
                raise InvalidArgumentError(f"{name}: {getattr(init, name)} is not in 1..{limit}")
        if not init.protocol_version & PROTOCOL_V1:
            raise InvalidArgumentError(
                f"protocol_version: {init.protocol_version:#b} lacks version 1 ({PROTOCOL_V1:#b})"
            )
        row = self.rows.take()
        if row is None:
            raise NoRoomError(f"max_qp: all {attr.max_qp} queue pairs are in use")
        for kind, cq in ((_SEND, init.send_cq), (_RECEIVE, init.recv_cq)):
            self.runtime.datapath.cq_of[2 * row + kind, 0] = cq.row
        self._qps[row] = qp
        qp.row = row

    @ending
    def remove_qp(self, qp: QueuePair) -> None:
        """Remove a queue pair; its published completions stay in their queues."""
        if self.is_closed:
            self._forget(qp)
            return
        self._disconnect(qp)
        with self.runtime.locked():
            self._forget(qp)
            self.runtime.datapath.cq_of[2 * qp.row : 2 * qp.row + 2, 0] = NONE
        self.rows.give_back(qp.row)  # only now: leaving `locked` has published the row's last completions

    def _forget(self, qp: QueuePair) -> None:
        self._qps[qp.row] = None
        self.rows.leave(qp.row)

    @uninterrupted
    def set_attributes(self, qp: QueuePair, attr: QpAttr) -> None:
        """Change attributes, without a transition."""
        operations.change(self.runtime.at, qp.row, operations.request(**self._attributes(qp, attr)))

    @uninterrupted
    def move(self, qp: QueuePair, attr: QpAttr, event: QpEvent) -> None:
        """Change attributes and state in one call."""
        self.runtime.check_open()
        if event == QpEvent.TO_RESET:
            self._disconnect(qp)
            return
        attributes = self._attributes(qp, attr)
        if event == QpEvent.TO_INIT:
            self.controlled.profiles.bind(qp.row, ProfileIds(attr.ev_profile_id or 0, attr.cc_profile_id or 0))
        if event == QpEvent.TO_RTR and attr.remote is not None:
            attributes["peer"] = peer = self._take_peer(attr.remote)
            self._check_profiles(qp, peer)
            attributes["expected_psn"] = attr.rq_psn or 0
        if event == QpEvent.TO_RTS and self.rows.state(qp.row) == QpState.RTR:
            attributes["first_psn"] = attr.sq_psn or 0
        if operations.move(self.runtime.at, qp.row, int(event), operations.request(**attributes)) == 0:
            raise InvalidArgumentError(f"state: no transition {event.name} from {self.rows.state(qp.row).name}")
        if event == QpEvent.TO_RTR:
            self.controlled.on_connected(qp.row)
        self.runtime.iterate()

    def describe(self, qp: QueuePair) -> str:
        """Return one line about a queue pair."""
        return report.describe(self.runtime, qp.row, self.rows.peer(qp.row))

    # Internals

    def _device(self) -> DeviceAttr:
        attr = self._attr
        same = ("max_wimm", "max_mpr", "max_qp", "max_mr", "max_peers", "max_send_wr", "max_recv_wr", "evs_per_plane")
        return DeviceAttr(
            **{name: getattr(attr, name) for name in same},
            protocol_version=PROTOCOL_V1,
            max_wimm_dest=attr.max_wimm,
            mpr_resolution=1,
            max_qp_hint=1 << 16,
            cap=DeviceCap.TRIM_NACK | DeviceCap.DYNAMIC_MPR,
            max_cq=len(self.runtime.datapath.cqs),
            max_cqe=LARGEST_CQ,
            max_mtu=self._mtu,
            planes=tuple(str(address) for address in self.sockets.addresses),
            ev_format=attr.ev_format,
            segmentation=self.sockets.segmentation,
        )

    def _run_python_work(self) -> None:
        """Do work that needs Python: report events, change impairments, write captured packets, wake waiting calls."""
        while True:
            count = attendance.take_events(self.runtime.at)
            for index in range(count):
                record = self.runtime.datapath.event_records[index]
                if self.controlled.on_event(record):
                    continue
                self.telemetry.on_event(record)
                self._context.report(report.event(record, self._number_of(record.qp)))
            if count < RECORDS:
                break
        self.controlled.profiles.count_lost_events()
        if self.runtime.nic.overruns:
            self._report_overruns()
        if self.runtime.nic.links_changed:
            self.runtime.nic.links_changed = False
            self._link_watch.refresh()
        if self.runtime.nic.step_at <= self.runtime.now():
            with self.runtime.locked() as now:
                self._impairments.advance(now)
        if self.recording is not None:
            self.recording.drain()
        if self.runtime.error is not None:
            self._wake_all()

    def _report_overruns(self) -> None:
        for event in self.completions.fail_overrun(self._qps):
            self._context.report(event)
            if event.cq is not None:
                event.cq.wake()

    def _wake_all(self) -> None:
        self.completions.wake_all()
        self._context.wake()

    def _attributes(self, qp: QueuePair, attr: QpAttr) -> dict[str, int | None]:
        """Return the engine's attributes of a queue pair; None means unchanged."""
        cap = attr.cap or QpCap(0)
        retries = attr.exponential_count
        same = ("dest_qpn", "path_mtu", "max_wimm", "max_wimm_dest", "mpr_dest", "linear_count")
        return {
            **{name: getattr(attr, name) for name in same},
            "pd": qp.pd.number,
            "sq_signal_all": int(qp.init.sq_sig_all),
            "trim_nack_dest": int(not cap & QpCap.TRIM_NACK_DEST_UNSUPPORTED),
            "dynamic_mpr": int(bool(cap & QpCap.DYNAMIC_MPR)),
            "access": attr.access_flags,
            "mpr": attr.mpr if attr.mpr is not None else self._attr.max_mpr,
            "timeout": None if attr.timeout is None else 1_024_000 << attr.timeout,
            "exponential_count": None if retries is None else min(retries, INFINITE_RETRIES),
            "user_timeout": None if attr.user_timeout is None else _picoseconds(attr.user_timeout),
        }

    def _take_peer(self, address: PeerAddress) -> int:
        """Return the index of a remote NIC; for a new one, also find the interfaces that reach it."""
        rows = self.peers.prepare(address)
        if self.peers.is_new(rows):
            for plane, destination in enumerate(self.peers.destinations(rows)):
                self._link_watch.learn(plane, destination)
        with self.runtime.locked():
            peer = self.peers.take(rows)
        if self.recording is not None:
            self.recording.add_peer(peer, address)
        return peer

    def _check_profiles(self, qp: QueuePair, peer: int) -> None:
        """Raise EINVAL or EBUSY, and forget the peer, if the queue pair's profiles do not do for it."""
        try:
            self.controlled.profiles.check(qp.row, peer)
        except CallError:
            with self.runtime.locked():
                self.peers.give_back(peer)
            raise

    def _disconnect(self, qp: QueuePair) -> None:
        with self.posting.lock:
            self.posting.settle()  # requests posted before are dropped with the others
            peer = int(self.runtime.engine.qps[qp.row].peer)
            self.telemetry.before_end(qp.row)
            if peer != NONE:
                self.controlled.on_disconnecting(qp.row)
            operations.move(self.runtime.at, qp.row, int(QpEvent.TO_RESET), operations.request())
            self.controlled.profiles.unbind(qp.row)
            self._qp_numbers.renew(qp.row)
            self._queued[2 * qp.row : 2 * qp.row + 2] = 0
            if peer != NONE:
                with self.runtime.locked():
                    self.peers.give_back(peer)

    def _is_registered(self, region: MemoryRegion) -> bool:
        return self._regions.get(region.key) is region

    def _number_of(self, row: int) -> int | None:
        """Return the number of the queue pair in a row; None if there is no row, or nobody's."""
        qp = self._qps[row] if row != NONE else None
        return qp.qpn if qp is not None else None

    def _error_of(self, row: int, qpn: int) -> str:
        """Return one line about a queue pair, if it still has this number."""
        qp = self._qps[row]
        return self.describe(qp) if qp is not None and self.rows.qpn(row) == qpn else ""


_open_nics: weakref.WeakSet[Nic] = weakref.WeakSet()


def _picoseconds(seconds: float) -> int:
    """Return a user timeout in the engine's unit: NEVER beyond a month, which its clock does not tell apart."""
    return round(seconds * PS_PER_S) if seconds < _MONTH_SECONDS else NEVER


def _abandon_all() -> None:
    for nic in _open_nics:
        nic.abandon()
    _open_nics.clear()


def _close_all() -> None:
    """Close what a program has left open, while its threads still run: they are gone when its objects are deleted."""
    for nic in list(_open_nics):
        nic.close()


os.register_at_fork(after_in_child=_abandon_all)
atexit.register(_close_all)
