from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.core.jit import entry
from openmrc.errors import MisuseError
from openmrc.wire import ip
from openmrc.wire.codec import Bytes, Words
from openmrc.wire.codes import Opcode
from openmrc.wire.icrc import PREFIX_WORDS, flow, icrc, is_intact, prefix, seal, trailer_length
from openmrc.wire.message import MrcPacket, compose

from .packets import messages, repeatable

ADDRESSES = [("10.1.2.3", "10.4.5.6"), ("fd00::1", "fcbb:bbbb:101::2")]


@entry
def compiled_seal(
    flow: Bytes, known: Words, port: int, header: Bytes, length: int, payload: int, payload_length: int
) -> int:
    whole = length + payload_length + trailer_length(payload_length)
    crc = prefix(flow, known, port, whole, header.ctypes.data)
    return seal(crc, header, 0, length, payload, payload_length, length)


@entry
def compiled_is_intact(flow: Bytes, known: Words, port: int, buffer: Bytes, at: int, length: int) -> bool:
    return is_intact(prefix(flow, known, port, length, buffer.ctypes.data + at), buffer, at, length)


@entry
def compiled_prefix(flow: Bytes, known: Words, port: int, length: int, bth: int) -> int:
    return prefix(flow, known, port, length, bth)


def expected(addresses: tuple[str, str], port: int, body: bytes) -> bytes:
    """Return the ICRC by the plain function, little-endian as on the wire."""
    whole = ip.datagram(ip_address(addresses[0]), ip_address(addresses[1]), port, 4791, body + bytes(4))
    udp_at = 20 if "." in addresses[0] else 40
    return icrc(whole[:udp_at], whole[udp_at : udp_at + 8], body).to_bytes(4, "big")


def sealed(message: MrcPacket, addresses: tuple[str, str], port: int, sealer: Callable[..., int]) -> bytes:
    body = message.emit()
    pad = -len(message.payload) % 4
    header = body[: len(body) - len(message.payload) - pad]
    arena = np.frombuffer(header + b"\xee" * 8, np.uint8).copy()
    payload = np.frombuffer(message.payload or b"-", np.uint8)
    row, known = flow(ip_address(addresses[0]), ip_address(addresses[1])), np.zeros(PREFIX_WORDS, np.int64)
    length = sealer(row, known, port, arena, len(header), payload.ctypes.data, len(message.payload))
    assert bytes(arena[: len(header)]) == header
    assert bytes(arena[len(header) + length :]) == b"\xee" * (8 - length)
    return header + message.payload + bytes(arena[len(header) : len(header) + length])


@repeatable
@given(messages(), st.sampled_from(ADDRESSES), st.integers(0, 65535))
def test_packets_sealed_in_place_carry_the_plain_icrc(
    message: MrcPacket, addresses: tuple[str, str], port: int
) -> None:
    for sealer in (compiled_seal, compiled_seal.py_func):
        data = sealed(message, addresses, port, sealer)
        assert data[:-4] == message.emit()
        assert data[-4:] == expected(addresses, port, message.emit())


@repeatable
@given(messages(), st.sampled_from(ADDRESSES), st.data())
def test_one_flipped_bit_is_noticed_unless_it_is_masked(
    message: MrcPacket, addresses: tuple[str, str], data: st.DataObject
) -> None:
    whole = bytearray(7) + sealed(message, addresses, 50_000, compiled_seal)
    row, known = flow(ip_address(addresses[0]), ip_address(addresses[1])), np.zeros(PREFIX_WORDS, np.int64)
    bit = data.draw(st.integers(56, len(whole) * 8 - 1))
    for check in (compiled_is_intact, compiled_is_intact.py_func):
        buffer = np.frombuffer(whole, np.uint8).copy()
        assert check(row, known, 50_000, buffer, 7, len(whole) - 7)
        buffer[bit // 8] ^= 1 << bit % 8
        masked = bit // 8 == 7 + 4  # BTH byte 4
        assert check(row, known, 50_000, buffer, 7, len(whole) - 7) == masked


@repeatable
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([16, 48, 4136]), st.sampled_from([0, 1, 255]))))
def test_what_a_flow_remembers_never_shows(packets: Any) -> None:
    row, known = flow(ip_address(ADDRESSES[0][0]), ip_address(ADDRESSES[0][1])), np.zeros(PREFIX_WORDS, np.int64)
    for port, length, flags in packets:
        bth = np.frombuffer(bytes([0xC0, flags, 0, 0, 0, 0, 0, 0]), np.uint8)
        alone = compiled_prefix(row.copy(), np.zeros(PREFIX_WORDS, np.int64), port, length, bth.ctypes.data)
        assert compiled_prefix(row, known, port, length, bth.ctypes.data) == alone


def test_another_source_port_or_address_needs_another_icrc() -> None:
    body = compose(Opcode.PROBE).emit()
    assert expected(ADDRESSES[1], 50_000, body) != expected(ADDRESSES[1], 50_001, body)
    assert expected(("fd00::1", "fd00::2"), 1, body) != expected(("fd00::1", "fd00::3"), 1, body)


@pytest.mark.parametrize("addresses", ADDRESSES)
def test_what_routers_change_does_not_change_the_icrc(addresses: tuple[str, str]) -> None:
    source, destination = map(ip_address, addresses)
    body, udp_at = compose(Opcode.PROBE).emit(), 20 if source.version == 4 else 40
    numbers = set()
    for traffic_class, label, hops in ((0, 0, 64), (0xFF, 0xABCDE, 1)):
        header = ip.IpHeader(source, destination, 40, traffic_class=traffic_class, flow_label=label, hop_limit=hops)
        numbers.add(icrc(header.emit(), ip.UdpHeader(1, 2, 40, checksum=hops).emit(), body))
        assert len(header.emit()) == udp_at
    assert len(numbers) == 1


def test_a_flow_joins_addresses_of_one_family() -> None:
    with pytest.raises(MisuseError, match="IP versions differ"):
        flow(ip_address("10.0.0.1"), ip_address("fd00::1"))
