from ipaddress import IPv6Address, ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmrc.errors import Malformed, MisuseError, Truncated
from openmrc.wire.ip import datagram, parse_ip
from openmrc.wire.srv6 import (
    SegmentRoutingHeader,
    carrier,
    encapsulate,
    parse_encapsulation,
    parse_srh,
    shift,
    usids,
)

from .packets import repeatable

SOURCE = IPv6Address("fd00::99")
INNER = datagram(ip_address("fd00::1"), ip_address("fd00::2"), 1, 4791, b"payload!", traffic_class=0xB9)


def unwrapped(data: bytes) -> Any:
    """Return the encapsulation of a packet that has one."""
    found = parse_encapsulation(data)
    assert found is not None
    return found


def test_a_carrier_is_the_block_and_then_one_usid_per_switch() -> None:
    assert carrier([0x101, 0x201, 0x102, 0xE003]) == IPv6Address("fcbb:bbbb:101:201:102:e003::")
    assert carrier([1], block=0x20010DB8) == IPv6Address("2001:db8:1::")


@repeatable
@given(st.lists(st.integers(1, 0xFFFF), min_size=1, max_size=6))
def test_each_switch_takes_the_first_usid_off_until_one_is_left(path: Any) -> None:
    address = carrier(path)
    for taken in range(1, len(path)):
        assert usids(address) == tuple(path[taken - 1 :])
        shifted = shift(address)
        assert shifted == carrier(path[taken:])
        address = shifted
    assert shift(address) is None


def test_a_carrier_holds_six_usids_of_sixteen_bits() -> None:
    with pytest.raises(MisuseError, match="at most 6"):
        carrier([1] * 7)
    with pytest.raises(MisuseError, match="1 to 65535"):
        carrier([1, 0])


def test_a_path_of_one_address_needs_no_routing_header() -> None:
    wrapped = encapsulate(INNER, SOURCE, [carrier([1, 2])])
    found = unwrapped(wrapped)
    assert len(wrapped) == len(INNER) + 40
    assert (found.outer.protocol, found.srh, found.inner_at) == (41, None, 40)
    assert (found.outer.traffic_class, found.outer.hop_limit, found.outer.flow_label) == (0xB9, 64, 0)
    assert wrapped[found.inner_at :] == INNER


@pytest.mark.parametrize(("reduced", "listed"), [(True, 1), (False, 2)])
def test_a_second_address_is_listed_in_a_routing_header(reduced: Any, listed: Any) -> None:
    path = [carrier([1, 2, 3, 4, 5, 6]), carrier([7, 8])]
    found = unwrapped(encapsulate(INNER, SOURCE, path, reduced=reduced))
    assert found.outer.destination == path[0]
    assert found.srh.segments_left == 1
    assert found.srh.segments == tuple(reversed(path))[:listed]
    assert found.srh.segments[0] == path[-1]
    assert parse_ip(encapsulate(INNER, SOURCE, path, reduced=reduced), found.inner_at)[0] == parse_ip(INNER)[0]


def test_a_record_of_the_path_may_stay_with_a_single_address() -> None:
    path = [carrier([1, 2])]
    found = unwrapped(encapsulate(INNER, SOURCE, path, reduced=False))
    assert (found.srh.segments_left, found.srh.segments) == (0, tuple(path))


def test_ipv4_travels_inside_too() -> None:
    inner = datagram(ip_address("10.0.0.1"), ip_address("10.0.0.2"), 1, 4791, b"")
    assert unwrapped(encapsulate(inner, SOURCE, [carrier([1])])).outer.protocol == 4


def test_a_plain_packet_is_no_encapsulation() -> None:
    assert parse_encapsulation(INNER) is None


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda srh: srh[:7], Truncated),
        (lambda srh: srh[:-1], Truncated),
        (lambda srh: srh[:2] + b"\0" + srh[3:], Malformed),
        (lambda srh: srh[:3] + b"\x09" + srh[4:], Malformed),
        (lambda srh: srh[:4] + b"\x09" + srh[5:], Malformed),
    ],
)
def test_broken_routing_headers_are_refused(change: Any, error: type[Exception]) -> None:
    srh = SegmentRoutingHeader(41, 1, (carrier([1]), carrier([2]))).emit()
    assert parse_srh(srh, 0).emit() == srh
    with pytest.raises(error):
        parse_srh(change(srh), 0)


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(MisuseError, match="at least one"):
        encapsulate(INNER, SOURCE, [])
