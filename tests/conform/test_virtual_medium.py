"""The network in virtual time: whole IP packets pass, and a host drops those that were damaged."""

from __future__ import annotations

import pytest

from openmrc.conform.datagrams import TapDatagram, TapLink, ip_frame
from openmrc.conform.media import medium
from openmrc.conform.parsing import parse_tests
from openmrc.conform.results import TestVerdict
from openmrc.conform.suite import run_virtually

HEAD = "test 1.2/1 wire-order must responder\n    What it shows.\n"
IPV4, IPV6 = "plane=0", "plane=1"
PLACES = [  # plane, byte
    (IPV4, 3),  # total length
    (IPV4, 8),  # time to live, which the header checksum covers
    (IPV4, 27),  # UDP checksum
    (IPV4, 60),  # payload
    (IPV6, 5),  # payload length
    (IPV6, 46),  # UDP checksum
    (IPV6, 80),  # payload
]


@pytest.mark.parametrize(("plane", "at"), PLACES)
def test_a_damaged_packet_is_dropped_as_by_a_host(plane: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(datagram: TapDatagram, link: TapLink, from_device: bool) -> bytes:
        frame = bytearray(ip_frame(datagram, link, from_device))
        frame[at] ^= 1
        return bytes(frame)

    (test,) = parse_tests(f"{HEAD}> WRITE_ONLY psn=0 length=64 a=1 {plane}\n+5ms ! ANSWER\n", "a")
    assert run_virtually(test).verdict == TestVerdict.FAIL
    monkeypatch.setattr(medium, "ip_frame", damaged)
    assert run_virtually(test).verdict == TestVerdict.PASS


def test_class_mark_and_path_are_read_from_the_headers() -> None:
    steps = "> WRITE_ONLY psn=0 length=64 ecn=3 ev=5\n< SACK seth.m=1 entropy=5 dscp=46 ecn=2\n"
    (test,) = parse_tests(HEAD + steps, "a")
    assert run_virtually(test).verdict == TestVerdict.PASS
