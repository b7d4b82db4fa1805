from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.errors import Malformed, MisuseError, Truncated, WireError
from openmrc.wire.codes import Opcode, WireStatus
from openmrc.wire.message import REASONS, MrcPacket, WireCounters, compose, icrc_presence, parse, problem

from .packets import messages, repeatable


@repeatable
@given(messages(), st.booleans())
def test_parse_is_the_inverse_of_emit(message: MrcPacket, has_icrc: bool) -> None:
    end = b"\1\2\3\4" if has_icrc else b""
    again = parse(message.emit() + end, has_icrc=has_icrc)
    assert again.emit() == message.emit() + end
    assert (again.parts, again.payload) == (message.parts, message.payload)
    assert again.icrc == (0x01020304 if has_icrc else None)


@repeatable
@given(st.binary(max_size=80), st.booleans(), st.booleans())
def test_any_bytes_give_a_message_or_one_typed_error(data: bytes, has_icrc: bool, trimmed: bool) -> None:
    message, refused = None, None
    try:
        message = parse(data, has_icrc=has_icrc, trimmed=trimmed)
    except WireError as error:
        refused = error
    assert refused is None or (refused.reason in REASONS.values() and 0 <= refused.offset <= len(data))
    assert message is None or len(message.emit()) <= len(data)


def test_a_packet_reads_as_attributes() -> None:
    sack = compose(Opcode.SACK, seth={"cack_psn": 4, "sack_offset": 1, "sack_bitmap": 0x76}, bth={"dqp": 9})
    assert (sack.opcode, sack.bth.dqp, sack.seth.cack_psn, sack.seth["sack_bitmap"]) == (Opcode.SACK, 9, 4, 0x76)
    with pytest.raises(AttributeError, match="no reth"):
        _ = sack.reth
    with pytest.raises(AttributeError, match="no field psn"):
        _ = sack.seth.psn


def test_json_has_the_fields_with_a_public_meaning_as_integers() -> None:
    tree = parse(compose(Opcode.NACK, neth={"nack_reason": 2, "nack_psn": 7}).emit() + bytes(4)).as_json()
    assert list(tree) == ["bth", "neth", "payload_length", "icrc"]
    assert tree["neth"] == {
        "nack_reason": 2,
        "vendor_info": 0,
        "entropy": 0,
        "spdcid": 0,
        "dpdcid": 0,
        "nack_psn": 7,
        "cc_type": 2,
        "cc_fl": 0,
        "tx_timestamp": 0,
    }


def test_a_virtual_address_and_a_bitmap_are_unsigned_for_people() -> None:
    top = 2**64 - 1
    assert compose(Opcode.WRITE_MIDDLE, reth={"va": top}).as_json()["reth"]["va"] == top
    assert parse(compose(Opcode.SACK, seth={"sack_bitmap": top}).emit(), has_icrc=False).seth.sack_bitmap == top


def test_congestion_state_of_an_unknown_type_stays_raw() -> None:
    data = bytearray(compose(Opcode.SACK, cc_state={"ooo_count": 5}).emit())
    data[12 + 16] = 0x30
    message = parse(bytes(data), has_icrc=False)
    assert message.as_json()["cc_state"] == {"raw": "0000000500000000"}
    assert message.emit() == bytes(data)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"opcode": Opcode.SACK, "reth": {}}, "SACK has no header reth"),
        ({"opcode": Opcode.SACK, "seth": {"psn": 1}}, "seth has no field psn"),
        ({"opcode": Opcode.SACK, "seth": {"mpr": 256}}, "seth.mpr is 256: allowed is 0 to 255"),
        ({"opcode": Opcode.SACK, "seth": {"sack_offset": 32768}}, "-32768 to 32767"),
        ({"opcode": Opcode.SACK, "payload": b"x"}, "carries no payload"),
    ],
)
def test_composing_nonsense_says_what_is_allowed(arguments: Any, text: str) -> None:
    with pytest.raises(MisuseError, match=text):
        compose(**arguments)


def test_a_probe_id_may_use_all_sixteen_bits_of_the_offset() -> None:
    assert compose(Opcode.SACK, seth={"pr": 1, "ack_psn_offset": 65535}).seth.ack_psn_offset == 65535


WRITE = compose(Opcode.WRITE_ONLY, b"hello", reth={"dmalen": 5}).emit() + bytes(4)


@pytest.mark.parametrize(
    ("data", "kind", "status"),
    [
        (b"", Truncated, WireStatus.TRUNCATED),
        (WRITE[:35], Truncated, WireStatus.TRUNCATED),
        (b"\x04" + WRITE[1:], Malformed, WireStatus.NOT_MRC),
        (b"\xc0" + WRITE[1:], Malformed, WireStatus.UNKNOWN_OPCODE),
        (WRITE[:1] + b"\x3f" + WRITE[2:], Malformed, WireStatus.BAD_VERSION),
        (WRITE[:-1], Malformed, WireStatus.BAD_LENGTH),
        (WRITE[:36], Malformed, WireStatus.BAD_PAD),
    ],
)
def test_each_kind_of_damage_is_one_error_and_one_counter(data: bytes, kind: Any, status: Any) -> None:
    counters = WireCounters()
    with pytest.raises(kind, match=REASONS[status]) as caught:
        parse(data)
    counters.count(caught.value)
    counters.count()
    assert (counters.accepted, counters.refused) == (1, {REASONS[status]: 1})
    assert str(problem(status, caught.value.offset)) == str(caught.value)


def test_a_trimmed_packet_shows_the_headers_that_are_left() -> None:
    whole = compose(Opcode.WRITE_MIDDLE, b"x" * 64, bth={"ts": 1}, tseth={"tx_timestamp": 9}).emit()
    assert list(parse(whole[:20], trimmed=True).as_json()) == [
        "bth",
        "meth",
        "tseth",
        "payload_length",
        "icrc",
        "trimmed",
    ]
    assert parse(whole[:50], trimmed=True).as_json()["reth"]["va"] == 0
    with pytest.raises(Truncated):
        parse(whole[:19], trimmed=True)


@repeatable
@given(messages(), st.booleans())
def test_the_length_of_a_control_packet_tells_whether_its_icrc_is_there(message: MrcPacket, has_icrc: bool) -> None:
    found = icrc_presence(message.emit() + (bytes(4) if has_icrc else b""))
    if message.opcode > Opcode.WRITE_ONLY_IMM:
        assert (found.present, found.certain) == (has_icrc, True)


@pytest.mark.parametrize("has_icrc", [True, False])
@pytest.mark.parametrize(
    ("opcode", "payload", "dmalen"),
    [
        (Opcode.WRITE_ONLY, 5, 5),
        (Opcode.WRITE_ONLY, 0, 0),
        (Opcode.WRITE_ONLY_IMM, 8, 8),
        (Opcode.WRITE_FIRST, 4096, 10000),
        (Opcode.WRITE_MIDDLE, 256, 10000),
        (Opcode.WRITE_LAST, 1808, 10000),
        (Opcode.WRITE_LAST_IMM, 7, 4103),
    ],
)
def test_the_length_of_a_write_usually_tells_too(opcode: Opcode, payload: bytes, dmalen: int, has_icrc: bool) -> None:
    data = compose(opcode, bytes(payload), bth={"ts": 1}, reth={"dmalen": dmalen}).emit()
    found = icrc_presence(data + (bytes(4) if has_icrc else b""))
    assert (found.present, found.certain) == (has_icrc, True)


def test_where_length_does_not_tell_an_icrc_is_assumed() -> None:
    found = icrc_presence(compose(Opcode.WRITE_ONLY, bytes(12), reth={"dmalen": 99}).emit())
    assert (found.present, found.certain) == (True, False)
