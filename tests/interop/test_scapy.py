"""Our ICRC against the one that scapy's RoCE layer computes."""

from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from openmrc.conform.adapters import rocev2
from openmrc.conform.devices.contract import pattern
from openmrc.wire.message import MrcPacket

from ..wire.packets import framed, messages, repeatable


@repeatable
@given(messages(), st.sampled_from((("10.0.0.1", "10.0.0.2"), ("fd00::1", "fd00::2"))), st.integers(1, 65535))
def test_scapy_computes_the_same_icrc(message: MrcPacket, addresses: tuple[str, str], port: int) -> None:
    ours = framed(message, *addresses, port=port)
    network = (IP if ip_address(addresses[0]).version == 4 else IPv6)(ours)
    network[UDP].remove_payload()
    roce = BTH(message.emit() + bytes(4))
    roce.icrc = None
    theirs = bytes(network / roce)
    assert theirs[-4:] == ours[-4:]
    assert theirs[-4 - len(message.emit()) : -4] == message.emit()


def test_scapy_makes_the_same_packets_of_rocev2_as_the_negative_control_of_the_conformance_tests() -> None:
    ours, peer = {"planes": ["127.0.0.1"]}, {"planes": ["127.0.0.2"], "addr": 5, "r_key": 7, "mtu": 1024, "qpn": 9}
    (made,) = rocev2.datagrams(ours, peer, {"length": 63})
    reth = (5).to_bytes(8, "big") + (7).to_bytes(4, "big") + (63).to_bytes(4, "big")
    bth = BTH(opcode=rocev2.RC_WRITE_ONLY, dqpn=9, psn=rocev2.PSN, ackreq=1, padcount=1, migreq=0)
    packet = IP(src="127.0.0.1", dst="127.0.0.2", id=0, flags="DF") / UDP(sport=0xC000, dport=4791) / bth
    assert bytes(packet / Raw(reth + pattern(0, 63, 1) + bytes(1)))[28:] == made
