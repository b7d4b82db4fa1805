from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.errors import Malformed, Truncated, WireError
from openmrc.wire.ip import IpHeader, UdpHeader, checksum, datagram, parse_ip, parse_udp

from .packets import repeatable

Address = IPv4Address | IPv6Address
FOUR, SIX = (ip_address("10.0.0.1"), ip_address("10.0.0.2")), (ip_address("fd00::1"), ip_address("fd00::2"))


@repeatable
@given(st.sampled_from((FOUR, SIX)), st.integers(0, 255), st.integers(0, 2**20 - 1), st.integers(0, 65515))
def test_ip_headers_come_back(addresses: tuple[Address, Address], traffic_class: int, label: int, length: int) -> None:
    label = label if addresses is SIX else 0
    header = IpHeader(*addresses, length, traffic_class=traffic_class, flow_label=label, hop_limit=3)
    data = b"before" + header.emit()
    assert parse_ip(data, 6) == (header, len(data))


@repeatable
@given(*[st.integers(0, 65535)] * 2, st.integers(8, 65535), st.integers(0, 65535))
def test_udp_headers_come_back(source: int, destination: int, length: int, total: int) -> None:
    header = UdpHeader(source, destination, length, total)
    assert parse_udp(header.emit(), 0) == (header, 8)


@pytest.mark.parametrize("addresses", [FOUR, SIX])
@pytest.mark.parametrize("payload", [b"", b"odd", b"even"])
def test_checksums_sum_to_ones(addresses: tuple[Address, Address], payload: bytes) -> None:
    data = datagram(*addresses, 1, 2, payload)
    header, udp_at = parse_ip(data)
    pseudo = (
        b"".join(address.packed for address in addresses) + header.payload_length.to_bytes(4, "big") + b"\0\0\0\x11"
    )
    assert checksum(pseudo + data[udp_at:]) == 0
    if header.version == 4:
        assert checksum(data[:udp_at]) == 0


@pytest.mark.parametrize(
    ("data", "error", "reason"),
    [
        (b"", Truncated, "truncated IP header"),
        (b"\x45" + bytes(18), Truncated, "truncated IP header"),
        (b"\x60" + bytes(38), Truncated, "truncated IP header"),
        (b"\x44" + bytes(19), Malformed, "bad IPv4 header length"),
        (b"\x45\0\0\x13" + bytes(16), Malformed, "bad IPv4 total length"),
        (b"\x45\0\0\x14\0\0\x20\0" + bytes(12), Malformed, "IP fragment"),
        (b"\x50" + bytes(39), Malformed, "neither IPv4 nor IPv6"),
    ],
)
def test_broken_ip_headers_are_refused(data: bytes, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        parse_ip(data)


def test_broken_udp_headers_are_refused() -> None:
    with pytest.raises(Truncated):
        parse_udp(bytes(7), 0)
    with pytest.raises(WireError, match="bad UDP length"):
        parse_udp(b"\0\0\0\0\0\7\0\0", 0)
