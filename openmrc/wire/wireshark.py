"""Generates the Wireshark plugin from the table of headers and, optionally, the address plan of a fabric."""

from pathlib import Path

from openmrc.wire.codes import MRC_OPCODE_GROUP, UDP_PORTS_ACCEPTED, NackReason, Opcode, PathMark, Syndrome
from openmrc.wire.headers import HEADERS, STACKS, TSETH, WITH_PAYLOAD, Header, HeaderField
from openmrc.wire.srv6 import CarrierPlane, UsidRange

# Wireshark's own names of InfiniBand's fields, so that filters work as for other RoCEv2 traffic.
_OWN_NAMES = {
    "bth": "infiniband.bth",
    "reth": "infiniband.reth",
    "aeth": "infiniband.aeth",
    "immdt": "infiniband",
    "cc_state": "mrc.cc",
}
_OWN_FIELDS = {
    ("bth", "pad"): "infiniband.bth.padcnt",
    ("bth", "dqp"): "infiniband.bth.destqp",
    ("bth", "rtx"): "mrc.bth.rtx",
    ("bth", "ts"): "mrc.bth.ts",
    ("immdt", "immediate"): "infiniband.immdt",
}
_IN_HEX = ("dqp", "va", "r_key", "entropy", "sack_bitmap", "p_key", "port_status_mask", "syndrome")
_VALUES = {"opcode": Opcode, "nack_reason": NackReason, "syndrome": Syndrome}
_MARKS = {("seth", "m"): PathMark}


def filter_name(header: Header, field: HeaderField) -> str:
    prefix = _OWN_NAMES.get(header.name, f"mrc.{header.name}")
    return _OWN_FIELDS.get((header.name, field.name), f"{prefix}.{field.name}")


def _kind(header: Header, field: HeaderField) -> str:
    """Return the ProtoField constructor; that of the built-in dissector for fields with its names."""
    if (header.name, field.name) == ("immdt", "immediate"):
        return "bytes"
    if field.width == 1:
        return "bool"
    sizes = [size for size in (8, 16, 24, 32, 64) if size >= field.width]
    # A signed field that is sometimes unsigned needs room for both.
    return ("int32" if field.unsigned_when else f"int{sizes[0]}") if field.signed else f"uint{sizes[0]}"


def _declared(header: Header, field: HeaderField) -> str:
    kind, name, title = _kind(header, field), filter_name(header, field), field.name
    arguments = [f'"{name}"', f'"{title}"']
    values = _VALUES.get(field.name) or _MARKS.get((header.name, field.name))
    if kind.startswith(("uint", "int")):
        arguments.append("base.HEX" if field.name in _IN_HEX else "base.DEC")
        if values:
            arguments.append("{" + ", ".join(f'[{item.value}] = "{item.name}"' for item in values) + "}")
    return f"ProtoField.{kind}({', '.join(arguments)})"


def _field_row(header: Header, field: HeaderField) -> str:
    parts = [f'name = "{field.name}"', f"offset = {field.offset}", f"width = {field.width}"]
    if field.signed:
        parts.append("signed = true")
    if field.unsigned_when:
        other = header.field(field.unsigned_when)
        parts.append(f"unsigned_when = {other.offset}")
    if _kind(header, field) == "bytes":
        parts.append("is_bytes = true")
    return f"    {{{', '.join(parts)}, proto = {_declared(header, field)}}},"


def _header_table(header: Header) -> str:
    rows = "\n".join(_field_row(header, field) for field in header.fields)
    title = f"{header.title} ({header.name.upper()})"
    return f'headers.{header.name} = {{\n  title = "{title}", size = {header.size},\n  fields = {{\n{rows}\n  }},\n}}\n'


def _stacks_table() -> str:
    rows = []
    for opcode, headers in STACKS.items():
        names = ", ".join(f"headers.{header.name}" for header in headers)
        payload = "true" if opcode in WITH_PAYLOAD else "false"
        rows.append(f'  [{int(opcode)}] = {{name = "{opcode.name}", has_payload = {payload}, {names}}},')
    return "local packets = {\n" + "\n".join(rows) + "\n}\n"


def _range_row(usids: UsidRange) -> str:
    values = usids._asdict()
    parts = [f'{name} = "{value}"' if name == "kind" else f"{name} = {value}" for name, value in values.items()]
    return f"    {{{', '.join(parts)}}},"


def _planes_table(planes: tuple[CarrierPlane, ...]) -> str:
    rows = []
    for plane in planes:
        ranges = "\n".join(_range_row(usids) for usids in plane.ranges)
        rows.append(f"  {{block = {plane.block:#x}, number = {plane.plane},\n{ranges}\n  }},")
    return "\n".join(["local planes = {  -- carriers: blocks of planes, ranges of uSIDs", *rows, "}\n"])


def plugin(planes: tuple[CarrierPlane, ...] = ()) -> str:
    """Return the source of the plugin; with the planes of a fabric it shows carriers as switches and ports."""
    tables = "\n".join(_header_table(header) for header in HEADERS)
    ports = ", ".join(str(port) for port in UDP_PORTS_ACCEPTED)
    constants = (
        f"local GROUP = {MRC_OPCODE_GROUP}  -- opcode bits 7:5 of MRC\n"
        f"local PORTS = {{{ports}}}\n\nlocal headers = {{}}\n\n"
    )
    optional = f"local OPTIONAL = headers.{TSETH.name}  -- only if BTH says so\n"
    return _BEGIN + constants + tables + "\n" + _stacks_table() + optional + _planes_table(planes) + _END


_BEGIN = """\
-- Multipath Reliable Connection (OCP MRC 1.0) for Wireshark and tshark.
-- Made by `mrc decode --lua` from openmrc's table of headers: do not edit.
-- SPDX-License-Identifier: Apache-2.0
--
-- Takes packets of MRC's opcode group (0xC0-0xDF) on its UDP ports and hands everything else to the
-- dissector that was there before. BTH, RETH, AETH, ImmDt and the ICRC keep Wireshark's own filter
-- names (infiniband.*); what is MRC's own is called mrc.*.

local mrc = Proto("mrc", "Multipath Reliable Connection")

"""

_END = Path(__file__).with_name("dissector.lua").read_text("utf-8")
