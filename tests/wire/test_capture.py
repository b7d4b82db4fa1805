from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest

from openmrc.errors import Malformed, Truncated, WireError
from openmrc.wire import ip, srv6
from openmrc.wire.capture import dissect, find_datagram, is_of_mrc
from openmrc.wire.codes import UDP_PORTS_ACCEPTED, Opcode
from openmrc.wire.message import compose
from openmrc.wire.pcapng import LinkType, PcapFrame

from .packets import framed

WRITE = compose(Opcode.WRITE_ONLY, b"hello", bth={"ts": 1, "psn": 3}, reth={"dmalen": 5})
SOURCE = IPv6Address("fd00::99")


def frame(data: bytes, link_type: int = LinkType.RAW, original: int | None = None) -> PcapFrame:
    return PcapFrame(1, 0, "plane0", link_type, data, original or len(data))


def read(data: bytes, **about: Any) -> Any:
    captured = frame(data, **about)
    datagram = find_datagram(captured)
    assert datagram is not None
    return dissect(captured, datagram)


LINKS = {
    LinkType.RAW: b"",
    LinkType.IPV6: b"",
    LinkType.ETHERNET: bytes(12) + b"\x86\xdd",
    LinkType.LINUX_SLL: bytes(14) + b"\x86\xdd",
    LinkType.LINUX_SLL2: b"\x86\xdd" + bytes(18),
    LinkType.NULL: b"\x1e\0\0\0",
    LinkType.LOOP: b"\0\0\0\x18",
}


@pytest.mark.parametrize("link", LINKS)
def test_packets_are_found_behind_each_link_header(link: LinkType) -> None:
    found = read(LINKS[link] + framed(WRITE), link_type=link)
    assert (found.icrc_ok, found.message.payload, found.message.bth.psn) == (True, b"hello", 3)


def test_vlan_tags_and_ethernet_padding_are_no_part_of_the_packet() -> None:
    data = bytes(12) + b"\x88\xa8\0\1\x81\0\0\2\x86\xdd" + framed(WRITE) + bytes(9)
    assert read(data, link_type=LinkType.ETHERNET).icrc_ok


def test_ipv4_with_an_identification_that_the_sender_did_not_know() -> None:
    data = bytearray(framed(WRITE, "10.0.0.1", "10.0.0.2"))
    data[4:6] = b"\x12\x34"
    assert read(bytes(data)).icrc_ok


def test_ecn_and_hop_limit_may_change_on_the_way() -> None:
    data = bytearray(framed(WRITE))
    data[1], data[7] = 0x30, 3
    assert read(bytes(data)).icrc_ok


@pytest.mark.parametrize("second", [[], [srv6.carrier([9])]])
def test_the_inner_packet_is_found_inside_srv6(second: Any) -> None:
    data = srv6.encapsulate(framed(WRITE), SOURCE, [srv6.carrier([1, 2, 3]), *second])
    found = read(data)
    assert found.icrc_ok
    assert srv6.usids(found.datagram.outer[0].outer.destination) == (1, 2, 3)


VXLAN = b"\x08\0\0\0\0\0\x2a\0"  # VNI 42


def tunnelled(inner: bytes, header: bytes = VXLAN) -> bytes:
    """A packet behind Ethernet, in VXLAN over IPv4."""
    body = header + bytes(12) + (b"\x08\0" if inner[:1] == b"\x45" else b"\x86\xdd") + inner
    return ip.datagram(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 50_000, 4789, body)


def test_the_inner_packet_is_found_inside_vxlan() -> None:
    found = read(tunnelled(framed(WRITE)))
    assert (found.icrc_ok, found.message.payload) == (True, b"hello")
    assert (str(found.datagram.outer[0].outer.destination), found.datagram.outer[0].vni) == ("10.0.0.2", 42)


def test_what_is_no_ip_packet_or_no_vxlan_is_passed_over_or_taken_as_it_is() -> None:
    assert find_datagram(frame(tunnelled(b"", VXLAN + bytes(12) + b"\x08\x06"))) is None
    plain = find_datagram(frame(tunnelled(framed(WRITE), header=bytes(8))))
    assert plain is not None
    assert (plain.udp.destination_port, plain.outer) == (4789, ())
    with pytest.raises(WireError):
        find_datagram(frame(tunnelled(framed(WRITE))[:44]))
    deep = framed(WRITE)
    for _ in range(4):
        deep = tunnelled(deep)
    with pytest.raises(WireError, match="too deep"):
        find_datagram(frame(deep))


def test_a_path_as_destination_is_checked_by_what_is_left_at_its_end() -> None:
    sealed = framed(WRITE, destination="fcbb:bbbb:3::")
    on_the_way = sealed[:24] + srv6.carrier([1, 2, 3]).packed + sealed[40:]
    assert read(on_the_way).icrc_ok


def test_a_changed_payload_has_a_bad_icrc() -> None:
    data = bytearray(framed(WRITE))
    data[-6] ^= 1
    assert read(bytes(data)).icrc_ok is False


TRIMMED = 12 << 2


@pytest.mark.parametrize("rewritten", [True, False])
def test_a_trimmed_packet_is_told_by_its_dscp_whatever_its_lengths_say(rewritten: Any) -> None:
    whole = bytearray(framed(WRITE, traffic_class=TRIMMED)[: 40 + 8 + 20])
    if rewritten:
        whole[4:6] = whole[44:46] = (28).to_bytes(2, "big")
    found = read(bytes(whole))
    assert (found.message.trimmed, found.icrc_ok, found.payload_length) == (True, None, 0)
    assert found.message.tseth.ftype == 1


def test_a_packet_shorter_than_its_lengths_is_trimmed_too() -> None:
    assert read(framed(WRITE)[:80]).message.trimmed


def test_a_whole_packet_in_the_class_of_trimmed_ones_is_whole() -> None:
    found = read(framed(WRITE, traffic_class=TRIMMED))
    assert (found.icrc_ok, found.message.trimmed) == (True, False)


def test_a_packet_cut_by_the_capture_keeps_its_payload_length() -> None:
    big = compose(Opcode.WRITE_MIDDLE, bytes(1001))
    whole = framed(big)
    found = read(whole[:128], original=len(whole))
    assert (found.payload_length, found.message.trimmed, found.icrc_ok) == (1001, False, None)


def test_other_traffic_is_passed_over() -> None:
    assert find_datagram(frame(bytes(12) + b"\x08\x06" + bytes(28), LinkType.ETHERNET)) is None
    tcp = b"\x60" + bytes(5) + b"\x06" + bytes(33)
    assert find_datagram(frame(tcp)) is None
    for port, is_ours in ((53, False), (4971, True)):
        datagram = find_datagram(frame(framed(WRITE, to=port)))
        assert datagram is not None
        assert (datagram.udp.destination_port in UDP_PORTS_ACCEPTED) == is_ours


@pytest.mark.parametrize(
    ("body", "is_ours"),
    [(b"", False), (b"\x11" + bytes(19), False), (b"\x81" + bytes(31), False), (b"\xdf" + bytes(19), True)],
    ids=["nothing", "acknowledgement of RC", "CNP", "an opcode of the group that MRC does not define"],
)
def test_the_opcode_tells_mrc_from_what_shares_its_port(body: bytes, is_ours: bool) -> None:
    datagram = find_datagram(frame(ip.datagram(SOURCE, SOURCE, 0xC000, 4791, body)))
    assert datagram is not None
    assert is_of_mrc(datagram) == is_ours


@pytest.mark.parametrize(
    ("data", "link", "error"),
    [
        (b"", LinkType.RAW, Truncated),
        (bytes(12) + b"\x81\x00\x00\x01\x86\xdd", LinkType.ETHERNET, Truncated),
        (bytes(12) + b"\x86\xdd", LinkType.ETHERNET, Truncated),
        (b"anything", 9999, Malformed),
        (b"\x1e\0\0", LinkType.NULL, Truncated),
        (b"\x60" + bytes(5) + b"\x2b" + bytes(33), LinkType.RAW, Truncated),
        (framed(WRITE)[:44], LinkType.RAW, Truncated),
    ],
)
def test_broken_frames_are_refused(data: bytes, link: LinkType, error: type[Exception]) -> None:
    with pytest.raises(error):
        find_datagram(frame(data, link))


def test_headers_nested_without_end_are_refused() -> None:
    data = framed(WRITE)
    for _ in range(5):
        data = srv6.encapsulate(data, SOURCE, [srv6.carrier([1])])
    with pytest.raises(WireError, match="too deep"):
        find_datagram(frame(data))
