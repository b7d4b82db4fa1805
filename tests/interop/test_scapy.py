"""Our ICRC against the one that scapy's RoCE layer computes."""

from ipaddress import ip_address

from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6

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
