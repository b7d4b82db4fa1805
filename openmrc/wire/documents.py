"""Generates docs/wire.md from the table of headers.

`python -m openmrc.wire.documents` writes it and the Wireshark plugin; tests compare both with the table.
"""

from __future__ import annotations

from pathlib import Path

from openmrc.wire.codes import Opcode
from openmrc.wire.entropy import PLACEMENT_NOTES, EvPlacement, flow_label, source_port
from openmrc.wire.headers import HEADERS, STACKS, TSETH, WITH_PAYLOAD, Header, HeaderField, length, stack
from openmrc.wire.layout import ICRC_LENGTH
from openmrc.wire.message import REASONS
from openmrc.wire.wireshark import filter_name, plugin

PACKAGE = Path(__file__).parent
PLUGIN_FILE = PACKAGE / "mrc.lua"
PAGE_FILE = PACKAGE.parent.parent / "docs" / "wire.md"

_INTRODUCTION = """\
# The wire format

Made from `openmrc/wire/headers.py` by `python -m openmrc.wire.documents`; edit the table, not this page.

An MRC packet is a UDP datagram to port 4791 (4971 is accepted too) with the headers below, then the payload,
filled up to a multiple of 4 bytes, then four bytes of ICRC. All fields are big-endian, except that the ICRC goes
least significant byte first. Bits that no row names are reserved: sent as zero, ignored on arrival.

"""


def page() -> str:
    """Return the page as Markdown."""
    return _INTRODUCTION + _packets() + "".join(_header(header) for header in HEADERS) + _placements() + _refusals()


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
        f"| {item.name} | `{source_port(item, ev):#06x}` | `{flow_label(item, ev):#07x}` | {PLACEMENT_NOTES[item]} |\n"
        for item in EvPlacement
    ]
    head = f"## Where EV {ev:#x} is carried\n\n| placement | UDP source port | IPv6 flow label | |\n|---|---|---|---|\n"
    return head + "".join(rows) + "\n"


def _refusals() -> str:
    rows = [f"| {int(status)} | {status.name} | {reason} |\n" for status, reason in REASONS.items()]
    head = "## Why bytes are refused\n\n| status | in the data path | for people |\n|---|---|---|\n"
    return head + "".join(rows)


def _header(header: Header) -> str:
    head = f"## {header.name.upper()}: {header.title}, {header.size} bytes\n\n{header.source}\n\n"
    head += "| byte | field | bits | meaning | sent as | Wireshark |\n|---|---|---|---|---|---|\n"
    return head + "".join(_field(header, field) for field in header.fields) + "\n"


def _field(header: Header, field: HeaderField) -> str:
    meaning = field.meaning + ("; signed" if field.signed else "")
    sent = "" if field.sends is None else f"`{field.sends:#x}`"
    name = filter_name(header, field)
    return f"| {field.bits} | `{field.name}` | {field.width} | {meaning} | {sent} | `{name}` |\n"


def main() -> None:
    """Write both files again."""
    PAGE_FILE.write_text(page().rstrip("\n") + "\n")
    PLUGIN_FILE.write_text(plugin())


if __name__ == "__main__":
    main()
