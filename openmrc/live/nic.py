"""The NIC in software as verbs objects see it: what was registered, connected and posted is noted here.

What happens to packets is not: that is the motor's compiled loop.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from openmrc.engine import lifecycle, paths, regions
from openmrc.engine.endpoint import set_port
from openmrc.engine.messages import PostStatus
from openmrc.engine.params import Settings
from openmrc.engine.queue_pairs import INFINITE_RETRIES
from openmrc.engine.states import QpEvent, QpState
from openmrc.engine.tables import NONE, Cause, CompletionKind, WcStatus
from openmrc.errors import BusyError, InvalidArgumentError
from openmrc.faults import Schedule
from openmrc.live import drive, report
from openmrc.live.attributes import (
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
from openmrc.live.impairments import Impairments
from openmrc.live.memory import MemoryRegion, ProtectionDomain, RegionSlice
from openmrc.live.motor import MAX_BELLS, Motor
from openmrc.live.ports import CarrierOf, Ports
from openmrc.live.recording import Recording
from openmrc.live.refusals import ClosedError, NoRoomError
from openmrc.live.remotes import Remotes
from openmrc.live.tables import COMMANDS
from openmrc.live.tuning import settings_for
from openmrc.units import PS_PER_NS

if TYPE_CHECKING:
    from openmrc.live.completion import CompletionQueue
    from openmrc.live.context import Context
    from openmrc.live.queue_pair import QueuePair

_Request = TypeVar("_Request", SendWr, RecvWr)
_ACTIVE_SHARE = 4  # of so many EVs of a plane, one is the reserve
_COLLECTED = 256  # completions taken at once
_POLL_SECONDS = 0.002  # between looks at a queue that is to drain
_WAIT_SECONDS = 0.05  # in compiled code at a time: signals are handled in between
_SIGN = 1 << 63


class Nic:
    """One software NIC: the motor and everything that was made on it."""

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
        self.ports = Ports(planes, attr)
        self._mtu = min(attr.mtu, self.ports.mtu)
        try:
            tuning = settings or settings_for(self.ports, self._mtu)
            self._motor = Motor(self.ports, attr, tuning, capture is not None)
            self._remotes = Remotes(self._motor, attr.max_peers, carrier_of)
            self._impairments = Impairments(self._motor, attr.seed)
            self._recording = Recording(capture, self._motor, self._remotes) if capture is not None else None
            if schedule is not None:
                self.impair(schedule)
        except BaseException:
            self.ports.close()
            raise
        self._regions: dict[int, MemoryRegion] = {}
        self._keys = itertools.count(random.SystemRandom().randrange(1, 1 << 31))
        self._qps: list[QueuePair | None] = [None] * attr.max_qp
        self._bells: list[weakref.ref[CompletionQueue] | None] = [None] * MAX_BELLS
        self._commands = np.asarray(self._motor.wires.commands)
        self._posting = threading.Lock()
        self._collecting = threading.Lock()
        self._rows = np.zeros((_COLLECTED, 8), np.int64)
        self._events = np.zeros((_COLLECTED, 6), np.int64)
        self.device = self._device()
        self.address = PeerAddress(
            planes=self.device.planes, source_ports=tuple(tuple(ports) for ports in self.ports.source_ports)
        )

    # The whole

    @property
    def is_closed(self) -> bool:
        """Whether nothing works any more: closed, or the thread died."""
        return self._motor.is_stopped or self._motor.error is not None

    def start(self) -> None:
        """Set the thread going."""
        self._motor.start(self._on_bell)

    def close(self) -> None:
        """End everything; who waits is woken."""
        if self._motor.is_stopped:
            return
        self._motor.stop()
        if self._recording is not None:
            self._recording.close()
        for known in self._bells:
            cq = known() if known is not None else None
            if cq is not None:
                cq.wake()

    def progress(self) -> str:
        """Return what each connected queue pair is at, for errors."""
        if self._motor.error is not None:
            return f"the endpoint's thread has died: {self._motor.error!r}"
        lines = [self.describe(qp) for qp in self._qps if qp is not None and self.qp_state(qp.row) != QpState.RESET]
        return "; ".join(lines) or "no queue pair is connected"

    def impair(self, schedule: Schedule) -> None:
        """Begin a schedule of impairments now."""
        with self._motor.inside() as now:
            self._impairments.begin(schedule, now)

    def set_plane(self, plane: int, up: bool) -> None:
        """Tell the engine about one of our ports."""
        if not 0 <= plane < len(self.ports.addresses):
            raise InvalidArgumentError(f"plane: {plane} is not in 0..{len(self.ports.addresses) - 1}")
        with self._motor.inside() as now:
            set_port(self._motor.engine, now, 0, plane, int(up))

    def plane_counters(self) -> list[PlaneCounters]:
        """Return what each plane has carried."""
        return report.plane_counters(self._motor)

    # Memory

    def register(self, region: MemoryRegion) -> int:
        """Make a region known to the engine and return its key."""
        self._check_open()
        with self._motor.inside():
            key = next(key for key in self._keys if key & 0xFFFFFFFF not in self._regions and key & 0xFFFFFFFF)
            key &= 0xFFFFFFFF
            row = regions.register(
                self._motor.engine, 0, key, region.addr, region.length, region.access, region.pd.number, region.addr
            )
            if row == NONE:
                raise NoRoomError(f"max_mr: all {self._attr.max_mr} memory regions are in use")
            self._regions[key] = region
        return key

    def deregister(self, region: MemoryRegion) -> None:
        """Make the engine forget a region; EBUSY while posted writes read from it."""
        with self._motor.inside():
            if not self.is_closed and any(self._reads_from(qp, region) for qp in self._qps if qp is not None):
                raise BusyError(f"memory region {region.key:#x}: posted writes still read from it")
            regions.deregister(self._motor.engine, 0, region.key)
            self._regions.pop(region.key, None)

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
        with self._motor.inside():
            row = next((row for row, taken in enumerate(self._qps) if taken is None), None)
            if row is None:
                raise NoRoomError(f"max_qp: all {attr.max_qp} queue pairs are in use")
            for kind, cq in ((CompletionKind.SEND, init.send_cq), (CompletionKind.RECEIVE, init.recv_cq)):
                self._motor.wires.bell_of[2 * row + kind, 0] = cq.bell_index
            self._qps[row] = qp
        return row

    def give_back_qp(self, qp: QueuePair) -> None:
        """Forget a queue pair; completions of it that nobody took vanish."""
        if self.is_closed:
            self._qps[qp.row] = None
            return
        with self._motor.inside() as now:
            self._disconnect(qp, now)
        self.collect()
        with self._motor.inside():
            self._qps[qp.row] = None

    def qpn(self, row: int) -> int:
        """Return the number of a queue pair; it changes with every RESET."""
        return int(self._motor.engine.qps[row].qpn)

    def qp_state(self, row: int) -> QpState:
        """Return where a queue pair stands."""
        return QpState(self._motor.engine.qps[row].state)

    def first_psn(self, qp: QueuePair) -> int:
        """Return a random first PSN."""
        return random.SystemRandom().randrange(1 << 24)

    def set_attributes(self, qp: QueuePair, attr: QpAttr) -> None:
        """Change attributes that count from now on."""
        with self._motor.inside():
            self._write_attributes(qp, attr)

    def move(self, qp: QueuePair, attr: QpAttr, event: QpEvent) -> None:
        """Change attributes and state together."""
        self._check_open()
        with self._motor.inside() as now:
            if event == QpEvent.TO_RESET:
                self._disconnect(qp, now)
                return
            self._write_attributes(qp, attr)
            row = self._motor.engine.qps[qp.row]
            if event == QpEvent.TO_RTR and attr.remote is not None:
                row.peer = self._remotes.take(attr.remote, now)
                row.expected_psn = attr.rq_psn or 0
                self._lay_paths(qp.row, now)
            if event == QpEvent.TO_RTS and row.state == QpState.RTR:
                row.first_psn = attr.sq_psn or 0
            if event == QpEvent.FAIL:
                lifecycle.fail(self._motor.engine, now, qp.row, Cause.LOCAL)
            elif lifecycle.move(self._motor.engine, now, qp.row, event) == 0:
                raise InvalidArgumentError(f"state: no transition {event.name} from {QpState(row.state).name}")

    # Posting and completing

    def post_send(self, qp: QueuePair, requests: Sequence[SendWr]) -> None:
        """Post writes; the first refused one ends it."""
        self._check_open()
        with self._posting:
            for batch in self._batches(qp, CompletionKind.SEND, requests):
                slices = [self._check_write(qp, request) for request in batch]
                for index, (request, part) in enumerate(zip(batch, slices, strict=True)):
                    self._lay_write(index, qp, request, part)
                self._note_posted(qp, slices)
                done = self._run_commands(len(batch))
                if done < len(batch):
                    self._forget_posted(qp, len(batch) - done)
                    raise self._refusal(qp, done, CompletionKind.SEND)

    def post_recv(self, qp: QueuePair, requests: Sequence[RecvWr]) -> None:
        """Post receives; the first refused one ends it."""
        self._check_open()
        with self._posting:
            for batch in self._batches(qp, CompletionKind.RECEIVE, requests):
                for index, request in enumerate(batch):
                    self._commands[index] = (1, qp.row, _signed(request.wr_id), *[0] * 8, drive.NOT_DONE)
                done = self._run_commands(len(batch))
                if done < len(batch):
                    raise self._refusal(qp, done, CompletionKind.RECEIVE)

    def outstanding(self, qp: QueuePair) -> int:
        """Return how many posted writes have not completed."""
        row = self._motor.engine.qps[qp.row]
        return int(row.message_tail - row.message_head)

    def wait_for_progress(self, deadline: float) -> bool:
        """Pause a little; return False when the deadline (monotonic seconds) has passed."""
        self._check_open()
        time.sleep(_POLL_SECONDS)
        return time.monotonic() < deadline

    def add_cq(self, cq: CompletionQueue) -> int:
        """Note a completion queue and return the number of its bell."""
        self._check_open()
        with self._motor.inside():
            for index, known in enumerate(self._bells):
                if known is None or known() is None:
                    self._bells[index] = weakref.ref(cq)
                    bell = self._motor.wires.bells[index]
                    bell.descriptor, bell.armed = cq.fileno(), 0
                    return index
        raise NoRoomError(f"completion queues: all {MAX_BELLS} are in use")

    def drop_cq(self, index: int) -> None:
        """Forget a completion queue."""
        if not self.is_closed:
            with self._motor.inside():
                self._motor.wires.bells[index].armed = 0
                self._bells[index] = None

    def wait(self, seconds: float) -> bool:
        """Wait at the sockets in this thread, if little is going on; False: there is no completion, sleep elsewhere."""
        return self._motor.wait(min(seconds, _WAIT_SECONDS))

    def arm(self, index: int, armed: int) -> None:
        """Ask for the bell: 0 no, 1 at the next completion, 2 at the next solicited one."""
        self._motor.wires.bells[index].armed = armed

    def collect(self) -> None:
        """Hand every completion that the engine has to its queue."""
        node = self._motor.engine.endpoints[0]
        if node.completion_head == node.completion_tail:
            return
        with self._collecting:
            while True:
                count = drive.collect(self._motor.at, self._rows, _COLLECTED)
                for row in self._rows[:count].tolist():
                    self._complete(row)
                if count < _COLLECTED:
                    return

    # Reports

    def qp_counters(self, row: int) -> QpCounters:
        """Return what a queue pair has done."""
        return report.qp_counters(self._motor, row)

    def ev_states(self, row: int) -> list[EvStatus]:
        """Return what a queue pair thinks of its paths."""
        return report.ev_states(self._motor, row)

    def describe(self, qp: QueuePair) -> str:
        """Return one line about a queue pair."""
        return report.describe(self._motor, qp.row, self._remotes.address(int(self._motor.engine.qps[qp.row].peer)))

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
            planes=tuple(str(address) for address in self.ports.addresses),
            ev_format=attr.ev_format,
            evs_per_plane=attr.evs_per_plane,
            segmentation=self.ports.segmentation,
        )

    def _check_open(self) -> None:
        if self._motor.error is not None:
            raise ClosedError(f"context: the endpoint's thread has died: {self._motor.error!r}")
        if self._motor.is_stopped:
            raise ClosedError("context: it was closed")

    def _on_bell(self) -> None:
        """Do what compiled code cannot: tell events, change impairments, write captured packets, wake who waits."""
        while True:
            count = drive.take_events(self._motor.at, self._events, len(self._events))
            for row in self._events[:count].tolist():
                self._context.tell(report.event(row, self._qps))
            if count < len(self._events):
                break
        if self._motor.nic.step_at <= time.monotonic_ns() * PS_PER_NS:
            with self._motor.inside() as now:
                self._impairments.advance(now)
        if self._recording is not None:
            self._recording.drain()
        if self._motor.error is not None:
            for known in self._bells:
                cq = known() if known is not None else None
                if cq is not None:
                    cq.wake()

    def _write_attributes(self, qp: QueuePair, attr: QpAttr) -> None:
        row = self._motor.engine.qps[qp.row]
        row.pd = qp.pd.number
        row.sq_signal_all = int(qp.init.sq_sig_all)
        row.trim_nack_dest = int(not (attr.cap or QpCap(0)) & QpCap.TRIM_NACK_DEST_UNSUPPORTED)
        row.dynamic_mpr = int(bool((attr.cap or QpCap(0)) & QpCap.DYNAMIC_MPR))
        plain = {
            "access": attr.access_flags,
            "dest_qpn": attr.dest_qpn,
            "path_mtu": attr.path_mtu,
            "max_wimm": attr.max_wimm,
            "max_wimm_dest": attr.max_wimm_dest,
            "mpr": attr.mpr if attr.mpr is not None else self._attr.max_mpr,
            "mpr_dest": attr.mpr_dest,
            "timeout": None if attr.timeout is None else 1_024_000 << attr.timeout,
            "linear_count": attr.linear_count,
            "exponential_count": None
            if attr.exponential_count is None
            else min(attr.exponential_count, INFINITE_RETRIES),
        }
        for name, value in plain.items():
            if value is not None:
                setattr(row, name, int(value))

    def _lay_paths(self, qp: int, now: int) -> None:
        per_plane = self._attr.evs_per_plane
        active = max(1, per_plane - per_plane // _ACTIVE_SHARE)
        for plane in range(len(self.ports.addresses)):
            for k, value in enumerate(self.ports.evs(plane)):
                paths.set_ev(self._motor.engine, qp, plane, k, value)
        paths.begin(self._motor.engine, now, qp, active, 1)

    def _disconnect(self, qp: QueuePair, now: int) -> None:
        row = self._motor.engine.qps[qp.row]
        peer = int(row.peer)
        lifecycle.move(self._motor.engine, now, qp.row, QpEvent.TO_RESET)
        row.peer = NONE
        qp.posted.clear()
        if peer != NONE:
            self._remotes.give_back(peer)

    def _check_write(self, qp: QueuePair, request: SendWr) -> RegionSlice:
        local = request.local
        part = RegionSlice(local, 0, local.length) if isinstance(local, MemoryRegion) else local
        if not isinstance(part, RegionSlice):
            raise InvalidArgumentError(f"local: {local!r} is not a memory region or a slice of one")
        if part.region.pd is not qp.pd or self._regions.get(part.region.key) is not part.region:
            raise InvalidArgumentError(
                f"local: region {part.region.key:#x} is not registered in this protection domain"
            )
        if part.offset < 0 or part.length < 0 or part.offset + part.length > part.region.length:
            raise InvalidArgumentError(
                f"local: bytes {part.offset} to {part.offset + part.length} of a region of {part.region.length}"
            )
        if request.immediate is not None and not 0 <= request.immediate < 1 << 32:
            raise InvalidArgumentError(f"immediate: {request.immediate} is not in 0..{(1 << 32) - 1}")
        if not 0 <= request.remote_addr < 1 << 64 or not 0 <= request.r_key < 1 << 32:
            raise InvalidArgumentError(f"remote_addr, r_key: {request.remote_addr:#x}, {request.r_key:#x} do not fit")
        return part

    def _lay_write(self, index: int, qp: QueuePair, request: SendWr, part: RegionSlice) -> None:
        # One assignment in the order of Command's fields: a third of the time of twelve.
        self._commands[index] = (
            0,
            qp.row,
            _signed(request.wr_id),
            part.region.addr + part.offset,
            part.length,
            _signed(request.remote_addr),
            request.r_key,
            request.immediate or 0,
            request.immediate is not None,
            request.solicited,
            request.signaled,
            drive.NOT_DONE,
        )

    def _batches(self, qp: QueuePair, kind: CompletionKind, requests: Sequence[_Request]) -> Iterator[list[_Request]]:
        """Cut requests into what one turn takes; ENOMEM where the queue pair's own depth ends."""
        waiting = list(requests)
        while waiting:
            count = min(COMMANDS, self._room(qp, kind))
            if count <= 0:
                raise self._is_full(qp, kind)
            yield waiting[:count]
            waiting = waiting[count:]

    def _room(self, qp: QueuePair, kind: CompletionKind) -> int:
        row = self._motor.engine.qps[qp.row]
        if kind == CompletionKind.SEND:
            return qp.init.max_send_wr - (row.message_tail - row.message_head)
        return qp.init.max_recv_wr - (row.receive_tail - row.receive_head)

    def _is_full(self, qp: QueuePair, kind: CompletionKind) -> NoRoomError:
        depth = qp.init.max_send_wr if kind == CompletionKind.SEND else qp.init.max_recv_wr
        return NoRoomError(f"queue pair {qp.qpn:#x}: its {kind.name.lower()} queue of {depth} is full")

    def _run_commands(self, count: int) -> int:
        """Have the engine take the commands; return how many it took before it refused one."""
        commands = self._motor.wires.commands
        self._motor.nic.commands = count
        self._motor.turn()
        for index in range(count):
            if commands[index].status != PostStatus.OK:
                return index
        return count

    def _refusal(self, qp: QueuePair, index: int, kind: CompletionKind) -> Exception:
        code = self._motor.wires.commands[index].status
        if code == PostStatus.FULL:
            return self._is_full(qp, kind)
        if code == PostStatus.WRONG_STATE:
            return InvalidArgumentError(
                f"queue pair {qp.qpn:#x}: posting to the {kind.name.lower()} queue in {qp.state.name}"
            )
        if code == PostStatus.TOO_LONG:
            return InvalidArgumentError(f"queue pair {qp.qpn:#x}: a message may have at most 2 GiB")
        return ClosedError("context: it was closed")

    def _note_posted(self, qp: QueuePair, slices: Sequence[RegionSlice]) -> None:
        """Remember what the queue reads from; what has completed is forgotten by and by."""
        posted: deque[RegionSlice] = qp.posted
        for _ in range(len(posted) - self.outstanding(qp)):
            posted.popleft()
        posted.extend(slices)

    def _forget_posted(self, qp: QueuePair, count: int) -> None:
        for _ in range(min(count, len(qp.posted))):
            qp.posted.pop()

    def _reads_from(self, qp: QueuePair, region: MemoryRegion) -> bool:
        for _ in range(len(qp.posted) - self.outstanding(qp)):
            qp.posted.popleft()
        return any(part.region is region for part in qp.posted)

    def _complete(self, row: list[int]) -> None:
        kind, index, wr_id, code, length, immediate, has_immediate, solicited = row
        qp = self._qps[index]
        if qp is None:
            return
        is_send = kind == CompletionKind.SEND
        completion = WorkCompletion(
            wr_id=wr_id & 0xFFFFFFFFFFFFFFFF,
            status=WcStatus(code),
            opcode=WcOpcode.RDMA_WRITE if is_send else WcOpcode.RECV_RDMA_WITH_IMM,
            byte_len=length,
            immediate=immediate & 0xFFFFFFFF if has_immediate else None,
            qp_num=qp.qpn,
            solicited=bool(solicited),
            error="" if code == WcStatus.SUCCESS else self.describe(qp),
        )
        (qp.send_cq if is_send else qp.recv_cq).put(completion)


def _signed(number: int) -> int:
    """Return a 64-bit number as the engine keeps it."""
    if not -_SIGN <= number < 2 * _SIGN:
        raise InvalidArgumentError(f"{number:#x} has more than 64 bits")
    return number - 2 * _SIGN if number >= _SIGN else number
