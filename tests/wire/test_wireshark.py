"""The plugin for Wireshark, as text: every field where the table of the wire has it. tshark runs it elsewhere."""

from __future__ import annotations

import re

from openmrc.wire.headers import HEADERS, STACKS
from openmrc.wire.srv6 import CarrierPlane, UsidRange
from openmrc.wire.wireshark import filter_name, plugin


def test_every_field_stands_where_the_table_has_it() -> None:
    text = plugin()
    for header in HEADERS:
        (table,) = re.findall(rf"(?s)headers\.{header.name} = {{\n(.*?)\n  }},\n}}", text)
        rows = re.findall(r'{name = "(\w+)", offset = (\d+), width = (\d+)', table)
        assert rows == [(field.name, str(field.offset), str(field.width)) for field in header.fields]
        assert all(f'"{filter_name(header, field)}"' in table for field in header.fields)


def test_every_opcode_has_its_headers_in_their_order() -> None:
    rows = re.findall(r'\[(\d+)\] = {name = "(\w+)", has_payload = \w+, ([^}]*)}', plugin())
    expected = [(str(int(op)), op.name, ", ".join(f"headers.{each.name}" for each in STACKS[op])) for op in STACKS]
    assert rows == expected


def test_a_fabric_is_a_table_of_its_planes() -> None:
    plane = CarrierPlane(3, 0xFCBBBB00, (UsidRange("t0", 0x1000, 16), UsidRange("nic", 0xD000, 4, digits=2)))
    (row,) = re.findall(r"(?s)local planes = {[^\n]*\n(.*?)\n}\n", plugin((plane,)))
    assert row.startswith("  {block = 0xfcbbbb00, number = 3,")
    assert 'kind = "t0", first = 4096, values = 16' in row
    assert 'kind = "nic", first = 53248, values = 4' in row
