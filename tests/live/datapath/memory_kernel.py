"""One endpoint over the in-memory kernel of `tests.worlds.live`: no sockets, no clock, no threads, no compiler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from openmrc.core.rows import table
from openmrc.engine import lifecycle
from openmrc.engine.endpoint import post_receive
from openmrc.engine.paths import ev_states
from openmrc.engine.responder import regions
from openmrc.engine.state.machines import QpEvent
from openmrc.engine.state.params import Settings
from openmrc.engine.state.tables import NONE, CompletionKind
from openmrc.live.attributes import ContextAttr, PeerAddress
from openmrc.live.datapath import handles, remote_nics
from openmrc.live.datapath.loop import attendance, gathering, iteration, leases, submission, waiting
from openmrc.live.datapath.packets import receive, transmit
from openmrc.live.datapath.rows import COMMANDS
from openmrc.live.host.addresses import PlaneAddress
from openmrc.live.host.peers import Peers
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.live.objects.records import Records
from openmrc.units import PS_PER_MS, PS_PER_US
from openmrc.wire.codes import DSCP, ECT0, Opcode, TrafficClass
from openmrc.wire.icrc import flow
from openmrc.wire.packet import Packet
from tests.worlds.live import FakePorts, Kernel, address, sealed
from tests.worlds.schedule import columns_of, headers_of

HERE, THERE = 0, 1
LOOK = PS_PER_US  # ps that a look at empty sockets takes
EVS = [0xC000, 0xC001]
SIZE = 1 << 16
KEY = 7


def _interpreted(called: Any) -> Any:
    return getattr(called, "py_func", called)


class Endpoint:
    """Queue pair 0 in RTS towards a peer that does not exist, and everything it sends."""

    def __init__(self, patch: pytest.MonkeyPatch, capturing: bool = False, planes: int = 2) -> None:
        self.patch = patch  # a test that replaces more uses this one: two that overlap restore each other's replacement
        for module, name in (
            (handles, "_store"),
            *((attendance, each.__name__) for each in map(_interpreted, attendance.ENTRIES)),
            (iteration, "take_in"),
            (iteration, "send_out"),
            (remote_nics, "add_peer"),
            (remote_nics, "remove_peer"),
        ):
            patch.setattr(module, name, _interpreted(getattr(module, name)))
        self.kernel = Kernel()
        for module in (attendance, gathering, iteration, leases, transmit, waiting):
            patch.setattr(module, "monotonic", self.kernel.monotonic)
        patch.setattr(receive, "receive_messages", self.kernel.receive_messages)
        patch.setattr(transmit, "send_messages", self.kernel.send_messages)
        patch.setattr(waiting, "look", self._look)
        patch.setattr(waiting, "yield_processor", lambda: 0)
        self.readable: list[int] = []  # what looks at the sockets find, in order; afterwards nothing
        self.looks: list[int] = []  # how long (ps) each of them was ready to wait
        self.signals: list[int] = []
        for module in (attendance, submission):
            patch.setattr(module, "signal_eventfd", self._signal)
        attr = ContextAttr(
            evs_per_plane=len(EVS), max_qp=1, max_peers=2, max_send_wr=16, max_recv_wr=16, seed=1, poll_us=0
        )
        sockets: Any = FakePorts(HERE, planes, EVS)
        self.sockets = sockets
        self.runtime = EndpointRuntime(sockets, attr, Settings(), capturing)
        self.engine, self.datapath, self.nic = self.runtime.engine, self.runtime.datapath, self.runtime.nic
        self.lease, self.bursts = self.datapath.leases[0], self.datapath.bursts[0]
        self.memory = np.arange(SIZE, dtype=np.uint8)
        self.records = Records(self.runtime, 0, 64, lambda row, qpn: "")
        self.datapath.cqs[0].channel = NONE
        self.datapath.cqs[0].descriptor, self.datapath.cqs[0].wakeup = 100, 101
        self.datapath.cq_of[:] = 0
        self.now = PS_PER_MS
        self._connect(planes)

    def _connect(self, planes: int) -> None:
        remote = PeerAddress(planes=tuple(str(address(THERE, plane)) for plane in range(planes)))
        peers = Peers(self.runtime, 2, None)
        self.nic.now = self.now
        peer = peers.take(peers.prepare(remote))
        row = self.engine.qps[0]
        row.access, row.pd, row.dest_qpn, row.path_mtu, row.peer = 2, 1, 9, 1024, peer
        row.max_wimm = row.max_wimm_dest = 4
        row.mpr = row.mpr_dest = 4
        row.timeout, row.linear_count, row.exponential_count = 10 * PS_PER_MS, 7, 7
        regions.register(self.engine, 0, KEY, self.memory.ctypes.data, SIZE, 2, 1, self.memory.ctypes.data)
        for event in (QpEvent.TO_INIT, QpEvent.TO_RTR, QpEvent.TO_RTS):
            if event == QpEvent.TO_RTR:
                for plane in range(planes):
                    for k, ev in enumerate(EVS):
                        ev_states.set_ev(self.engine, 0, plane, k, ev)
                ev_states.begin(self.engine, self.now, 0, len(EVS), 1)
            assert lifecycle.move(self.engine, self.now, 0, event)

    def _signal(self, descriptor: int, count: int) -> int:
        self.signals.append(descriptor)
        return 0

    def _look(self, _datapath: Any, _row: int, _first: int, _count: int, time: int) -> int:
        self.looks.append(time)
        if self.readable and self.readable[0]:
            return self.readable.pop(0)
        self.readable = self.readable[1:]
        self.now = self.kernel.now = self.now + max(time, LOOK)
        return 0

    def stop(self) -> int:
        """Stop the endpoint, as a sleep that finds nothing readable."""
        self.nic.stop = True
        return 0

    def stage_arrival(self, number: int) -> None:
        """Let the peer's write with immediate, its `number`th packet, lie in the sockets of plane 0."""
        post_receive(self.engine, 0, number)
        self.stage_packet(number, bytes(8))

    def stage_packet(self, number: int, payload: bytes, **columns: int) -> None:
        """Let the peer's `number`th packet lie in the sockets of plane 0: a write with immediate unless said."""
        row = self.engine.qps[0]
        packet = columns_of(table(Packet, 1), 0) | {
            "opcode": int(Opcode.WRITE_ONLY_IMM),
            "dest_qpn": row.qpn,
            "psn": number,
            "msn": number,
            "rqmsn": number,
            "ack_request": 1,
            "va": self.memory.ctypes.data,
            "r_key": KEY,
            "dma_length": len(payload),
            "payload_length": len(payload),
            **columns,
        }
        body, there, here = headers_of(packet), address(THERE, 0), address(HERE, 0)
        body += sealed(body, np.frombuffer(payload, np.uint8), EVS[0], flow(there.ip, here.ip, here.port))
        self.kernel.arriving = (body, PlaneAddress(there.ip, EVS[0]).packed(), DSCP[TrafficClass.TRIMMABLE] << 2 | ECT0)

    def submit_write(self, length: int, wr_id: int = 1) -> bool:
        """Submit a signaled write; return whether a thread is awake to take it."""
        row = self.datapath.commands[self.nic.posted & COMMANDS - 1]
        row.is_receive, row.qp, row.wr_id, row.length, row.r_key, row.signaled = 0, 0, wr_id, length, KEY, 1
        row.local, row.va = self.memory.ctypes.data, self.memory.ctypes.data
        row.immediate = row.has_immediate = row.solicited = 0
        return bool(submission.submit(self.engine, self.datapath, 1))

    def iterate(self, ready: int = 0, batch: int = 64, looks: bool = False) -> int:
        """Run one iteration; what it sends is in `kernel.sent`."""
        self.kernel.now, self.kernel.sent = self.now, []
        left = iteration.absorb_into(self.engine, self.datapath, ready, looks)
        iteration.emit_from(self.engine, self.datapath, batch, 0)
        return int(left)

    def complete(self, wr_id: int, solicited: int = 0, status: int = 0) -> None:
        """Let the engine report a send completion."""
        node = self.engine.endpoints[0]
        done = self.engine.completions[node.completion_base + (node.completion_tail & node.completion_mask)]
        done.kind, done.qp, done.wr_id, done.status = int(CompletionKind.SEND), 0, wr_id, status
        done.solicited, done.has_immediate = solicited, 0
        node.completion_tail += 1


@contextmanager
def endpoint(**options: Any) -> Iterator[Endpoint]:
    """Yield an endpoint, interpreted, over memory."""
    with pytest.MonkeyPatch.context() as patch:
        yield Endpoint(patch, **options)
