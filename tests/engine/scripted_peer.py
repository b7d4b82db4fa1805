"""One endpoint whose network is the test itself: it `receives` packets and `sends` them, at times the test names.

Interpreted, virtual time, no randomness of its own. What a packet says and does not matter to a
test comes from the templates below.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from openmrc.core.rows import table
from openmrc.engine import endpoint as doors
from openmrc.engine import lifecycle
from openmrc.engine.paths import ev_states
from openmrc.engine.responder import regions
from openmrc.engine.state import clock
from openmrc.engine.state.build import TableSizes, build
from openmrc.engine.state.machines import QpEvent
from openmrc.engine.state.params import Settings
from openmrc.engine.state.tables import NONE, Engine, WriteRequest
from openmrc.units import PS_PER_US
from openmrc.wire.codes import EndpointOp, NackReason, Opcode, Syndrome
from openmrc.wire.packet import NOWHERE

MTU = 256  # bytes
REGION_VA = 0x10_0000
REGION_LOCAL = 0x5000
REGION_LENGTH = 1 << 20
R_KEY = 0x4242
QPN = 3
PEER = 100  # the first peer's address, as the world numbers it

NO_PENALTY = {"rcv_cwnd_pen": 0, "restore_cwnd": 0}


def us(count: float) -> int:
    return round(count * PS_PER_US)


def data(psn: int, **fields: Any) -> dict[str, Any]:
    """A whole message of one packet; PSN n writes at n MTUs into the region."""
    summary = {
        "opcode": Opcode.WRITE_ONLY,
        "psn": psn & 0xFFFFFF,
        "msn": psn & 0xFFFF,
        "payload_length": MTU,
        "dma_length": MTU,
        "va": REGION_VA + (psn % 1024) * MTU,
        "r_key": R_KEY,
        "entropy": 0xE000,
        "timestamped": 1,
        "tx_timestamp": 77,
    }
    return {**summary, **fields}


def write_imm(psn: int, rqmsn: int, immediate: int = 0, **fields: Any) -> dict[str, Any]:
    opcode = {"opcode": Opcode.WRITE_ONLY_IMM, "rqmsn": rqmsn & 0xFFFF, "immediate": immediate}
    return data(psn, **{**opcode, **fields})


def sack(cack: int, above: tuple[int, ...] = (), trigger: int | None = None, **fields: Any) -> dict[str, Any]:
    """Everything up to `cack` arrived, and the PSNs `above`; `trigger` is the PSN that made the SACK due."""
    bitmap = sum(1 << (psn - cack - 1) for psn in above)
    bitmap -= (bitmap >> 63) << 64  # the pattern is signed
    newest = max(above, default=cack)
    summary = {
        "opcode": Opcode.SACK,
        "cack_psn": cack & 0xFFFFFF,
        "sack_offset": 1,
        "sack_bitmap": bitmap,
        "ack_psn_offset": (newest if trigger is None else trigger) - cack,
        "ooo_count": len(above),
    }
    return {**summary, **fields}


def nack(psn: int, reason: NackReason, entropy: int = 0) -> dict[str, Any]:
    return {
        "opcode": Opcode.NACK,
        "nack_psn": psn & 0xFFFFFF,
        "nack_reason": reason,
        "reflected_entropy": entropy,
    }


def ack(messages: int, syndrome: Syndrome = Syndrome.ACK) -> dict[str, Any]:
    return {"opcode": Opcode.ACKNOWLEDGE, "acked_messages": messages & 0xFFFFFF, "syndrome": syndrome}


def probe(probe_id: int, **fields: Any) -> dict[str, Any]:
    return {"opcode": Opcode.PROBE, "probe_id": probe_id, "entropy": 0xE000, "tx_timestamp": 55, **fields}


def probe_answer(probe_id: int, cack: int, **fields: Any) -> dict[str, Any]:
    return sack(cack, is_probe_answer=1, ack_psn_offset=probe_id, **fields)


def request(op: EndpointOp, probe_id: int, **fields: Any) -> dict[str, Any]:
    return {"opcode": Opcode.ENDPOINT_REQUEST, "dest_qpn": 2, "psn": probe_id, "endpoint_op": op, **fields}


def response(op: EndpointOp, probe_id: int, **fields: Any) -> dict[str, Any]:
    return {"opcode": Opcode.ENDPOINT_RESPONSE, "dest_qpn": 2, "psn": probe_id, "endpoint_op": op, **fields}


def steady(**changes: Any) -> Settings:
    """Settings in which nothing happens that the test did not ask for: no own probes, no algorithm, no surprise."""
    quiet: dict[str, Any] = {
        "link_gbps": 100.0,
        "base_rtt_us": 12.0,
        "tail_probe": False,
        "reverse_probe_interval_us": 0.0,
        "probe_interval_us": 1000e6,
        "probe_interval_max_us": 1000e6,
        "algorithm": "none",
    }
    return Settings(**{**quiet, **changes})


@dataclass
class Endpoint:
    """The endpoint under test, connected: queue pair n belongs to peer `peer_of[n]`."""

    settings: Settings = field(default_factory=steady)
    planes: int = 4
    evs: int = 4
    active: int = 3
    min_active: int = 1
    peer_of: tuple[int, ...] = (0,)
    first_psn: int = 0
    expected_psn: int = 0
    until: QpEvent = QpEvent.TO_RTS
    attributes: dict[str, Any] = field(default_factory=dict)
    layout: dict[str, Any] = field(default_factory=dict)
    seed: int = 1

    def __post_init__(self) -> None:
        layout: dict[str, Any] = {
            "ports": self.planes,
            "evs_per_rotation": self.evs,
            "qps": len(self.peer_of),
            "peers": 1 + max(self.peer_of),
            "wimms": 4,
            **self.layout,
        }
        self.engine: Engine = build(TableSizes(endpoints=1, **layout), self.settings, packets=2, seed=self.seed)
        self.now = 0
        for peer in range(1 + max(self.peer_of)):
            lifecycle.open_peer(self.engine, 0, peer, PEER + peer)
        regions.register(self.engine, 0, R_KEY, REGION_VA, REGION_LENGTH, regions.Access.REMOTE_WRITE, 1, REGION_LOCAL)
        for qp in range(len(self.peer_of)):
            self.connect(qp)

    def connect(self, qp: int) -> None:
        """Give a queue pair its attributes and move it as far as `until` says."""
        row = self.engine.qps[qp]
        row.peer = self.peer_of[qp]
        row.dest_qpn = 0x70_000 + qp
        row.pd = 1
        row.access = regions.Access.REMOTE_WRITE
        row.path_mtu = MTU
        row.timeout = us(1000)
        row.linear_count = 2
        row.exponential_count = 3
        row.mpr = row.mpr_dest = 8
        row.max_wimm = row.max_wimm_dest = 4
        row.trim_nack_dest = True
        row.first_psn = self.first_psn
        row.expected_psn = self.expected_psn
        for name, value in self.attributes.items():
            setattr(row, name, value)
        for rotation in range(self.planes):
            for k in range(self.evs):
                ev_states.set_ev(self.engine, qp, rotation, k, entropy_of(rotation, k))
        ev_states.begin(self.engine, self.now, qp, self.active, self.min_active)
        for event in (QpEvent.TO_INIT, QpEvent.TO_RTR, QpEvent.TO_RTS):
            if event <= self.until:
                assert lifecycle.move(self.engine, self.now, qp, event) == 1

    # What it holds

    def qp(self, number: int = 0) -> Any:
        return self.engine.qps[number]

    def peer(self, number: int = 0) -> Any:
        return self.engine.peers[number]

    def node(self) -> Any:
        return self.engine.endpoints[0]

    def ev(self, value: int) -> Any:
        """The EV with this entropy value, of the first queue pair that has it."""
        return self.engine.evs[self.ev_row(value)]

    def ev_row(self, value: int, qp: int = 0) -> int:
        row = ev_states.find(self.engine, qp, value)
        assert row != NONE
        return row

    def evs_in_state(self, state: int) -> list[int]:
        return [ev.value for ev in self.engine.evs if ev.state == state]

    def rotation(self, rotation: int = 0) -> set[int]:
        """The entropy values in rotation on one rotation."""
        row = self.engine.rotations[rotation]
        slots = [self.engine.slots[row.ev_base + position].ev for position in range(row.active)]
        return {self.engine.evs[row.ev_base + slot].value for slot in slots}

    # Commands

    def write(
        self,
        length: int = MTU,
        immediate: int | None = None,
        qp: int = 0,
        wr_id: int = 0,
        l_key: int = 0,
        *,
        continues: bool = False,
    ) -> int:
        row = table(WriteRequest, 1)[0]
        row.l_key, row.continues = l_key, int(continues)
        row.wr_id, row.local, row.length, row.va, row.r_key, row.signaled = wr_id, 0x9000, length, 0xAA00, 0x77, 1
        row.immediate, row.has_immediate = immediate or 0, int(immediate is not None)
        return doors.post_write(self.engine, self.now, qp, row)

    def set_port(self, port: int, up: int) -> None:
        doors.set_port(self.engine, self.now, 0, port, up)

    # The diary

    def receives(self, packet: dict[str, Any], at_us: float | None = None, source: int = PEER, port: int = 0) -> int:
        """Let a packet arrive; return where its payload is to be placed, or NOWHERE."""
        if at_us is not None:
            self.waits(at_us)
        row = self._lay(packet, source, port)
        doors.receive(self.engine, self.now, 0, 0)
        return int(row["payload"][0])

    def _lay(self, packet: dict[str, Any], source: int, port: int) -> Any:
        row = np.asarray(self.engine.packets)
        row[0] = 0
        sent = clock.stamp(self.now - us(12), 0)  # an answer has taken one round trip, unless the test says otherwise
        summary = {"dest_qpn": QPN, "source": source, "port": port, "tx_timestamp": sent, **packet}
        for name, value in summary.items():
            row[name][0] = int(value)
        return row

    def sends(self, opcode: Opcode | None = None, at_us: float | None = None, **fields: Any) -> SimpleNamespace:
        """Expect a packet, now or at the next deadline that brings one, with these fields."""
        packet = self.next(limit=us(1e9))
        assert packet is not None, "nothing was sent"
        if opcode is not None:
            assert Opcode(packet.opcode) == opcode
        if at_us is not None:
            assert self.now == us(at_us), f"sent at {self.now / PS_PER_US} us"
        summary = {name: getattr(packet, name) for name in fields}
        assert summary == {name: int(value) for name, value in fields.items()}
        return packet

    def sends_nothing(self, until_us: float | None = None) -> None:
        """Expect silence until a time; without one, silence now."""
        packet = self.next(limit=self.now if until_us is None else us(until_us))
        assert packet is None, f"sent {Opcode(packet.opcode).name} at {self.now / PS_PER_US} us"

    def all_sent(self, free_ports: int | None = None) -> list[SimpleNamespace]:
        """Everything it wants to send now."""
        return list(self._outgoing(free_ports))

    def waits(self, until_us: float) -> None:
        """Let time pass; what becomes due is done, what wants to leave waits."""
        until = us(until_us)
        while (following := doors.next_deadline(self.engine, 0)) <= until:
            self.now = max(self.now, following)
            doors.expire(self.engine, self.now, 0)
        self.now = max(self.now, until)

    def next(self, limit: int) -> SimpleNamespace | None:
        while True:
            for packet in self._outgoing():
                return packet
            following = doors.next_deadline(self.engine, 0)
            if following > limit:
                self.now = max(self.now, limit)
                return None
            self.now = max(self.now, following)
            doors.expire(self.engine, self.now, 0)

    def completions(self) -> list[SimpleNamespace]:
        """Completions since the last look."""
        return [
            _copy(self.engine.completions, row) for row in iter(lambda: doors.next_completion(self.engine, 0), NONE)
        ]

    def events(self) -> list[SimpleNamespace]:
        return [_copy(self.engine.events, row) for row in iter(lambda: doors.next_event(self.engine, 0), NONE)]

    def _outgoing(self, free_ports: int | None = None) -> Iterator[SimpleNamespace]:
        free = (1 << self.planes) - 1 if free_ports is None else free_ports
        for _ in range(10_000):
            if doors.next_packet(self.engine, self.now, 0, free, 1) == 0:
                return
            yield _copy(self.engine.packets, 1)
        raise AssertionError("an endpoint that never stops sending")


def confirm(endpoint: Endpoint, cack: int, above: tuple[int, ...], at_us: float | None = None) -> None:
    """Answer the probe that asks whether what is missing has arrived since: it has not."""
    probe = endpoint.sends(Opcode.PROBE, at_us=at_us)
    endpoint.receives(sack(cack, above, is_probe_answer=1, ack_psn_offset=probe.probe_id))


def entropy_of(rotation: int, k: int) -> int:
    return 0xC000 | rotation << 8 | k


def rotation_of(entropy: int) -> int:
    return (entropy >> 8) & 0xF


def psns(packets: list[SimpleNamespace]) -> list[int]:
    """The PSNs of the data packets among these."""
    return [packet.psn for packet in packets if packet.opcode <= Opcode.WRITE_ONLY_IMM]


def only(packets: list[SimpleNamespace], opcode: Opcode) -> list[SimpleNamespace]:
    return [packet for packet in packets if packet.opcode == opcode]


def is_placed(place: int) -> bool:
    return place != NOWHERE


def _copy(table: Any, row: int) -> SimpleNamespace:
    record = np.asarray(table)[row]
    return SimpleNamespace(**{name: record[name].item() for name in record.dtype.names})
