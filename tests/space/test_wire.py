"""Packets of every kind against scapy."""

from __future__ import annotations

from types import SimpleNamespace

from scapy.contrib import roce
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6

from openmrc.wire.codes import Opcode
from openmrc.wire.headers import BTH, WITH_PAYLOAD, Header, stack
from openmrc.wire.message import compose, parse

from ..wire.packets import framed
from .drawing import drawn

NAMES = {4: ("10.0.0.1", "10.0.0.2"), 6: ("fd00::1", "fd00::2")}


def values(header: Header, kind: str, timestamped: bool) -> dict[str, int]:
    """Return a value for every field that a sender may choose."""
    chosen: dict[str, int] = {}
    for field in sorted(header.fields, key=lambda field: field.signed):  # what makes one unsigned comes first
        if field.sends is None and not (header is BTH and field.name in ("opcode", "pad", "ts")):
            signed = field.signed and not chosen.get(field.unsigned_when, 0)
            low, high = (-(1 << field.width - 1), (1 << field.width - 1) - 1) if signed else (0, (1 << field.width) - 1)
            mixed = 0x5A5A5A5A5A5A5A5A5A5A5A5A % (high + 1) if len(chosen) % 2 else low
            chosen[field.name] = {"zero": 0, "one": min(1, high), "most": high, "mixed": mixed}[kind]
    return chosen | ({"ts": int(timestamped)} if header is BTH else {})


@drawn("wire", few=16)
def test_scapy_reads_and_seals_the_same_packet(row: SimpleNamespace) -> None:
    opcode, (source, destination) = Opcode[row.opcode], NAMES[row.family]
    payload = bytes(range(256)) * 16 if opcode in WITH_PAYLOAD else b""
    headers = {each.name: values(each, row.fields, row.timestamped) for each in stack(opcode, row.timestamped)}
    message = compose(opcode, payload[: row.payload], **headers)
    ours = framed(message, source, destination, port=row.source_port, traffic_class=row.traffic_class)
    network = (IP if row.family == 4 else IPv6)(ours)
    assert network.sport == row.source_port
    assert (network.tos if row.family == 4 else network.tc) == row.traffic_class
    body = bytes(network[UDP].payload)
    assert len(body) == network[UDP].len - 8
    theirs = roce.BTH(body)
    bth = headers["bth"]
    assert (theirs.opcode, theirs.dqpn, theirs.psn) == (opcode, bth["dqp"], bth["psn"])
    assert theirs.padcount == -len(payload[: row.payload]) % 4
    network[UDP].remove_payload()
    sealed = roce.BTH(body[:-4] + bytes(4))
    sealed.icrc = None
    assert bytes(network / sealed)[-4:] == body[-4:]
    parsed = parse(body)
    assert bytes(parsed.payload) == payload[: row.payload]
    for name, chosen in headers.items():
        assert {field: getattr(parsed, name)[field] for field in chosen} == chosen
