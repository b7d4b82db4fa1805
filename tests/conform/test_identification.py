"""IPv4 devices that number their packets, as Linux rxe and scapy do: the ICRC covers a field that sockets hide."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from msgspec import structs

from openmrc.conform.catalogue import chosen, shipped_tests
from openmrc.conform.datagrams import TapDatagram, TapLink, hidden_change, read
from openmrc.conform.devices.virtual import VirtualDevice, links
from openmrc.conform.execution import TestExecution
from openmrc.conform.media.medium import VirtualMedium
from openmrc.conform.results import TestResult, TestVerdict
from openmrc.wire.codes import Opcode
from openmrc.wire.message import compose

LINK: TapLink = links(0, 1)[0]


def seal(body: bytes, port: int, link: TapLink, identification: int, fragment: int = 0x4000) -> bytes:
    """Return what a device sends, with the ICRC as Annex A17 has it for any IPv4 header."""
    udp_length = 8 + len(body) + 4
    ip = b"\x45\xff" + (20 + udp_length).to_bytes(2, "big") + identification.to_bytes(2, "big")
    ip += fragment.to_bytes(2, "big") + b"\xff\x11\xff\xff" + link.there.packed + link.here.packed
    udp = port.to_bytes(2, "big") + (4791).to_bytes(2, "big") + udp_length.to_bytes(2, "big") + b"\xff\xff"
    covered = b"\xff" * 8 + ip + udp + body[:4] + b"\xff" + body[5:]
    return body + zlib.crc32(covered).to_bytes(4, "little")


def datagram(length: int, identification: int, fragment: int = 0x4000) -> TapDatagram:
    body = compose(Opcode.WRITE_ONLY, bytes(range(length)), bth={"dqp": 3}, reth={"dmalen": length}).emit()
    return TapDatagram(0, 0, 0xC005, seal(body, 0xC005, LINK, identification, fragment))


@pytest.mark.parametrize("length", [0, 64, 251])
@pytest.mark.parametrize("identification", [0, 1, 0x1234, 0x8000, 0xFFFF])
@pytest.mark.parametrize(("fragment", "says"), [(0x4000, ""), (0, ", DF clear")])
def test_identification_and_df_are_found_from_the_icrc(
    length: int, identification: int, fragment: int, says: str
) -> None:
    seen = read(datagram(length, identification, fragment), LINK)
    assert (seen.icrc_ok, seen.problem) == (True, "")
    expected = f"IPv4 identification {identification:#06x}{says}" if identification or says else ""
    assert seen.supposing == expected


def test_what_no_header_explains_is_wrong() -> None:
    whole = datagram(64, 0x1234)
    for bit in range(8 * 12, 8 * len(whole.body)):  # behind the BTH, so that it can be parsed
        body = bytearray(whole.body)
        body[bit // 8] ^= 1 << bit % 8
        spoilt = structs.replace(whole, body=bytes(body))
        assert read(spoilt, LINK).icrc_ok is False, bit
        assert hidden_change(spoilt, LINK) == 0


class NumberingDevice(VirtualDevice):
    """Gives each of its packets over IPv4 the next identification; IPv6 has none."""

    def __init__(self, side: int, first: int) -> None:
        super().__init__(side)
        self._next = first

    def departures(self) -> Any:
        return [self._numbered(each) for each in super().departures()]

    def _numbered(self, leaves: TapDatagram) -> TapDatagram:
        self._next = (self._next + 0x101) % (1 << 16)
        link = links(self.side, 2)[leaves.plane]
        if link.here.version == 6:
            return leaves
        return structs.replace(leaves, body=seal(leaves.body[:-4], leaves.source_port, link, self._next))


@pytest.mark.parametrize("test_id", ["A17/3", "6.2.2/1", "6.2.2/10", "6.2.2/15", "A17/4", "table-7-3/7"])
def test_devices_that_number_their_packets_pass(test_id: str) -> None:
    (test,) = chosen(shipped_tests(), [test_id])
    devices = [NumberingDevice(side, 0xABCD + side) for side in range(2 if test.part.value == "both" else 1)]
    result: TestResult = TestExecution(test, VirtualMedium(devices), devices).run()
    assert result.verdict == TestVerdict.PASS, result.failure
    assert ("identification 0xacce, which sockets hide" in result.note) == (test.clause == "wire-icrc"), result.note
