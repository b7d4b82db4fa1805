"""The NIC in software as verbs objects see it: what was registered, connected and posted is noted here.

What happens to packets is not: that is the runtime's compiled loop.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from openmrc.engine import regions
from openmrc.engine.build import column
from openmrc.engine.params import Settings
from openmrc.engine.queue_pairs import INFINITE_RETRIES
from openmrc.engine.states import QpEvent, QpState
from openmrc.engine.tables import NONE, CompletionKind, WcStatus
from openmrc.errors import BusyError, InvalidArgumentError
from openmrc.faults import Schedule
from openmrc.live.api.attributes import (
    PROTOCOL_V1,
    ContextAttr,
    DeviceAttr,
    DeviceCap,
    EvStatus,
    PeerAddress,
    PlaneCounters,
    QpAttr,
    QpCap,
    QpCounters,
    RecvWr,
    SendWr,
    WcOpcode,
    WorkCompletion,
)
from openmrc.live.api.errors import ClosedError, NoRoomError
from openmrc.live.datapath import event_loop, operations
from openmrc.live.datapath.link_state import Fault, set_fault
from openmrc.live.host.impairments import Impairments
from openmrc.live.host.link_watch import LinkWatch
from openmrc.live.host.numbers import QueuePairNumbers, RegionKeys
from openmrc.live.host.peers import Peers
from openmrc.live.host.recording import Recording
from openmrc.live.host.runtime import MAX_NOTIFIERS, EndpointRuntime
from openmrc.live.host.sockets import CarrierOf, Sockets
from openmrc.live.host.tuning import settings_for
from openmrc.live.objects import report
from openmrc.live.objects.memory import MemoryRegion, ProtectionDomain
from openmrc.live.objects.posting import Posting
from openmrc.units import PS_PER_NS, PS_PER_S

if TYPE_CHECKING:
    from openmrc.live.objects.completion import CompletionQueue
    from openmrc.live.objects.context import Context
    from openmrc.live.objects.queue_pair import QueuePair

# Looked up once: to make a member of an enumeration from its peer takes longer than the rest of a completion.
_SEND = int(CompletionKind.SEND)
_STATUS = {int(status): status for status in WcStatus}
_WRITE, _RECEIVED = WcOpcode.RDMA_WRITE, WcOpcode.RECV_RDMA_WITH_IMM
_COLLECTED = 256  # completions taken at once
_POLL_SECONDS = 0.002  # between looks at a queue that is to drain
_WAIT_SECONDS = 0.05  # in compiled code at a time: signals are handled in between


class Nic:
    """One software NIC: the runtime and everything that was made on it."""

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
        self._context = weakref.proxy(context)
        self._attr = attr
        self.sockets = Sockets(planes, attr)
        self._mtu = min(attr.mtu, self.sockets.mtu)
        try:
            tuning = settings or settings_for(self.sockets, self._mtu)
            self._runtime = EndpointRuntime(self.sockets, attr, tuning, capture is not None)
            self._link_watch = LinkWatch(self._runtime)
            self._peers = Peers(self._runtime, attr.max_peers, carrier_of)
            self._impairments = Impairments(self._runtime, attr.seed)
            self._recording = Recording(capture, self._runtime, self._peers) if capture is not None else None
            if schedule is not None:
                self.impair(schedule)
        except BaseException:
            self.sockets.close()
            raise
        self._regions: dict[int, MemoryRegion] = {}
        self._keys = RegionKeys(attr.max_mr)
        self._qp_numbers = QueuePairNumbers(self._runtime.engine)
        self._qps: list[QueuePair | None] = [None] * attr.max_qp
        self._notifiers: list[weakref.ref[CompletionQueue] | None] = [None] * MAX_NOTIFIERS
        self._posting = Posting(self._runtime, self._is_registered, self.collect)
        self._collecting = threading.Lock()
        # Fields of rows as arrays: `item` takes a tenth of the time of a row's attribute.
        self._announced = column(self._runtime.datapath.nic, "announced").item
        self._completion_head = column(self._runtime.engine.endpoints, "completion_head").item
        self._qpn = column(self._runtime.engine.qps, "qpn").item
        self._rows = np.zeros((_COLLECTED, 8), np.int64)
        self._events = np.zeros((_COLLECTED, 6), np.int64)
        self.device = self._device()
        self.address = PeerAddress(
            planes=self.device.planes, source_ports=tuple(tuple(ports) for ports in self.sockets.source_ports)
        )

    # The whole

    @property
    def is_closed(self) -> bool:
        """Whether nothing works any more: closed, or the thread died."""
        return self._runtime.is_stopped or self._runtime.error is not None

    def start(self) -> None:
        """Set the thread going."""
        self._runtime.start(self._run_python_work)

    def close(self) -> None:
        """End everything; who waits is woken."""
        if self._runtime.is_stopped:
            return
        self._runtime.stop()
        self._link_watch.close()
        if self._recording is not None:
            self._recording.close()
        for known in self._notifiers:
            cq = known() if known is not None else None
            if cq is not None:
                cq.wake()

    def progress(self) -> str:
        """Return what each connected queue pair is at, for errors."""
        if self._runtime.error is not None:
            return f"the endpoint's thread has died: {self._runtime.error!r}"
        lines = [self.describe(qp) for qp in self._qps if qp is not None and self.qp_state(qp.row) != QpState.RESET]
        return "; ".join(lines) or "no queue pair is connected"

    def impair(self, schedule: Schedule) -> None:
        """Begin a schedule of impairments now."""
        with self._runtime.locked() as now:
            self._impairments.begin(schedule, now)

    def set_plane(self, plane: int, up: bool) -> None:
        """Switch one of our planes on or off; it is up while its interface works too."""
        if not 0 <= plane < len(self.sockets.addresses):
            raise InvalidArgumentError(f"plane: {plane} is not in 0..{len(self.sockets.addresses) - 1}")
        with self._runtime.locked() as now:
            self._runtime.nic.now = now
            set_fault(self._runtime.engine, self._runtime.datapath, plane, int(Fault.DISABLED), not up)

    def longest_gap(self) -> float:
        """Return the longest time (s) between two arrivals of data since this was last asked, and begin anew."""
        with self._runtime.locked() as now:
            nic = self._runtime.nic
            gap = max(nic.longest_gap, now - nic.placed_at)
            nic.longest_gap, nic.placed_at = 0, now
        return gap / PS_PER_S

    def plane_counters(self) -> list[PlaneCounters]:
        """Return what each plane has carried."""
        return report.plane_counters(self._runtime)

    # Memory

    def register(self, region: MemoryRegion) -> int:
        """Make a region known to the engine and return its key."""
        self._check_open()
        with self._runtime.locked():
            key = self._keys.draw()
            if key == 0:
                raise NoRoomError(f"max_mr: all {self._attr.max_mr} memory regions are in use")
            regions.register(
                self._runtime.engine, 0, key, region.addr, region.length, region.access, region.pd.peer, region.addr
            )
            self._regions[key] = region
        return key

    def deregister(self, region: MemoryRegion) -> None:
        """Make the engine forget a region; EBUSY while posted writes read from it."""
        with self._posting.lock:
            if not self.is_closed and any(self._posting.reads_from(qp, region) for qp in self._qps if qp is not None):
                raise BusyError(f"memory region {region.key:#x}: posted writes still read from it")
            with self._runtime.locked():
                regions.deregister(self._runtime.engine, 0, region.key)
                if self._regions.pop(region.key, None) is not None:
                    self._keys.give_back(region.key)

    def check_domain_is_free(self, pd: ProtectionDomain) -> None:
        """Raise EBUSY while regions or queue pairs are in the domain."""
        if any(region.pd is pd for region in self._regions.values()):
            raise BusyError("protection domain: memory regions are in it")
        if any(qp is not None and qp.pd is pd for qp in self._qps):
            raise BusyError("protection domain: queue pairs are in it")

    # Queue pairs

    def take_qp(self, qp: QueuePair) -> int:
        """Note a new queue pair and return its row."""
        self._check_open()
        attr, init = self._attr, qp.init
        for name, limit in (("max_send_wr", attr.max_send_wr), ("max_recv_wr", attr.max_recv_wr)):
            if not 1 <= getattr(init, name) <= limit:
                raise InvalidArgumentError(f"{name}: {getattr(init, name)} is not in 1..{limit}")
        if not init.protocol_version & PROTOCOL_V1:
            raise InvalidArgumentError(
                f"protocol_version: {init.protocol_version:#b} lacks version 1 ({PROTOCOL_V1:#b})"
            )
        with self._runtime.locked():
            row = next((row for row, taken in enumerate(self._qps) if taken is None), None)
            if row is None:
                raise NoRoomError(f"max_qp: all {attr.max_qp} queue pairs are in use")
            for kind, cq in ((CompletionKind.SEND, init.send_cq), (CompletionKind.RECEIVE, init.recv_cq)):
                self._runtime.datapath.notifier_of[2 * row + kind, 0] = cq.bell_index
            self._qps[row] = qp
        return row

    def give_back_qp(self, qp: QueuePair) -> None:
        """Forget a queue pair; completions of it that nobody took vanish."""
        if self.is_closed:
            self._qps[qp.row] = None
            return
        self._disconnect(qp)
        self.collect()
        with self._runtime.locked():
            self._qps[qp.row] = None

    def qpn(self, row: int) -> int:
        """Return the peer of a queue pair; it changes with every RESET."""
        return int(self._qpn(row))

    def qp_state(self, row: int) -> QpState:
        """Return where a queue pair stands."""
        return QpState(self._runtime.engine.qps[row].state)

    def set_attributes(self, qp: QueuePair, attr: QpAttr) -> None:
        """Change attributes that count from now on."""
        operations.change(self._runtime.at, qp.row, operations.request(**self._attributes(qp, attr)))

    def move(self, qp: QueuePair, attr: QpAttr, event: QpEvent) -> None:
        """Change attributes and state together."""
        self._check_open()
        if event == QpEvent.TO_RESET:
            self._disconnect(qp)
            return
        attributes = self._attributes(qp, attr)
        if event == QpEvent.TO_RTR and attr.remote is not None:
            attributes["peer"] = self._take_peer(attr.remote)
            attributes["expected_psn"] = attr.rq_psn or 0
        if event == QpEvent.TO_RTS and self.qp_state(qp.row) == QpState.RTR:
            attributes["first_psn"] = attr.sq_psn or 0
        if operations.move(self._runtime.at, qp.row, int(event), operations.request(**attributes)) == 0:
            raise InvalidArgumentError(f"state: no transition {event.name} from {self.qp_state(qp.row).name}")
        self._runtime.iterate()

    # Posting and completing

    def post_send(self, qp: QueuePair, requests: Sequence[SendWr]) -> None:
        """Post writes; the first refused one ends it."""
        self._check_open()
        self._posting.send(qp, requests)

    def post_recv(self, qp: QueuePair, requests: Sequence[RecvWr]) -> None:
        """Post receives; the first refused one ends it."""
        self._check_open()
        self._posting.receive(qp, requests)

    def outstanding(self, qp: QueuePair) -> int:
        """Return how many posted writes have not completed."""
        return self._posting.outstanding(qp)

    def settle(self) -> None:
        """Have everything that was posted taken, and everything that completed announced."""
        self._posting.settle()

    def wait_for_progress(self, deadline: float) -> bool:
        """Pause a little; return False when the deadline (monotonic seconds) has passed."""
        self._check_open()
        time.sleep(_POLL_SECONDS)
        return time.monotonic() < deadline

    def add_cq(self, cq: CompletionQueue) -> int:
        """Note a completion queue and return the peer of its notifier."""
        self._check_open()
        with self._runtime.locked():
            for index, known in enumerate(self._notifiers):
                if known is None or known() is None:
                    self._notifiers[index] = weakref.ref(cq)
                    notifier = self._runtime.datapath.notifiers[index]
                    notifier.descriptor, notifier.armed = cq.fileno(), 0
                    return index
        raise NoRoomError(f"completion queues: all {MAX_NOTIFIERS} are in use")

    def drop_cq(self, index: int) -> None:
        """Forget a completion queue."""
        if not self.is_closed:
            with self._runtime.locked():
                self._runtime.datapath.notifiers[index].armed = 0
                self._notifiers[index] = None

    def wait(self, seconds: float) -> bool:
        """Wait at the sockets in this thread, if little is going on; False: there is no completion, sleep elsewhere."""
        return self._runtime.wait(min(seconds, _WAIT_SECONDS))

    def arm(self, index: int, armed: int) -> None:
        """Arm a notifier: 0 off, 1 for the next completion, 2 for the next solicited one; collect what came before."""
        self._runtime.datapath.notifiers[index].armed = armed
        self._take_completions()  # at the desk's mutex either we see a completion, or its announcement sees us

    def collect(self) -> None:
        """Hand every completion that was announced to its queue."""
        if self._announced(0) != self._completion_head(0):
            self._take_completions()

    def _take_completions(self) -> None:
        with self._collecting:
            while True:
                count = event_loop.collect(self._runtime.at, self._rows, _COLLECTED)
                for row in self._rows[:count].tolist():
                    self._complete(row)
                if count < _COLLECTED:
                    return

    # Reports

    def qp_counters(self, row: int) -> QpCounters:
        """Return what a queue pair has done."""
        return report.qp_counters(self._runtime, row)

    def ev_states(self, row: int) -> list[EvStatus]:
        """Return what a queue pair thinks of its paths."""
        return report.ev_states(self._runtime, row)

    def describe(self, qp: QueuePair) -> str:
        """Return one line about a queue pair."""
        return report.describe(self._runtime, qp.row, self._peers.address(int(self._runtime.engine.qps[qp.row].peer)))

    # Inside

    def _device(self) -> DeviceAttr:
        attr = self._attr
        return DeviceAttr(
            protocol_version=PROTOCOL_V1,
            max_wimm=attr.max_wimm,
            max_wimm_dest=attr.max_wimm,
            max_mpr=attr.max_mpr,
            mpr_resolution=1,
            max_qp_hint=1 << 16,
            cap=DeviceCap.TRIM_NACK | DeviceCap.DYNAMIC_MPR,
            max_qp=attr.max_qp,
            max_mr=attr.max_mr,
            max_peers=attr.max_peers,
            max_send_wr=attr.max_send_wr,
            max_recv_wr=attr.max_recv_wr,
            max_mtu=self._mtu,
            planes=tuple(str(address) for address in self.sockets.addresses),
            ev_format=attr.ev_format,
            evs_per_plane=attr.evs_per_plane,
            segmentation=self.sockets.segmentation,
        )

    def _check_open(self) -> None:
        if self._runtime.error is not None:
            raise ClosedError(f"context: the endpoint's thread has died: {self._runtime.error!r}")
        if self._runtime.is_stopped:
            raise ClosedError("context: it was closed")

    def _run_python_work(self) -> None:
        """Do what compiled code cannot: tell events, change impairments, write captured packets, wake who waits."""
        while True:
            count = event_loop.take_events(self._runtime.at, self._events, len(self._events))
            for row in self._events[:count].tolist():
                self._context.tell(report.event(row, self._qps))
            if count < len(self._events):
                break
        if self._runtime.nic.links_changed == 1:
            self._runtime.nic.links_changed = 0
            self._link_watch.refresh()
        if self._runtime.nic.step_at <= time.monotonic_ns() * PS_PER_NS:
            with self._runtime.locked() as now:
                self._impairments.advance(now)
        if self._recording is not None:
            self._recording.drain()
        if self._runtime.error is not None:
            for known in self._notifiers:
                cq = known() if known is not None else None
                if cq is not None:
                    cq.wake()

    def _attributes(self, qp: QueuePair, attr: QpAttr) -> dict[str, int | None]:
        """Return the engine's attributes of a queue pair; None stays as it is."""
        cap = attr.cap or QpCap(0)
        retries = attr.exponential_count
        return {
            "pd": qp.pd.peer,
            "sq_signal_all": int(qp.init.sq_sig_all),
            "trim_nack_dest": int(not cap & QpCap.TRIM_NACK_DEST_UNSUPPORTED),
            "dynamic_mpr": int(bool(cap & QpCap.DYNAMIC_MPR)),
            "access": attr.access_flags,
            "dest_qpn": attr.dest_qpn,
            "path_mtu": attr.path_mtu,
            "max_wimm": attr.max_wimm,
            "max_wimm_dest": attr.max_wimm_dest,
            "mpr": attr.mpr if attr.mpr is not None else self._attr.max_mpr,
            "mpr_dest": attr.mpr_dest,
            "timeout": None if attr.timeout is None else 1_024_000 << attr.timeout,
            "linear_count": attr.linear_count,
            "exponential_count": None if retries is None else min(retries, INFINITE_RETRIES),
        }

    def _take_peer(self, address: PeerAddress) -> int:
        """Return the number of a remote NIC; a new one also shows by which interfaces our planes reach it."""
        rows = self._peers.prepare(address)
        if self._peers.is_new(rows):
            for plane, destination in enumerate(self._peers.destinations(rows)):
                self._link_watch.learn(plane, destination)
        with self._runtime.locked() as now:
            return self._peers.take(rows, now)

    def _disconnect(self, qp: QueuePair) -> None:
        with self._posting.lock:
            self._posting.settle()  # what was posted before goes with the rest
            peer = int(self._runtime.engine.qps[qp.row].peer)
            operations.move(self._runtime.at, qp.row, int(QpEvent.TO_RESET), operations.request())
            self._qp_numbers.renew(qp.row)
            qp.sends.clear()
            qp.receives.clear()
            if peer != NONE:
                with self._runtime.locked():
                    self._peers.give_back(peer)

    def _is_registered(self, region: MemoryRegion) -> bool:
        return self._regions.get(region.key) is region

    def _complete(self, row: list[int]) -> None:
        kind, index, wr_id, code, length, immediate, has_immediate, solicited = row
        qp = self._qps[index]
        if qp is None:
            return
        is_send = kind == _SEND
        completion = WorkCompletion(
            wr_id & 0xFFFFFFFFFFFFFFFF,
            _STATUS[code],
            _WRITE if is_send else _RECEIVED,
            length,
            immediate & 0xFFFFFFFF if has_immediate else None,
            self._qpn(index),
            solicited == 1,
            "" if code == 0 else self.describe(qp),
        )
        (qp.send_cq if is_send else qp.recv_cq).put(completion)
