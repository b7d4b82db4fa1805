"""The tester's sockets: which device a packet comes from, and devices that cannot be told apart or reached."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from openmrc.conform.datagrams import TapDatagram
from openmrc.conform.devices.contract import DeviceUnsupportedError
from openmrc.conform.media.medium import arrived_at
from openmrc.conform.media.sockets import SocketMedium
from openmrc.errors import ConfigError

HIGH, LOW = divmod(os.getpid() & 0x3FFF, 256)
TESTER, FIRST, SECOND = (f"127.{64 + HIGH}.{LOW}.{last}" for last in (201, 202, 203))
PORT = 0xC0AB


@pytest.fixture
def medium() -> Iterator[SocketMedium]:
    made = SocketMedium([[TESTER], [TESTER]], [])
    yield made
    made.close()


def device(address: str) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((address, PORT))
    sock.settimeout(5.0)
    return sock


def test_two_devices_talk_to_one_address_of_the_tester_and_back(medium: SocketMedium) -> None:
    for side, address in enumerate((FIRST, SECOND)):
        medium.meet(side, [f"{address}:{PORT}"])
    with device(FIRST) as first, device(SECOND) as second:
        for number, sock in enumerate((first, second)):
            sock.sendto(bytes([number]) * 20, (TESTER, 4791))
        came: list[tuple[int, bytes]] = []
        until = time.monotonic_ns() + 5_000_000_000
        while len(came) < 2 and medium.now() < until:
            came += [(each.datagram.side, each.datagram.body[:1]) for each in medium.wait(until)]
        assert sorted(came) == [(0, b"\0"), (1, b"\1")]
        for side in (0, 1):  # one EV towards both: the same address and port of the tester
            medium.send(TapDatagram(side, 0, 0xC1F8, bytes([side])))
        assert [sock.recvfrom(99) for sock in (first, second)] == [(bytes([n]), (TESTER, 0xC1F8)) for n in (0, 1)]


def test_two_devices_with_one_address_cannot_be_told_apart(medium: SocketMedium) -> None:
    medium.meet(0, [FIRST])
    with pytest.raises(DeviceUnsupportedError, match="cannot tell them apart"):
        medium.meet(1, [FIRST])


def test_more_planes_than_the_tester_has_are_unsupported(medium: SocketMedium) -> None:
    with pytest.raises(DeviceUnsupportedError, match="2 planes, the tester has 1"):
        medium.meet(0, [FIRST, SECOND])


def test_another_version_of_ip_and_no_route_are_faults_of_the_set_up(medium: SocketMedium) -> None:
    with pytest.raises(ConfigError, match="IP versions differ"):
        medium.meet(0, ["fd25::1"])
    medium.meet(0, ["255.255.255.255"])
    with pytest.raises(ConfigError, match=r"cannot send 1 bytes to 255.255.255.255: Permission denied"):
        medium.send(TapDatagram(0, 0, 0xC1F8, b"x"))


def timespec(ns: int) -> bytes:
    return struct.pack("qq", *divmod(ns, 10**9))


def test_a_packet_never_seems_to_come_before_it_did_whatever_pauses_the_tester(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading of a clock takes 5 ms here, as it may on a host that is busy elsewhere."""
    passed = [7]  # ns

    def reading(since: int) -> Callable[[], int]:
        def read() -> int:
            passed[0] += 5_000_000
            return passed[0] + since

        return read

    began = 10**18  # ns since 1970
    monkeypatch.setattr(time, "time_ns", reading(began))
    monkeypatch.setattr(time, "monotonic_ns", reading(0))
    assert 7 <= arrived_at(timespec(began + 7)) <= passed[0]
    assert arrived_at(timespec(began + 10**12)) <= passed[0]  # the clock went back meanwhile
