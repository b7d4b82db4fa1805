"""The live side: record an endpoint behind real sockets, and replay a schedule through the live data path, in bytes.

A replay runs both halves of `iteration` as they are and replaces the kernel under them: the clock, recvmmsg and
sendmmsg read and write the same structures in memory, with the schedule in the kernel's place.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from openmrc.engine import endpoint as doors
from openmrc.engine.messages import PostStatus
from openmrc.engine.state.params import Settings
from openmrc.engine.state.tables import NONE, Completion, Event
from openmrc.live.attributes import ContextAttr, PeerAddress
from openmrc.live.datapath import handles as table_handles
from openmrc.live.datapath import remote_nics
from openmrc.live.datapath.libc import BOTH_CONTROLS, IP_TOS, IPPROTO_IP, MessageHeader
from openmrc.live.datapath.loop import attendance, iteration, link_state, operations, submission
from openmrc.live.datapath.packets import receive, transmit
from openmrc.live.datapath.rows import BATCH, COMMANDS, PORT_VALUES
from openmrc.live.host.addresses import PlaneAddress
from openmrc.live.host.peers import Peers
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.live.objects.context import Context
from openmrc.live.objects.records import Records
from openmrc.wire.codes import CONGESTED, DSCP, DSCP_TRIMMED, DSCP_TRIMMED_LASTHOP, ECT0, UDP_PORT, TrafficClass, Trim
from openmrc.wire.entropy import EvPlacement
from openmrc.wire.icrc import PREFIX_WORDS, flow, is_intact, prefix, seal, trailer_length
from openmrc.wire.layout import ICRC_LENGTH
from openmrc.wire.packet import NOWHERE
from tests.worlds.schedule import REQUEST, Recorder, Schedule, copied, headers_of, is_whole, length_of

HEADER_WORDS = len(MessageHeader.__annotations__)
MEMORY = 1 << 20  # bytes of a replayed endpoint's own memory, read and written
TRIM_DSCP = {Trim.TRIMMED: DSCP_TRIMMED, Trim.TRIMMED_LASTHOP: DSCP_TRIMMED_LASTHOP}


def address(number: int, plane: int) -> PlaneAddress:
    return PlaneAddress.parse(f"10.{plane}.{number // 250}.{1 + number % 250}:{UDP_PORT}")


def fields_of(row: type) -> list[str]:
    return list(row.__annotations__)


@dataclass
class Datagram:
    """What the data path gave to sendmmsg."""

    descriptor: int
    name: bytes
    tos: int
    body: bytes


class Kernel:
    """The system calls of the data path, over memory only."""

    def __init__(self) -> None:
        self.now = 0
        self.arriving: tuple[bytes, bytes, int] | None = None  # body, sockaddr of its sender, type of service
        self.sent: list[Datagram] = []

    def monotonic(self, words: Any, epoch: int) -> int:
        return self.now

    def receive_messages(self, descriptor: int, at: int, count: int, flags: int, timeout: int) -> int:
        if self.arriving is None:
            return 0
        body, name, tos = self.arriving
        self.arriving = None
        header = _words(at, HEADER_WORDS)
        ctypes.memmove(header[0], name, len(name))
        ctypes.memmove(_words(header[2], 2)[0], body, len(body))
        control = (ctypes.c_int64 * 3).from_address(header[4])
        control[0], control[1], control[2] = 17, IPPROTO_IP | IP_TOS << 32, tos
        summary = (ctypes.c_int64 * HEADER_WORDS).from_address(at)
        summary[5], summary[7] = 24, len(body)
        return 1

    def send_messages(self, descriptor: int, at: int, count: int, flags: int) -> int:
        for number in range(count):
            header = _words(at + number * HEADER_WORDS * 8, HEADER_WORDS)
            pieces = [_words(header[2] + vector * 16, 2) for vector in range(header[3])]
            body = b"".join(ctypes.string_at(base, length) for base, length in pieces)
            control = _words(header[4], 6)
            size = control[5] if header[5] == BOTH_CONTROLS else len(body)
            name = ctypes.string_at(header[0], header[1])
            for begin in range(0, len(body), size):
                self.sent.append(Datagram(descriptor, name, control[2], body[begin : begin + size]))
        return count


def _words(at: int, count: int) -> list[int]:
    return list((ctypes.c_int64 * count).from_address(at))


def sealed(headers: bytes, payload: Any, port: int, row: Any) -> bytes:
    """Return what follows the headers of a datagram from a source port, of a flow: payload, pad, ICRC."""
    arena, size = np.frombuffer(bytearray(headers) + bytes(8), np.uint8), len(payload)
    whole = len(headers) + size + trailer_length(size)
    crc = prefix(row.copy(), np.zeros(PREFIX_WORDS, np.int64), port, whole, arena.ctypes.data)
    length = seal(crc, arena, 0, len(headers), payload.ctypes.data, size, len(headers))
    return bytes(payload.tobytes()) + arena[len(headers) : len(headers) + length].tobytes()


class FakePorts:
    """Sockets that are only numbers: descriptor = plane for receiving, 1000 + EV row for sending."""

    def __init__(self, number: int, planes: int, evs: list[int]) -> None:
        self.addresses = [address(number, plane) for plane in range(planes)]
        self.placement = EvPlacement.UDP
        self.segmentation = True
        self._evs = evs
        self.receivers = [SimpleNamespace(fileno=lambda plane=plane: plane) for plane in range(planes)]
        self.senders = [
            [SimpleNamespace(fileno=lambda k=k, p=plane: 1000 + p * len(evs) + k) for k in range(len(evs))]
            for plane in range(planes)
        ]
        self.source_ports = [evs] * planes

    def evs(self, plane: int) -> list[int]:
        return self._evs

    def sender(self, descriptor: int) -> tuple[int, int]:
        """Return the plane and the EV of a sending socket."""
        plane, k = divmod(descriptor - 1000, len(self._evs))
        return plane, self._evs[k]


class LiveEndpoint:
    """One endpoint behind the live data path."""

    def __init__(self, schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
        before, number = schedule.before, schedule.endpoint
        node = before.endpoints[number]
        planes = node.port_count
        evs = sorted({int(value) for value in np.asarray(before.evs)["value"]})
        assert evs[-1] < PORT_VALUES
        self.nic = number
        self.sockets = FakePorts(number, planes, evs)
        attr = ContextAttr(evs_per_plane=len(evs), max_peers=len(before.endpoints), poll_us=0)
        self.runtime = EndpointRuntime(self.sockets, attr, Settings(), capturing=False)  # type: ignore[arg-type]
        self.datapath = self.runtime.datapath
        self.datapath.nic[0].endpoint = number
        self.engine = copied(before)._replace(packets=self.runtime.engine.packets)
        self.memory = np.random.default_rng(number).integers(0, 256, MEMORY, np.uint8)
        self.region = np.zeros(MEMORY, np.uint8)
        np.asarray(self.engine.regions)["local"][node.region_base : node.region_base + node.region_count] = (
            self.region.ctypes.data
        )
        peers = Peers(self.runtime, len(before.endpoints), None)
        for peer in range(len(before.endpoints)):
            planes_of = tuple(str(address(peer, plane)) for plane in range(planes))
            assert peers.take(peers.prepare(PeerAddress(planes=planes_of))) == peer
        self.completions = Records(self.runtime, 0, 1 << 10, lambda row, qpn: "")
        self.datapath.cqs[0].channel = NONE
        self.datapath.cq_of[:] = 0
        self.events: list[dict[str, int]] = []
        self.kernel = Kernel()
        self.masks: list[int] = []
        for module in (iteration, transmit):
            monkeypatch.setattr(module, "monotonic", self.kernel.monotonic)
        monkeypatch.setattr(receive, "receive_messages", self.kernel.receive_messages)
        monkeypatch.setattr(transmit, "send_messages", self.kernel.send_messages)
        monkeypatch.setattr(transmit, "next_packet", self._next_packet)
        monkeypatch.setattr(transmit, "put_data_first", lambda *_: None)  # the schedule's turn to say

    def _next_packet(self, engine: Any, now: int, endpoint: int, free_ports: int, packet: int) -> int:
        """Let ports be free as they were: which port can take a packet is the world's to say, not the engine's."""
        return int(doors.next_packet(engine, now, endpoint, self.masks.pop(0), packet))

    def iterate(self, now: int, ready: int = 0, batch: int = 0, looks: bool = False) -> None:
        self.kernel.now = now
        self.datapath.leases[0].sleeps_until = 1
        iteration.absorb_into(self.engine, self.datapath, ready, looks)
        iteration.emit_from(self.engine, self.datapath, batch, 0)

    def receive(self, now: int, packet: dict[str, int]) -> None:
        """Let a datagram arrive, sealed as the live sender seals it."""
        plane, source = packet["port"], packet["source"]
        there, here = address(source, plane), address(self.nic, plane)
        payload = np.random.default_rng(packet["psn"]).integers(0, 256, packet["payload_length"], np.uint8)
        body = headers_of(packet)
        if is_whole(packet):
            body += sealed(body, payload, packet["entropy"], flow(there.ip, here.ip, here.port))
        name = PlaneAddress(there.ip, packet["entropy"]).packed()
        dscp = DSCP[TrafficClass(packet["traffic_class"])] if is_whole(packet) else TRIM_DSCP[Trim(packet["trimmed"])]
        tos = dscp << 2 | (CONGESTED if packet["marked"] else ECT0)
        self.kernel.arriving = (body, name, tos)
        refused = self.datapath.planes[plane].refused
        self.iterate(now, ready=1 << plane)
        assert self.kernel.arriving is None
        assert self.datapath.planes[plane].refused == refused, "the live world refused the packet"
        arrived = self.engine.packets[0]
        if arrived.payload != NOWHERE and arrived.payload_length > 0:
            place = arrived.payload - self.region.ctypes.data
            assert np.array_equal(self.region[place : place + len(payload)], payload)

    def send(self, now: int, masks: list[int]) -> list[Datagram]:
        """Take a turn that asks for as many packets as there are masks; return what left."""
        self.masks = list(masks)
        self.kernel.sent = []
        self.iterate(now, batch=len(masks))
        return self.kernel.sent

    def check(self, datagram: Datagram, wanted: dict[str, int]) -> None:
        """Compare a datagram with the packet that the other world's engine emitted."""
        plane, ev = self.sockets.sender(datagram.descriptor)
        assert (plane, ev) == (wanted["port"], wanted["entropy"])
        assert datagram.name == address(wanted["destination"], plane).packed(0)
        assert datagram.tos == DSCP[TrafficClass(wanted["traffic_class"])] << 2 | ECT0
        headers = headers_of(wanted)
        assert datagram.body[: len(headers)] == headers
        assert len(datagram.body) == length_of(wanted)
        begin, length = wanted["payload"], wanted["payload_length"]
        if length:
            sent = datagram.body[len(headers) : len(headers) + length]
            assert sent == self.memory[begin : begin + length].tobytes()
        assert len(datagram.body) - len(headers) - length in range(ICRC_LENGTH, ICRC_LENGTH + 4)
        here, there = address(self.nic, plane), address(wanted["destination"], plane)
        row = flow(here.ip, there.ip, there.port).copy()
        body = np.frombuffer(bytearray(datagram.body), np.uint8)
        crc = prefix(row, np.zeros(PREFIX_WORDS, np.int64), ev, len(body), body.ctypes.data)
        assert is_intact(crc, body, 0, len(body))

    def post(self, now: int, given: dict[str, int]) -> bool:
        """Submit a write; return whether the engine took it."""
        nic = self.datapath.nic[0]
        row = self.datapath.commands[nic.posted & COMMANDS - 1]
        row.is_receive = 0
        for name in ("qp", *REQUEST):
            setattr(row, name, given[name])
        row.local = self.memory.ctypes.data + given["local"]
        nic.posted += 1
        tail = self.engine.qps[given["qp"]].message_tail
        self.iterate(now)
        return bool(self.engine.qps[given["qp"]].message_tail > tail)

    def taken(self, door: str) -> dict[str, int]:
        """Return the next completion or event as the live world gives it to programs."""
        if door == "next_completion":
            record = self.completions.ring[self.datapath.cqs[0].taken & self.completions.mask]
            assert self.completions.ready() > 0, "no completion"
            self.completions.remove(1)
            return {name: int(record[name]) for name in fields_of(Completion)}
        handles = np.zeros(2 * table_handles.HANDLE_BYTES, np.uint8)
        table_handles._store.py_func(self.engine, self.datapath, handles.ctypes.data)
        if not self.events:
            count = attendance.take_events.py_func(handles.ctypes.data)
            self.events = [
                {name: getattr(self.datapath.event_records[index], name) for name in fields_of(Event)}
                for index in range(count)
            ]
        assert self.events, "no event"
        return self.events.pop(0)


def replay(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> LiveEndpoint:
    """Take a schedule through the live data path; every answer must be the recorded one."""
    with monkeypatch.context() as patch:
        world = LiveEndpoint(schedule, patch)
        steps = schedule.steps
        at = 0
        while at < len(steps):
            step = steps[at]
            at += 1
            match step.door:
                case "receive":
                    world.receive(step.now, step.given["packet"])
                case "next_packet":
                    group = [step]
                    while len(group) < BATCH // 2 and group[-1].answer and at < len(steps):
                        if steps[at].door != "next_packet" or steps[at].now != step.now:
                            break
                        group.append(steps[at])
                        at += 1
                    left = world.send(step.now, [each.given["free_ports"] for each in group])
                    wanted = [each.answer for each in group if each.answer]
                    assert len(left) == len(wanted), f"step {at}: {len(left)} packets instead of {len(wanted)}"
                    by_order = iter(wanted)
                    for datagram in left:
                        world.check(datagram, next(by_order))
                case "put_data_first":
                    doors.put_data_first(world.engine, world.nic, step.given["packets"])
                case "expire":
                    world.iterate(step.now, looks=True)
                case "next_completion" | "next_event":
                    summary = world.taken(step.door)
                    assert summary == {name: step.answer[name] for name in summary}, f"step {at}"
                case "post_write":
                    assert world.post(step.now, step.given) == (step.answer == PostStatus.OK)
                case "set_port":
                    doors.set_port(world.engine, step.now, world.nic, step.given["port"], step.given["up"])
                case _:
                    raise AssertionError(step.door)
    return world


DOORS = {
    receive: ("receive",),
    transmit: ("next_packet", "put_data_first"),
    attendance: ("next_event",),
    iteration: ("expire",),
    submission: ("next_completion", "post_receive", "post_write"),
    link_state: ("set_port",),
}


def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let endpoints that are opened from now on run as plain Python."""
    for module, name in (
        (table_handles, "_store"),
        *((attendance, each.py_func.__name__) for each in attendance.ENTRIES),
        (iteration, "take_in"),
        (iteration, "send_out"),
        (remote_nics, "add_peer"),
        (remote_nics, "remove_peer"),
        (operations, "change"),
        (operations, "give"),
        (operations, "move"),
    ):
        monkeypatch.setattr(module, name, getattr(module, name).py_func)
    for module in (attendance, operations, remote_nics):
        monkeypatch.setattr(module, "ENTRIES", ())


def record(contexts: Sequence[Context], during: Callable[[], None]) -> list[Schedule]:
    """Return what running endpoints, on real sockets, were asked while `during` ran."""
    motors = [context.nic.runtime for context in contexts]
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        with ExitStack() as inside:
            for runtime in motors:
                inside.enter_context(runtime.locked())
            recorders: list[Recorder] = []
            for runtime in motors:  # each passes on what it is asked to the one before
                recorders.append(Recorder(recorders[-1] if recorders else doors, runtime.engine, 0))
            for module, names in DOORS.items():
                for name in names:
                    patch.setattr(module, name, getattr(recorders[-1], name))
        during()
        for runtime in motors:
            stack.enter_context(runtime.locked())
        return [recorder.close() for recorder in recorders]
