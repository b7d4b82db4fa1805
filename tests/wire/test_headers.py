import pytest

from openmrc.wire.codes import MRC_OPCODE_GROUP, Opcode
from openmrc.wire.headers import BTH, EETH, HEADERS, METH, NETH, SETH, STACKS, TSETH, Header, length, stack
from openmrc.wire.layout import COLUMN
from spec.wire_page import bits


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_fields_stand_in_order_inside_the_header_and_do_not_overlap(header: Header) -> None:
    end = 0
    for field in header.fields:
        assert field.offset >= end, field.name
        end = field.offset + field.width
    assert end <= header.size * 8
    assert header.size % 4 == 0


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_every_column_that_a_header_names_exists(header: Header) -> None:
    assert {field.column for field in header.fields if field.column} <= COLUMN.keys()


def test_every_opcode_has_headers_and_stands_in_the_group() -> None:
    assert set(STACKS) == set(Opcode)
    assert {opcode >> 5 for opcode in STACKS} == {MRC_OPCODE_GROUP}


@pytest.mark.parametrize(
    ("opcode", "timestamped", "bytes_expected"),
    [
        (Opcode.WRITE_MIDDLE, False, 32),
        (Opcode.WRITE_MIDDLE, True, 36),
        (Opcode.WRITE_ONLY_IMM, True, 40),
        (Opcode.ACKNOWLEDGE, False, 16),
        (Opcode.SACK, False, 48),
        (Opcode.NACK, True, 32),
        (Opcode.PROBE, False, 28),
        (Opcode.ENDPOINT_REQUEST, False, 28),
        (Opcode.ENDPOINT_RESPONSE, False, 48),
    ],
)
def test_packets_are_as_long_as_the_tables_say(opcode: Opcode, timestamped: bool, bytes_expected: int) -> None:
    assert length(stack(opcode, timestamped)) == bytes_expected


def test_the_order_of_a_write_is_bth_meth_tseth_reth() -> None:
    assert [header.name for header in stack(Opcode.WRITE_LAST_IMM, True)] == ["bth", "meth", "tseth", "reth", "immdt"]


@pytest.mark.parametrize(
    ("header", "field", "byte", "mask"),
    [
        (BTH, "se", 1, 0x80),
        (BTH, "m", 1, 0x40),
        (BTH, "pad", 1, 0x30),
        (BTH, "a", 8, 0x80),
        (BTH, "rtx", 8, 0x20),
        (BTH, "ts", 8, 0x10),
        (TSETH, "tsr", 2, 0x80),
        (TSETH, "ftype", 3, 0x0F),
        (SETH, "m", 1, 0x60),
        (SETH, "pr", 1, 0x02),
        (SETH, "mpr", 17, 0xFF),
        (NETH, "nack_reason", 2, 0xFF),
        (NETH, "cc_type", 16, 0xF0),
        (EETH, "op", 1, 0x0C),
        (METH, "msn", 2, 0xFFFF),
    ],
)
def test_a_field_is_at_its_byte_and_bits(header: Header, field: str, byte: int, mask: int) -> None:
    place = header.field(field)
    bits = ((1 << place.width) - 1) << (header.size * 8 - place.offset - place.width)
    size = (mask.bit_length() + 7) // 8
    assert bits == mask << 8 * (header.size - byte - size)


def test_places_read_like_the_tables() -> None:
    assert bits(BTH.field("psn")) == "9-11"
    assert bits(BTH.field("a")) == "8, bit 7"
    assert bits(SETH.field("m")) == "1, bits 6:5"
    assert bits(SETH.field("next")) == "0 bit 3 - 1 bit 7"
