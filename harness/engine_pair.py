"""Two endpoints joined by a network that may drop, delay, duplicate, reorder, corrupt, mark, trim and fall silent.

Virtual time, one seed, real memory: what arrives is compared byte by byte with what was sent.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from openmrc.core.rows import table
from openmrc.engine import endpoint as kernels
from openmrc.engine import lifecycle
from openmrc.engine.paths import ev_states
from openmrc.engine.responder import regions
from openmrc.engine.state.build import TableSizes, build
from openmrc.engine.state.machines import QpEvent, QpState
from openmrc.engine.state.params import Settings
from openmrc.engine.state.tables import NONE, CompletionKind, Engine
from openmrc.live.datapath.rows import PostCommand
from openmrc.units import NEVER, PS_PER_MS, PS_PER_S, PS_PER_US
from openmrc.wire.codes import Opcode, Trim
from openmrc.wire.packet import NOWHERE
from tests.engine.doors import Door, call_door, handles, open_door

MEMORY = 1 << 20  # bytes of each endpoint
REGION_AT = 4096  # where the registered region starts in that memory
REGION_VA = 0x10_0000  # what the peer calls it
R_KEY = 0x4242
HEADERS = 100  # bytes on the wire beside the payload


@dataclass(frozen=True)
class NetworkConditions:
    """What the network does to packets; shares in 0..1."""

    loss: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    mark: float = 0.0
    trim: float = 0.0
    jitter_us: float = 0.0
    delay_us: float = 5.0
    silences: tuple[tuple[int, int, int], ...] = ()  # plane, from us, until us
    mbps: float = 0.0  # of each plane, behind a queue that drops what does not fit; 0: no limit
    queue: int = 0  # bytes


@dataclass
class Completion:
    endpoint: int
    kind: int
    wr_id: int
    status: int
    length: int
    immediate: int
    at: int


@dataclass
class Pair:
    """The two endpoints, their memory, and the packets between them."""

    conditions: NetworkConditions = field(default_factory=NetworkConditions)
    seed: int = 1
    settings: Settings = field(default_factory=lambda: Settings(link_gbps=100.0, base_rtt_us=12.0))
    planes: int = 4
    evs: int = 4
    active: int = 3
    min_active: int = 3
    mtu: int = 256
    timeout_us: float = 131.0
    linear: int = 3
    exponential: int = 6
    wimms: int = 4
    compiled: bool = False
    filter: Callable[[Any, int], bool] | None = None  # sees each row before it flies; False drops it

    def __post_init__(self) -> None:
        layout = TableSizes(
            endpoints=2, ports=self.planes, evs_per_rotation=self.evs, sends=32, receives=32, wimms=self.wimms
        )
        self.engine: Engine = build(layout, self.settings, packets=1, seed=self.seed)
        self.request = table(PostCommand, 1)
        self.handles = handles(self.engine, self.request) if self.compiled else None
        self.random = random.Random(self.seed)
        self.memory = [bytearray(self.random.randbytes(MEMORY)), bytearray(MEMORY)]
        self.now = 0
        self.flying: list[tuple[int, int, int, Any, bytes]] = []
        self.order = 0
        self.busy: dict[tuple[int, int], int] = {}  # until when (ps) each plane sends to each endpoint
        self.completions: list[Completion] = []
        self.placed: list[tuple[int, int, int]] = []  # at, from, until: bytes written to endpoint 1
        self.diary: list[tuple[int, int, int, int]] = []  # at, endpoint, opcode, psn of everything sent
        for endpoint in range(2):
            self._connect(endpoint)

    def _connect(self, endpoint: int) -> None:
        engine = self.engine
        node = engine.endpoints[endpoint]
        lifecycle.open_peer(engine, 0, node.peer_base, 1 - endpoint)
        regions.register(
            engine, endpoint, R_KEY, REGION_VA, MEMORY - REGION_AT, regions.Access.REMOTE_WRITE, 1, REGION_AT
        )
        row = engine.qps[node.qp_base]
        row.peer = node.peer_base
        row.dest_qpn = engine.qps[engine.endpoints[1 - endpoint].qp_base].qpn
        row.pd = 1
        row.access = regions.Access.REMOTE_WRITE
        row.path_mtu = self.mtu
        row.timeout = int(self.timeout_us * PS_PER_US)
        row.linear_count = self.linear
        row.exponential_count = self.exponential
        row.mpr = row.mpr_dest = 8
        row.max_wimm = row.max_wimm_dest = self.wimms
        row.trim_nack_dest = True
        row.first_psn = 0xFFFFF0 if endpoint == 0 else 0  # wraps early
        row.expected_psn = 0 if endpoint == 0 else 0xFFFFF0
        for rotation in range(self.planes):
            for k in range(self.evs):
                ev_states.set_ev(engine, node.qp_base, rotation, k, 0xC000 | rotation << 8 | k)
        ev_states.begin(engine, 0, node.qp_base, self.active, self.min_active)
        for event in (QpEvent.TO_INIT, QpEvent.TO_RTR, QpEvent.TO_RTS):
            assert lifecycle.move(engine, 0, node.qp_base, event) == 1

    # Commands

    def write(self, wr_id: int, local: int, length: int, offset: int, immediate: int = -1, endpoint: int = 0) -> int:
        """Post a write of `length` bytes at `local` to `offset` in the peer's region."""
        row = self.request[0]
        row.wr_id, row.local, row.length = wr_id, local, length
        row.va, row.r_key, row.signaled = REGION_VA + offset, R_KEY, 1
        row.immediate, row.has_immediate = max(immediate, 0), int(immediate >= 0)
        return self._door(Door.POST_WRITE, self.qp(endpoint))

    def receive(self, wr_id: int, endpoint: int = 1) -> int:
        return kernels.post_receive(self.engine, self.qp(endpoint), wr_id)

    def set_port(self, endpoint: int, port: int, up: int) -> None:
        self._door(Door.SET_PORT, endpoint, port, up)

    def qp(self, endpoint: int) -> int:
        return self.engine.endpoints[endpoint].qp_base

    def row(self, endpoint: int = 0) -> Any:
        return self.engine.qps[self.qp(endpoint)]

    def peer(self, endpoint: int = 0) -> Any:
        return self.engine.peers[self.row(endpoint).peer]

    def evs_of(self, endpoint: int = 0) -> list[Any]:
        row = self.row(endpoint)
        return [self.engine.evs[ev] for ev in range(row.ev_base, row.ev_base + row.ev_count)]

    # Time

    def run(self, until_us: float = 1e6, stop: Callable[[], bool] | None = None) -> None:
        """Let time pass until nothing is left to happen, `stop` says so, or `until_us` is reached."""
        until = int(until_us * PS_PER_US)
        self._transmit()
        while self.now < until and not (stop and stop()):
            following = min(
                self.flying[0][0] if self.flying else until,
                *(kernels.next_deadline(self.engine, endpoint) for endpoint in range(2)),
            )
            if following >= until:
                self.now = until
                break
            self.now = max(self.now, following)
            self._deliver()
            for endpoint in range(2):
                self._door(Door.EXPIRE, endpoint)
                self._drain(endpoint)
            self._transmit()

    def is_done(self) -> bool:
        """Whether the requester has nothing left to do."""
        row = self.row(0)
        return row.message_head == row.message_tail and not self.flying

    def events(self, endpoint: int = 0) -> Iterator[Any]:
        while (row := kernels.next_event(self.engine, endpoint)) != NONE:
            yield self.engine.events[row]

    def fly(self, endpoint: int, row: Any, payload: bytes, at: int) -> None:
        """Put a packet into the network, to arrive at `endpoint`."""
        self.order += 1
        heapq.heappush(self.flying, (at, self.order, endpoint, row, payload))

    def _transmit(self) -> None:
        for endpoint in range(2):
            for _ in range(4096):
                if self._door(Door.NEXT_PACKET, endpoint, 0, (1 << self.planes) - 1) == 0:
                    break
                self._launch(endpoint)
            else:
                raise AssertionError("an endpoint that never stops sending")

    def _launch(self, endpoint: int) -> None:
        row = np.asarray(self.engine.packets)[0].copy()
        is_data = row["opcode"] <= Opcode.WRITE_ONLY_IMM
        length = int(row["payload_length"]) if is_data else 0
        payload = bytes(self.memory[endpoint][int(row["payload"]) : int(row["payload"]) + length]) if is_data else b""
        self.diary.append((self.now, endpoint, int(row["opcode"]), int(row["psn"])))
        if self.filter is not None and not self.filter(row, endpoint):
            return
        draw = self.random.random
        if draw() < self.conditions.loss or draw() < self.conditions.corrupt or self._is_silent(int(row["port"])):
            return
        if draw() < self.conditions.mark:
            row["marked"] = 1
        if is_data and length and draw() < self.conditions.trim:
            row["trimmed"] = Trim.TRIMMED if draw() < 0.5 else Trim.TRIMMED_LASTHOP
        for _ in range(2 if draw() < self.conditions.duplicate else 1):
            delay = (self.conditions.delay_us + draw() * self.conditions.jitter_us) * PS_PER_US
            at = self._queued(1 - endpoint, int(row["port"]), len(payload) + HEADERS, self.now + int(delay))
            if at != NEVER:
                self.fly(1 - endpoint, row.copy(), payload, at)

    def _queued(self, endpoint: int, plane: int, size: int, at: int) -> int:
        """Return when a packet that comes to the queue of a plane at `at` has left it; NEVER: it is full."""
        if self.conditions.mbps == 0:
            return at
        ps_per_byte = 8 * PS_PER_US / self.conditions.mbps
        begins = max(self.busy.get((endpoint, plane), 0), at)
        if (begins - at) / ps_per_byte + size > self.conditions.queue:
            return NEVER
        self.busy[endpoint, plane] = begins + int(size * ps_per_byte)
        return self.busy[endpoint, plane]

    def _is_silent(self, plane: int) -> bool:
        return any(p == plane and a * PS_PER_US <= self.now < b * PS_PER_US for p, a, b in self.conditions.silences)

    def _deliver(self) -> None:
        while self.flying and self.flying[0][0] <= self.now:
            _, _, endpoint, row, payload = heapq.heappop(self.flying)
            np.asarray(self.engine.packets)[0] = row
            self._door(Door.RECEIVE, endpoint)
            self._place(endpoint, payload)
            self._drain(endpoint)

    def _place(self, endpoint: int, payload: bytes) -> None:
        place = self.engine.packets[0].payload
        if place == NOWHERE:
            return
        assert REGION_AT <= place <= MEMORY - len(payload), "placed outside the region"
        self.memory[endpoint][place : place + len(payload)] = payload
        if endpoint == 1:
            self.placed.append((self.now, place, place + len(payload)))

    def _drain(self, endpoint: int) -> None:
        while (row := kernels.next_completion(self.engine, endpoint)) != NONE:
            c = self.engine.completions[row]
            self.completions.append(Completion(endpoint, c.kind, c.wr_id, c.status, c.length, c.immediate, self.now))

    def _door(self, door: int, subject: int, packet: int = 0, ports: int = 0) -> int:
        if self.handles is None:
            return call_door(self.engine, self.request[0], door, self.now, subject, packet, ports)
        return self._open(self.handles.ctypes.data, int(door), self.now, subject, packet, ports)

    def _open(self, *words: int) -> int:
        return open_door(*words)

    # Verdicts

    def sends(self) -> list[Completion]:
        return [c for c in self.completions if c.kind == CompletionKind.SEND and c.endpoint == 0]

    def receives(self) -> list[Completion]:
        return [c for c in self.completions if c.kind == CompletionKind.RECEIVE and c.endpoint == 1]

    def is_in_error(self, endpoint: int = 0) -> bool:
        return bool(self.row(endpoint).state == QpState.ERROR)


def ms(count: float) -> int:
    return int(count * PS_PER_MS)


def seconds(count: float) -> int:
    return int(count * PS_PER_S)
