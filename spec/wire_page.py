"""Generates docs/wire.md from the table of headers.

`python -m spec.wire_page` writes it; a test compares it with the table.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

from openmrc.wire.codes import (
    DSCP,
    DSCP_TRIMMED,
    DSCP_TRIMMED_LASTHOP,
    ECT0,
    UDP_PORT,
    NackReason,
    Opcode,
    Syndrome,
    TrafficClass,
)
from openmrc.wire.entropy import EvPlacement, flow_label, source_port
from openmrc.wire.headers import HEADERS, STACKS, TSETH, WITH_PAYLOAD, Header, HeaderField, length, stack
from openmrc.wire.icrc import icrc
from openmrc.wire.ip import IPV4_LENGTH, UDP_LENGTH, datagram
from openmrc.wire.layout import ICRC_LENGTH
from openmrc.wire.message import REASONS, compose
from openmrc.wire.wireshark import filter_name

WORKED_PORT = 0xC001
HEX_PER_LINE = 32  # bytes
PAGE_FILE = Path(__file__).parent.parent / "docs" / "wire.md"

_INTRODUCTION = """\
# The wire format

Made from `openmrc/wire/headers.py` by `python -m spec.wire_page`; edit the tables, not this page.

An MRC packet is a UDP datagram to port 4791 (4971 is accepted too) with the headers below, then the payload,
filled up to a multiple of 4 bytes, then four bytes of ICRC. All fields are big-endian, except that the ICRC goes
least significant byte first. Bits that no row names are reserved: sent as zero, ignored on arrival. RoCEv2 has the
same port: bits 7:5 of the opcode are `0b110` for MRC.

"""

_ICRC = """\
## ICRC

The CRC-32 of Ethernet (polynomial `0x04C11DB7`, bits reflected, begins with ones, ends inverted: `zlib.crc32`) over

1. eight bytes of ones,
2. the IP header, where these are taken as ones: of IPv4 type of service, time to live and header checksum; of IPv6
   traffic class, flow label and hop limit. With SRv6 it is the inner header; if the destination is the path, the
   final one,
3. the UDP header, its checksum taken as ones,
4. all from BTH to the pad, byte 4 of BTH taken as ones.

IPv4 identification and flags are covered as they are sent. An endpoint on sockets cannot see them: it sends
identification 0 with DF (RFC 6864) and takes no other. The UDP checksum itself may be 0.

One write of 5 bytes from 192.0.2.1 to 192.0.2.2, IPv4 header first:

"""

_NUMBERS = """\
## What stands in BTH.psn

| packet | number |
|---|---|
| writes | their PSN: the next on a ring of 24 bits, of a repetition the same again |
| ACKNOWLEDGE | the newest PSN of those received without a hole; of a NAK that of the refused write |
| SACK, NACK | cack_psn, nack_psn; nothing is published, so whatever arrives is taken |
| PROBE | 0; it consumes no number |
| ENDPOINT_REQUEST, ENDPOINT_RESPONSE | probe_id in the low 16 bits; dqp is 2 |

"""

_TRIMMED = """\
## What is left of a trimmed packet

A switch cuts a write behind some bytes of its headers and changes its DSCP. Payload and ICRC are gone; the lengths in
the IP and UDP headers may be those of the whole packet. BTH, METH and TSETH must be left, for the NACK names PSN and
timestamp; nothing else is read. Its ICRC is not checked.

## Nominal bytes

`rcvd_bytes` counts each PSN once with the length in its UDP header and 40 bytes more (section 8.3.1): payload and pad
and 88 with a timestamp. The sum is divided by 256, rounded up, and sent modulo 2^24.

"""

_CLASSES = {
    TrafficClass.CONTROL: "SACK, NACK, ACKNOWLEDGE, ENDPOINT_RESPONSE",
    TrafficClass.TRIMMABLE: "writes, first transmission; probes",
    TrafficClass.TRIMMABLE_RETX: "writes, sent again",
    TrafficClass.NO_TRIM: "writes to a responder that does not answer trimmed packets",
}
_REASONS = {
    NackReason.TRIMMED: "a switch trimmed it: send it again, skip the EV",
    NackReason.TRIMMED_LASTHOP: "the last switch did: send it again; the path is not to blame",
    NackReason.NO_BITMAP: "no room to record it: send it again, counts as a retry",
    NackReason.NO_PKT_BUFFER: "no buffer: likewise",
    NackReason.NO_RESOURCE: "something else is short: likewise",
    NackReason.PSN_OOR_WINDOW: "beyond the window: likewise",
    NackReason.UNEXP_EVENT: "the connection is broken: it ends with a remote operational error",
}
_PLACEMENTS = {
    EvPlacement.UDP: "16 bits, IPv4 or IPv6",
    EvPlacement.ECMP: "over IPv4 only the half in the port",
    EvPlacement.STEV: "subfields read by switches, port first",
    EvPlacement.STEV_LABEL_FIRST: "subfields read by switches, flow label first",
    EvPlacement.SRV6: "14 bits: the index of the EV; the path is the outer address",
}
_SYNDROMES = {
    Syndrome.ACK: "acknowledgement; MRC has no credits",
    Syndrome.INVALID_REQUEST: "NAK, invalid request: not as long as its place in the message says, too many immediates",
    Syndrome.REMOTE_ACCESS_ERROR: "NAK, remote access error: key, rights or bounds of the region",
    Syndrome.REMOTE_OPERATIONAL_ERROR: "NAK, remote operational error: no receive for an immediate",
}


def page() -> str:
    """Return the page as Markdown."""
    headers = "".join(_header(header) for header in HEADERS)
    rules = _ICRC + _worked() + _classes() + _NUMBERS + _codes() + _TRIMMED
    return _INTRODUCTION + _packets() + headers + rules + _placements() + _refusals()


def _worked() -> str:
    """Return a whole packet, what its ICRC covers, and the ICRC."""
    source, destination = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2")
    write = compose(
        Opcode.WRITE_ONLY,
        b"hello",
        bth={"dqp": 0x123456, "a": 1, "ts": 1, "psn": 0xABCDEF},
        meth={"msn": 7},
        tseth={"tx_timestamp": 0x0102},
        reth={"va": 0x7F00_0000_1000, "r_key": 0x11223344, "dmalen": 5},
    ).emit()
    traffic_class = DSCP[TrafficClass.TRIMMABLE] << 2 | ECT0
    udp_at, body_at = IPV4_LENGTH, IPV4_LENGTH + UDP_LENGTH
    ends = source, destination, WORKED_PORT, UDP_PORT
    unsealed = datagram(*ends, write + bytes(ICRC_LENGTH), traffic_class=traffic_class)
    value = icrc(unsealed[:udp_at], unsealed[udp_at:body_at], write).to_bytes(ICRC_LENGTH, "big")
    sent = datagram(*ends, write + value, traffic_class=traffic_class)
    covered = bytearray(b"\xff" * 8 + sent[:body_at] + write)
    for at in (1, 8, 10, 11, udp_at + 6, udp_at + 7, body_at + 4):  # in the IP header: TOS, TTL, checksum
        covered[8 + at] = 0xFF
    parts = ("sent", sent), ("covered", bytes(covered)), ("ICRC", value)
    return "```\n" + "".join(f"{name:<8} {_lines(data)}\n" for name, data in parts) + "```\n\n"


def _lines(data: bytes) -> str:
    """Return bytes as hexadecimal digits, 32 a line."""
    lines = [data[at : at + HEX_PER_LINE].hex(" ", 4) for at in range(0, len(data), HEX_PER_LINE)]
    return "\n         ".join(lines)


def _classes() -> str:
    rows = [f"| {each.name} | {DSCP[each]} | {carries} |\n" for each, carries in _CLASSES.items()]
    rows += [f"| TRIMMED | {DSCP_TRIMMED} | writes that a switch trimmed |\n"]
    rows += [f"| TRIMMED_LASTHOP | {DSCP_TRIMMED_LASTHOP} | writes that the last switch trimmed |\n"]
    head = "## Traffic classes\n\nA deployment chooses the numbers; these are those of public examples."
    head += " The two bits of ECN are `10`.\n\n"
    return head + "| class | DSCP | carries |\n|---|---|---|\n" + "".join(rows) + "\n"


def _codes() -> str:
    reasons = [f"| {int(each)} | {each.name} | {meaning} |\n" for each, meaning in _REASONS.items()]
    syndromes = [f"| `{int(each):#04x}` | {each.name} | {meaning} |\n" for each, meaning in _SYNDROMES.items()]
    text = "## NACK reasons\n\n| nack_reason | name | meaning |\n|---|---|---|\n" + "".join(reasons)
    text += "\n## Syndromes of an ACKNOWLEDGE\n\n| syndrome | name | meaning |\n|---|---|---|\n" + "".join(syndromes)
    return text + "\n"


def _packets() -> str:
    rows = [_packet(opcode) for opcode in STACKS]
    head = "| opcode | packet | headers | bytes without payload, with ICRC |\n|---|---|---|---|\n"
    return "## Packets\n\n" + head + "".join(rows) + "\n"


def _packet(opcode: Opcode) -> str:
    names = [f"[{header.name.upper()}]" if header is TSETH else header.name.upper() for header in STACKS[opcode]]
    names += ["payload"] if opcode in WITH_PAYLOAD else []
    sizes = sorted({length(stack(opcode, timestamped)) + ICRC_LENGTH for timestamped in (False, True)})
    return f"| `0x{opcode:02X}` | {opcode.name} | {' '.join(names)} | {' or '.join(map(str, sizes))} |\n"


def _placements() -> str:
    ev = 0x11223344
    rows = [
        f"| {item.name} | `{source_port(item, ev):#06x}` | `{flow_label(item, ev):#07x}` | {_PLACEMENTS[item]} |\n"
        for item in EvPlacement
    ]
    head = f"## Where EV {ev:#x} is carried\n\n| placement | UDP source port | IPv6 flow label | |\n|---|---|---|---|\n"
    return head + "".join(rows) + "\n"


def _refusals() -> str:
    rows = [f"| {int(status)} | {status.name} | {reason} |\n" for status, reason in REASONS.items()]
    head = "## Why bytes are refused\n\n| status | in the data path | for people |\n|---|---|---|\n"
    return head + "".join(rows)


def _header(header: Header) -> str:
    head = f"## {header.name.upper()}: {header.title}, {header.size} bytes ({header.source})\n\n"
    head += "| byte | field | bits | meaning | sent as | Wireshark |\n|---|---|---|---|---|---|\n"
    return head + "".join(_field(header, field) for field in header.fields) + "\n"


def bits(field: HeaderField) -> str:
    """Return the position as in the tables of the specification: bytes, and bits within a byte."""
    first, last = field.offset // 8, (field.offset + field.width - 1) // 8
    high, low = 7 - field.offset % 8, 7 - (field.offset + field.width - 1) % 8
    place = str(first) if first == last else f"{first}-{last}"
    if (high, low) == (7, 0):
        return place
    if first == last:
        return f"{place}, bit {high}" if high == low else f"{place}, bits {high}:{low}"
    return f"{first} bit {high} - {last} bit {low}"


def _field(header: Header, field: HeaderField) -> str:
    meaning = field.meaning + ("; signed" if field.signed else "")
    sent = "" if field.sends is None else f"`{field.sends:#x}`"
    name = filter_name(header, field)
    return f"| {bits(field)} | `{field.name}` | {field.width} | {meaning} | {sent} | `{name}` |\n"


def main() -> None:
    """Write the page again."""
    PAGE_FILE.write_text(page().rstrip("\n") + "\n")


if __name__ == "__main__":
    main()
