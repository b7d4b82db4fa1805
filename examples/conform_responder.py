"""A responder of MRC in the standard library, written from docs/wire.md and docs/conformance.md, with its adapter.

    mrc conform --device 'python3 examples/conform_responder.py' responder

It has no retransmissions of its own, no writes, no Dynamic MPR, and IPv4 only: a skeleton to begin an adapter with.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import struct
import sys
import zlib
from ipaddress import IPv4Address
from typing import Any

FIRST, MIDDLE, LAST, LAST_IMM, ONLY, ONLY_IMM = 0xC6, 0xC7, 0xC8, 0xC9, 0xCA, 0xCB
ACKNOWLEDGE, ENDPOINT_REQUEST, ENDPOINT_RESPONSE, SACK, NACK, PROBE = 0xD1, 0xD8, 0xD9, 0xDC, 0xDD, 0xDE
WRITES = (FIRST, MIDDLE, LAST, LAST_IMM, ONLY, ONLY_IMM)
ENDING, WITH_IMMEDIATE = (LAST, LAST_IMM, ONLY, ONLY_IMM), (LAST_IMM, ONLY_IMM)
ACK, INVALID_REQUEST, ACCESS_ERROR, OPERATIONAL_ERROR = 0x1F, 0x61, 0x62, 0x63
TRIMMED, TRIMMED_LASTHOP = 1, 2
RING, HALF = 1 << 24, 1 << 23
QPN, R_KEY, ADDRESS, FIRST_PATH = 0x31_0003, 0xAABB_CC01, 0x10_0000_0000, 504
SACK_BYTES = 16 * 1024  # unreported bytes that make a SACK due
OVERHEAD = 88  # nominal bytes of a write beside its payload


def icrc(source: str, destination: str, port: int, to: int, body: bytes) -> bytes:
    """Return the last four bytes of a packet over IPv4, identification 0 and DF."""
    length = 8 + len(body) + 4
    ip = struct.pack("!BBHHHBBH", 0x45, 0xFF, 20 + length, 0, 0x4000, 0xFF, 17, 0xFFFF)
    ip += IPv4Address(source).packed + IPv4Address(destination).packed
    udp = struct.pack("!HHHH", port, to, length, 0xFFFF)
    return zlib.crc32(b"\xff" * 8 + ip + udp + body[:4] + b"\xff" + body[5:]).to_bytes(4, "little")


def ahead(psn: int, base: int) -> int:
    """Return how far a PSN is ahead of another on the ring; below zero if it is behind."""
    return (psn - base + HALF) % RING - HALF


class Write:
    """The headers of a write."""

    def __init__(self, body: bytes, trimmed: int, ecn: int, entropy: int) -> None:
        self.opcode, self.trimmed, self.marked, self.entropy = body[0], trimmed, ecn == 3, entropy
        self.psn = int.from_bytes(body[9:12], "big")
        self.asks, self.rtx, has_time = body[8] >> 7, body[8] >> 5 & 1, body[8] >> 4 & 1
        self.rqmsn, _ = struct.unpack_from("!HH", body, 12)
        self.time = struct.unpack_from("!H", body, 16)[0] if has_time else 0
        at = 20 if has_time else 16
        self.address = self.key = self.length = 0
        self.immediate: int | None = None
        self.payload = b""
        if trimmed:
            return
        self.address, self.key, self.length = struct.unpack_from("!QII", body, at)
        at += 16
        if self.opcode in WITH_IMMEDIATE:
            self.immediate = struct.unpack_from("!I", body, at)[0]
            at += 4
        pad, end = body[1] >> 4 & 3, len(body) - 4
        if at + pad > end:
            raise ValueError("shorter than its headers and its pad")
        self.payload = body[at : end - pad]


class QueuePair:
    """What a responder keeps of one connection."""

    def __init__(self, wanted: dict[str, Any], peer: dict[str, Any]) -> None:
        self.wanted, self.peer = wanted, peer
        self.memory = bytearray(wanted["bytes"])
        self.expected = peer["psn"]  # first PSN that has not arrived
        self.waiting: dict[int, Write] = {}  # arrived beyond a hole
        self.unreported: set[int] = set()
        self.messages = self.immediates = self.received = self.since_sack = 0
        self.receives = wanted["receives"]
        self.owes_sack = self.asked_at_hole = self.is_dead = False


class Responder:
    """One queue pair at a time, on loopback or on the addresses that were given."""

    def __init__(self, options: argparse.Namespace) -> None:
        process = os.getpid() & 0x3FFF
        self.addresses = options.plane or [f"127.{128 + (process >> 8)}.{process & 255}.{n + 1}" for n in range(8)]
        self.port = options.port
        self.dscps = {name: getattr(options, name) for name in ("data", "control", "trimmed", "lasthop")}
        self.sockets: list[socket.socket] = []
        self.senders: list[socket.socket] = []
        self.current: QueuePair | None = None
        self.down: set[int] = set()

    # The adapter's contract

    def open(self, wanted: dict[str, Any]) -> dict[str, Any]:
        self.close()
        self.wanted = wanted
        for plane, address in enumerate(self.addresses[: wanted["planes"]]):
            for port, sockets in ((self.port, self.sockets), (self.source_port(plane), self.senders)):
                sockets.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                sockets[-1].setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
                sockets[-1].setsockopt(socket.IPPROTO_IP, socket.IP_TOS, self.dscps["control"] << 2 | 2)
                sockets[-1].bind((address, port))
        planes = [f"{address}:{self.port}" for address in self.addresses[: wanted["planes"]]]
        own = {"device": "example responder", "planes": planes, "qpn": QPN, "psn": 1, "addr": ADDRESS, "r_key": R_KEY}
        own |= {"length": wanted["bytes"], "dscps": self.dscps, "first_path": FIRST_PATH, "trim_nack": True}
        return own | {name: wanted[name] for name in ("mtu", "mpr", "max_wimm")}

    def connect(self, peer: dict[str, Any]) -> None:
        self.current = QueuePair(self.wanted, peer)
        self.peers = [(host, int(port)) for host, _, port in (each.rpartition(":") for each in peer["planes"])]

    def close(self) -> None:
        for each in self.sockets + self.senders:
            each.close()
        self.sockets, self.senders, self.current, self.down = [], [], None, set()

    @property
    def qp(self) -> QueuePair:
        """The connection, once there is one."""
        if self.current is None:
            sys.exit("not connected")
        return self.current

    # Packets out

    def source_port(self, plane: int) -> int:
        return 0xC000 + 1024 * plane + FIRST_PATH

    def send(self, plane: int, opcode: int, headers: bytes, psn: int = 0, rtx: int = 0) -> None:
        plane = next((each for each in (plane, *range(len(self.senders))) if each not in self.down), plane)
        bth = struct.pack("!BBHIB", opcode, 0, 0xFFFF, self.qp.peer["qpn"], rtx << 5) + psn.to_bytes(3, "big")
        body = bth + headers
        (host, to), port = self.peers[plane], self.source_port(plane)
        self.senders[plane].sendto(body + icrc(self.addresses[plane], host, port, to, body), (host, to))

    def contexts(self) -> bytes:
        return struct.pack("!HH", QPN & 0xFFFF, self.qp.peer["qpn"] & 0xFFFF)

    def sack(self, plane: int, about: Write, probe: int | None = None) -> None:
        qp = self.qp
        cack = (qp.expected - 1) % RING
        beyond = sorted(ahead(psn, cack) for psn in qp.waiting)
        news = sorted(ahead(psn, cack) for psn in qp.unreported if psn in qp.waiting)
        base = max(1, min(news[0], beyond[-1] - 63)) if news else 1
        shown = [each for each in beyond if 0 <= each - base < 64]
        qp.unreported -= {(cack + each) % RING for each in shown}
        offset = ahead(about.psn, cack) if probe is None else probe
        headers = bytes([0, int(about.marked) << 5 | (probe is not None) << 1]) + struct.pack("!H", offset & 0xFFFF)
        headers += struct.pack("!I", about.entropy) + self.contexts() + b"\0" + cack.to_bytes(3, "big")
        headers += struct.pack("!BBHQ", 0, 0, base, sum(1 << each - base for each in shown))
        headers += struct.pack("!HHI", about.time, len(beyond), -(-qp.received // 256) % RING)
        self.send(plane, SACK, headers, cack, about.rtx)
        qp.since_sack, qp.owes_sack = 0, False

    def nack(self, plane: int, about: Write) -> None:
        headers = bytes([0, 0, about.trimmed, 0]) + struct.pack("!I", about.entropy) + self.contexts()
        headers += b"\0" + about.psn.to_bytes(3, "big") + struct.pack("!BBH", 2 << 4, 0, about.time)
        self.send(plane, NACK, headers, about.psn)

    def acknowledge(self, plane: int, psn: int, syndrome: int = ACK) -> None:
        self.send(plane, ACKNOWLEDGE, bytes([syndrome]) + (self.qp.messages % RING).to_bytes(3, "big"), psn)

    # Packets in

    def receive(self, plane: int, body: bytes, tos: int, source: tuple[str, int]) -> None:
        qp = self.current
        trimmed = {self.dscps["trimmed"]: TRIMMED, self.dscps["lasthop"]: TRIMMED_LASTHOP}.get(tos >> 2, 0)
        if qp is None or qp.is_dead or source[0] != self.peers[plane][0] or len(body) < 16 or body[1] & 15:
            return
        if not trimmed and icrc(source[0], self.addresses[plane], source[1], self.port, body[:-4]) != body[-4:]:
            return
        to = int.from_bytes(body[5:8], "big")
        if body[0] == ENDPOINT_REQUEST and to == 2 and len(body) == 32:
            self.answer_endpoint(plane, body)
        elif body[0] == PROBE and to == QPN and len(body) == 32:
            probe = Write(body[:12] + bytes(4), TRIMMED, tos & 3, source[1])
            probe.psn, probe.time = qp.expected, struct.unpack_from("!H", body, 24)[0]
            qp.unreported |= set(qp.waiting)
            self.sack(plane, probe, struct.unpack_from("!H", body, 16)[0])
        elif body[0] in WRITES and to == QPN and not len(body) % 4:
            try:
                write = Write(body, trimmed, tos & 3, source[1])
            except (ValueError, struct.error):
                return
            self.on_write(plane, write)

    def answer_endpoint(self, plane: int, body: bytes) -> None:
        operation, mask = body[13] & 3, struct.unpack_from("!I", body, 16)[0]
        if operation == 0:
            self.down = {each for each in range(len(self.senders)) if not mask >> each + 1 & 1}
        headers = bytes([0, operation << 2]) + bytes(26) + body[24:26] + bytes(6)
        self.send(plane, ENDPOINT_RESPONSE, headers, int.from_bytes(body[9:12], "big"))

    def on_write(self, plane: int, write: Write) -> None:
        qp, distance = self.qp, ahead(write.psn, self.qp.expected)
        if distance >= qp.wanted["mpr"] * 128 or distance <= 1 - HALF:
            return  # beyond the window, or neither old nor new
        if distance < 0 or write.psn in qp.waiting:
            self.sack(plane, write)
            if distance < 0 and not write.trimmed:
                self.acknowledge(plane, write.psn)
        elif write.trimmed:
            self.nack(plane, write)
            if write.asks and qp.unreported:
                self.sack(plane, write)
            qp.owes_sack |= bool(write.asks)
        elif refusal := self.refusal(write):
            self.acknowledge(plane, write.psn, refusal)
            qp.is_dead = True
        else:
            self.place(plane, write)

    def refusal(self, write: Write) -> int:
        """Return the syndrome that refuses a new packet; 0 if it may be placed."""
        qp, at, size = self.qp, write.address - ADDRESS, len(write.payload)
        mtu, begins = qp.wanted["mtu"], write.opcode in (FIRST, MIDDLE)
        whole = mtu if begins else write.length if write.opcode in (ONLY, ONLY_IMM) else (write.length - 1) % mtu + 1
        if size > mtu or size != whole:
            return INVALID_REQUEST
        inside = at >= 0 and at + size <= len(qp.memory) and write.key == R_KEY and qp.wanted["writable"]
        if write.length and not inside:
            return ACCESS_ERROR
        too_many = write.immediate is not None and (write.rqmsn - qp.immediates) % (1 << 16) >= qp.wanted["max_wimm"]
        return INVALID_REQUEST if too_many else 0

    def place(self, plane: int, write: Write) -> None:
        qp = self.qp
        at = write.address - ADDRESS
        qp.memory[at : at + len(write.payload)] = write.payload
        qp.waiting[write.psn] = write
        qp.unreported.add(write.psn)
        qp.received += len(write.payload) + OVERHEAD
        qp.since_sack += max(len(write.payload), 1024)
        has_moved, has_ended = False, False
        while (found := qp.waiting.pop(qp.expected, None)) is not None:
            if found.immediate is not None and not self.hand_over(plane, found):
                return
            qp.unreported.discard(qp.expected)
            qp.expected = (qp.expected + 1) % RING
            has_moved, has_ended = True, has_ended or found.opcode in ENDING
            qp.messages += found.opcode in ENDING
        closes = has_moved and not qp.waiting and qp.asked_at_hole
        qp.asked_at_hole = bool(qp.waiting) and (qp.asked_at_hole or bool(write.asks))
        if write.asks or write.marked or write.rtx or closes or qp.owes_sack or qp.since_sack > SACK_BYTES:
            self.sack(plane, write)
        if has_moved and (has_ended or write.asks):
            self.acknowledge(plane, (qp.expected - 1) % RING)

    def hand_over(self, plane: int, write: Write) -> bool:
        """Give an immediate to the application; without a receive the connection ends."""
        qp = self.qp
        qp.immediates = (qp.immediates + 1) % (1 << 16)
        if not qp.receives:
            self.acknowledge(plane, write.psn, OPERATIONAL_ERROR)
            qp.is_dead = True
            return False
        qp.receives -= 1
        say({"event": "receive", "immediate": write.immediate, "length": write.length})
        return True


def say(answer: dict[str, Any]) -> None:
    """Answer the tester, or report an event."""
    print(json.dumps(answer), flush=True)


def answer(device: Responder, request: dict[str, Any]) -> dict[str, Any]:
    """Do what the tester asks."""
    match request["do"]:
        case "open":
            return device.open(request["wanted"])
        case "connect":
            device.connect(request["peer"])
        case "memory":
            begin = request["offset"]
            return {"data": device.qp.memory[begin : begin + request["length"]].hex()}
        case "close":
            device.close()
        case other:
            return {"unsupported": f"no {other} here"}
    return {}


def main() -> None:
    """Serve the tester's requests and the peer's packets until stdin ends."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--plane", action="append", help="address of a plane; may be repeated")
    options.add_argument("--port", type=int, default=4791)
    for name, usual in (("data", 4), ("control", 46), ("trimmed", 12), ("lasthop", 16)):
        options.add_argument(f"--{name}", type=int, default=usual, metavar="DSCP")
    device, said = Responder(options.parse_args()), b""
    while True:
        waiting: list[Any] = [0, *device.sockets]
        for ready in select.select(waiting, [], [])[0]:
            if ready == 0:
                part = os.read(0, 1 << 16)
                if not part:
                    sys.exit()
                *requests, said = (said + part).split(b"\n")
                for request in requests:
                    say(answer(device, json.loads(request)))
            elif ready in device.sockets:
                body, notes, _, source = ready.recvmsg(1 << 16, 64)
                tos = next((note[0] for level, kind, note in notes if (level, kind) == (0, socket.IP_TOS)), 0)
                device.receive(device.sockets.index(ready), body, tos, source)


main()
