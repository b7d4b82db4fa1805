"""The generated page: current, and the worked packet right by others' arithmetic."""

import re
import zlib

import pytest

from openmrc.wire.headers import HEADERS
from openmrc.wire.wireshark import filter_name
from spec.wire_page import PAGE_FILE, page

AGAIN = "the table changed: run python -m spec.wire_page"


def test_the_page_says_what_the_table_says() -> None:
    assert PAGE_FILE.read_text() == page().rstrip("\n") + "\n", AGAIN


def test_every_field_has_a_filter_name_of_its_own() -> None:
    names = [filter_name(header, field) for header in HEADERS for field in header.fields]
    assert len(set(names)) == len(names)


def worked() -> dict[str, bytes]:
    """The packet on the page, what its ICRC covers, and the ICRC."""
    block = re.search(r"^sent (.*?)^```", PAGE_FILE.read_text(), re.DOTALL | re.MULTILINE)
    assert block is not None
    sent, covered, value = re.split(r"covered|ICRC", block[1])
    return {"sent": bytes.fromhex(sent), "covered": bytes.fromhex(covered), "icrc": bytes.fromhex(value)}


def test_the_icrc_of_the_worked_packet_is_the_crc_of_what_it_covers() -> None:
    packet = worked()
    assert zlib.crc32(packet["covered"]).to_bytes(4, "little") == packet["icrc"] == packet["sent"][-4:]
    same = [sent == covered for sent, covered in zip(packet["sent"], packet["covered"][8:], strict=False)]
    masked = {at for at, is_same in enumerate(same) if not is_same}
    assert masked == {1, 8, 10, 11, 26, 27, 32}  # TOS, TTL, checksum; checksum of UDP; byte 4 of BTH
    assert {packet["covered"][8 + at] for at in masked} == {0xFF}
    assert packet["covered"][:8] == b"\xff" * 8


def test_scapy_makes_the_worked_packet() -> None:
    pytest.importorskip("scapy")
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import IP, UDP
    from scapy.packet import Raw

    sent = worked()["sent"]
    bth = BTH(opcode=0xCA, pkey=0xFFFF, dqpn=0x123456, ackreq=1, psn=0xABCDEF, padcount=3, resv7=1 << 4)
    ip = IP(src="192.0.2.1", dst="192.0.2.2", id=0, flags="DF", ttl=64, tos=4 << 2 | 2)
    made = bytes(ip / UDP(sport=0xC001, dport=4791) / bth / Raw(sent[40:-4]))
    assert made[-4:] == sent[-4:]
    assert made[28:] == sent[28:]
