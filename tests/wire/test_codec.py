from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.core.rows import table
from openmrc.wire.codec import as_matrix, datagram_length, decode, encode, header_length
from openmrc.wire.codes import Opcode, Trim, WireStatus
from openmrc.wire.headers import BTH, STACKS, HeaderField, length, stack
from openmrc.wire.layout import COLUMN, LONGEST_HEADER
from openmrc.wire.message import MrcPacket, parse
from openmrc.wire.packet import Packet

from .packets import compiled_decode, compiled_encode, decoded, encoded, messages, repeatable, row_of

FIELDS = [
    (opcode, header.name, field)
    for opcode in STACKS
    for header in stack(opcode, True)
    for field in header.fields
    if field.column and field.sends is None and field.column not in ("opcode", "timestamped")
]


@pytest.mark.parametrize(("opcode", "header", "field"), FIELDS, ids=lambda item: getattr(item, "name", str(item)))
def test_each_field_survives_the_wire_at_its_extremes(opcode: Opcode, header: str, field: HeaderField) -> None:
    top = (1 << field.width) - 1
    values = [0, 1, top] if not field.signed else [0, -1, -(1 << field.width - 1), top >> 1]
    for value in values:
        signed_pattern = value - (1 << 64) if value >> 63 == 1 else value
        packets = row_of(opcode, timestamped=1, **{field.column: signed_pattern})
        data = encoded(packets)
        assert parse(data + bytes(4)).__getattr__(header).values[field.name] == value
        status, back = decoded(data + bytes(4))
        assert status == WireStatus.OK
        assert getattr(back[0], field.column) == signed_pattern


@repeatable
@given(messages())
def test_what_people_compose_is_what_the_data_path_reads_and_writes(message: MrcPacket) -> None:
    data = message.emit()
    status, packets = decoded(data + bytes(4))
    assert status == WireStatus.OK
    assert packets[0].payload_length == len(message.payload)
    again = encoded(packets)
    assert again == data[: len(again)]
    assert header_length(as_matrix(packets), 0) == len(again)
    assert datagram_length(as_matrix(packets), 0) == len(data) + 4


@repeatable
@given(messages(), st.integers(0, 40), st.binary(max_size=8))
def test_compiled_and_interpreted_agree_on_any_damage(message: MrcPacket, cut: int, noise: bytes) -> None:
    data = bytearray((message.emit() + noise)[: 60 + len(noise)])
    data = data[: max(0, len(data) - cut)]
    for trim in (Trim.WHOLE, Trim.TRIMMED):
        interpreted, a = decoded(bytes(data), trim)
        compiled, b = decoded(bytes(data), trim, compiled_decode)
        assert interpreted == compiled
        assert (as_matrix(a) == as_matrix(b)).all()
        assert encoded(a, encode) == encoded(a, compiled_encode)


@repeatable
@given(st.binary(max_size=64), st.sampled_from(tuple(Trim)), st.binary(min_size=64, max_size=64))
def test_bytes_beyond_the_length_are_never_looked_at(data: bytes, trim: int, beyond: bytes) -> None:
    short, packets = decoded(data, trim)
    buffer = np.frombuffer(bytearray(data + beyond), np.uint8)
    other = table(Packet, 1)
    other[0].trimmed = trim
    assert decode(buffer, 0, len(data), as_matrix(other), 0) == short
    assert (as_matrix(packets) == as_matrix(other)).all()


def test_the_worked_example_of_a_sack() -> None:
    # PSN 0-11 were sent, 5 and 8 lost: bits 1, 2, 4, 5, 6 from PSN 5 on
    sack = row_of(
        Opcode.SACK, dest_qpn=0x000102, cack_psn=4, sack_offset=1, sack_bitmap=0b1110110, ack_psn_offset=7, path_mark=1
    )
    assert encoded(sack).hex(" ", 4) == (
        "dc00ffff 00000102 00000000 "  # BTH
        "00200007 00000000 00000000 00000004 00000001 00000000 00000076 "  # SETH
        "00000000 00000000"  # CC_STATE
    )
    received = [sack[0].cack_psn + sack[0].sack_offset + bit for bit in range(64) if sack[0].sack_bitmap >> bit & 1]
    assert received == [6, 7, 9, 10, 11]


def test_a_write_with_timestamp_and_immediate_byte_by_byte() -> None:
    write = row_of(
        Opcode.WRITE_ONLY_IMM,
        dest_qpn=0x0A0B0C,
        psn=0x010203,
        payload_length=5,
        solicited=1,
        ack_request=1,
        retransmitted=1,
        timestamped=1,
        rqmsn=0x1122,
        msn=0x3344,
        tx_timestamp=0x5566,
        timestamp_unit=1,
        va=0x0102030405060708,
        r_key=0xA1A2A3A4,
        dma_length=5,
        immediate=0xB1B2B3B4,
    )
    assert encoded(write).hex(" ", 4) == (
        "cbb0ffff 000a0b0c b0010203 11223344 55668001 01020304 05060708 a1a2a3a4 00000005 b1b2b3b4"
    )


def test_control_packets_byte_by_byte() -> None:
    nack = row_of(
        Opcode.NACK,
        psn=1,
        nack_reason=0x0B,
        vendor_info=9,
        reflected_entropy=0xC0FFEE01,
        nack_psn=0x77,
        tx_timestamp=0x1234,
    )
    assert encoded(nack)[12:].hex(" ", 4) == "00000b09 c0ffee01 00000000 00000077 20001234"
    probe = row_of(Opcode.PROBE, probe_id=0xBEEF, tx_timestamp=0x1234, timestamp_unit=1, spdcid=3, dpdcid=4)
    assert encoded(probe)[12:].hex(" ", 4) == "00000000 beef0000 00030004 12348001"
    request = row_of(Opcode.ENDPOINT_REQUEST, endpoint_op=1, port_status_mask=0x1E, tx_timestamp=0x1234)
    assert encoded(request)[12:].hex(" ", 4) == "00010000 0000001e 00000000 12340001"
    response = row_of(Opcode.ENDPOINT_RESPONSE, endpoint_op=1, tx_timestamp=0x1234)
    assert encoded(response)[12:].hex() == "0004" + "00" * 26 + "1234" + "00" * 6
    ack = row_of(Opcode.ACKNOWLEDGE, syndrome=0x1F, acked_messages=0x010203)
    assert encoded(ack)[12:].hex() == "1f010203"


def test_the_answer_to_a_probe_carries_a_probe_id_without_sign() -> None:
    data = encoded(row_of(Opcode.SACK, is_probe_answer=1, ack_psn_offset=0xFFF0))
    assert decoded(data + bytes(4))[1][0].ack_psn_offset == 0xFFF0
    data = encoded(row_of(Opcode.SACK, is_probe_answer=0, ack_psn_offset=-16))
    assert decoded(data + bytes(4))[1][0].ack_psn_offset == -16


def test_columns_of_headers_that_are_not_there_become_zero() -> None:
    packets = table(Packet, 1)
    packets[0].va, packets[0].port, packets[0].source = 77, 3, 9
    data = encoded(row_of(Opcode.ACKNOWLEDGE, psn=5)) + bytes(4)
    assert decode(np.frombuffer(data, np.uint8), 0, len(data), as_matrix(packets), 0) == WireStatus.OK
    assert (packets[0].va, packets[0].port, packets[0].source, packets[0].psn) == (0, 3, 9, 5)


@pytest.mark.parametrize(
    ("damage", "status"),
    [
        (lambda data: b"", WireStatus.TRUNCATED),
        (lambda data: data[:11], WireStatus.TRUNCATED),
        (lambda data: data[:36], WireStatus.TRUNCATED),
        (lambda data: b"\x0a" + data[1:], WireStatus.NOT_MRC),
        (lambda data: b"\xdf" + data[1:], WireStatus.UNKNOWN_OPCODE),
        (lambda data: data[:1] + b"\x31" + data[2:], WireStatus.BAD_VERSION),
        (lambda data: data + b"x", WireStatus.BAD_LENGTH),
        (lambda data: b"\xd1" + data[1:], WireStatus.BAD_LENGTH),
        (lambda data: data[:36] + data[40:], WireStatus.BAD_PAD),
        (lambda data: data, WireStatus.OK),
    ],
)
def test_damaged_packets_have_a_status_and_leave_the_row_alone(damage: Any, status: Any) -> None:
    whole = encoded(row_of(Opcode.WRITE_ONLY, payload_length=1, timestamped=1)) + bytes(8)
    found, packets = decoded(damage(whole))
    assert found == status
    assert status == WireStatus.OK or not as_matrix(packets).any()


@pytest.mark.parametrize("kept", range(45))
def test_a_trimmed_packet_is_read_as_far_as_it_goes_but_at_least_to_its_timestamp(kept: int) -> None:
    write = row_of(Opcode.WRITE_MIDDLE, psn=9, payload_length=4096, timestamped=1, tx_timestamp=7, va=-2, r_key=5)
    status, packets = decoded((encoded(write) + bytes(100))[:kept], Trim.TRIMMED)
    if kept < 20:
        assert status == WireStatus.TRUNCATED
        return
    row = packets[0]
    assert (status, row.psn, row.tx_timestamp, row.payload_length) == (WireStatus.OK, 9, 7, 0)
    assert row.r_key == (5 if kept >= 32 else 0)


def test_nothing_is_written_for_an_opcode_that_is_none() -> None:
    out = np.zeros(LONGEST_HEADER, np.uint8)
    for opcode in set(range(256)) - set(STACKS):
        assert encode(as_matrix(row_of(opcode)), 0, out, 0) == 0
    assert not out.any()


def test_no_header_is_longer_than_the_room_callers_leave() -> None:
    assert max(length(stack(opcode, True)) for opcode in STACKS) == LONGEST_HEADER


def test_the_columns_that_only_the_wire_fills_are_the_last_ones() -> None:
    written = {field.column for headers in STACKS.values() for header in headers for field in header.fields}
    first = COLUMN["solicited"]
    assert {name for name in written if name and COLUMN[name] < first} == {"opcode", "dest_qpn", "psn"}


def test_a_bitmap_in_the_reserved_byte_of_a_sack_changes_nothing() -> None:
    """Where the paper's SACKs have their port states is not published; one byte between dpdcid and cack_psn is free."""
    plain = encoded(row_of(Opcode.SACK, cack_psn=77))
    reserved = length((BTH,)) + 12
    assert plain[reserved] == 0
    status, packets = decoded(plain[:reserved] + b"\xff" + plain[reserved + 1 :] + bytes(4))
    assert status == WireStatus.OK
    assert (as_matrix(packets) == as_matrix(decoded(plain + bytes(4))[1])).all()
