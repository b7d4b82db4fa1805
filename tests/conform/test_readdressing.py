"""What leaves the relay on another side: its ICRC follows the addresses, and stays as wrong as it was."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from msgspec import structs

from openmrc.conform.datagrams import TapDatagram, TapLink, icrc_change, read, readdressed, seal
from openmrc.wire.codes import DSCP_TRIMMED, Opcode
from openmrc.wire.message import compose

PORT = 0xC007


def link(here: str, there: str, port: int = 4791) -> TapLink:
    return TapLink(ip_address(here), ip_address(there), port, port)


@pytest.mark.parametrize("length", [0, 63, 1024])
@pytest.mark.parametrize(
    ("arrived", "leaves"),
    [
        (link("192.0.2.1", "192.0.2.2"), link("192.0.2.3", "192.0.2.4", 4792)),
        (link("2001:db8::1", "2001:db8::2"), link("2001:db8::3", "2001:db8::4")),
    ],
)
def test_the_icrc_of_a_packet_follows_its_addresses(arrived: TapLink, leaves: TapLink, length: int) -> None:
    sent = compose(Opcode.WRITE_ONLY, bytes(length), bth={"ts": 1, "psn": 9}).emit()
    source = TapLink(arrived.there, arrived.here, arrived.there_port, arrived.here_port)
    datagram = TapDatagram(0, 0, PORT, seal(sent, PORT, source))
    assert read(datagram, arrived).icrc_ok
    change = icrc_change(arrived, leaves, PORT, len(datagram.body))
    gone = readdressed(datagram, 1, change)
    seen = TapLink(leaves.there, leaves.here, leaves.there_port, leaves.here_port)
    assert gone.side == 1
    assert read(gone, seen).icrc_ok
    wrong = structs.replace(datagram, body=datagram.body[:-1] + bytes([datagram.body[-1] ^ 4]))
    assert read(readdressed(wrong, 1, change), seen).icrc_ok is False


def test_a_packet_without_an_icrc_is_left_as_it_is() -> None:
    body = compose(Opcode.WRITE_ONLY, bytes(64), bth={"ts": 1}).emit()[:40]
    trimmed = TapDatagram(0, 0, PORT, body, DSCP_TRIMMED)
    assert readdressed(trimmed, 1, 0x1234).body == body
    assert icrc_change(link("192.0.2.1", "192.0.2.2"), link("192.0.2.3", "192.0.2.4"), PORT, 3) == 0
