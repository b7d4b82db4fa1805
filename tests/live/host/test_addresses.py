import socket

import pytest

from openmrc.errors import ConfigError
from openmrc.live.host.addresses import PlaneAddress


@pytest.mark.parametrize(
    ("text", "ip", "port", "written"),
    [
        ("192.0.2.1", "192.0.2.1", 4791, "192.0.2.1"),
        ("127.0.0.1:9001", "127.0.0.1", 9001, "127.0.0.1:9001"),
        ("::1", "::1", 4791, "::1"),
        ("[2001:db8::1]:9001", "2001:db8::1", 9001, "[2001:db8::1]:9001"),
        ("[2001:db8::1]", "2001:db8::1", 4791, "2001:db8::1"),
    ],
)
def test_every_way_to_write_an_address_is_read(text: str, ip: str, port: int, written: str) -> None:
    address = PlaneAddress.parse(text)
    assert (str(address.ip), address.port, str(address)) == (ip, port, written)


@pytest.mark.parametrize("text", ["host", "1.2.3", "1.2.3.4:x", "1.2.3.4:0", "1.2.3.4:70000", "fe80::1%nowhere", ""])
def test_wrong_addresses_are_refused_with_their_text(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PlaneAddress.parse(text, "planes, plane 3")
    assert "plane 3" in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["127.0.0.1:9001", "[::1]:9001"])
def test_the_packed_form_is_what_the_kernel_reports(text: str) -> None:
    address = PlaneAddress.parse(text)
    packed = address.packed()
    assert int.from_bytes(packed[:2], "little") == address.family
    assert int.from_bytes(packed[2:4], "big") == 9001
    assert address.ip.packed in packed
    assert len(packed) == (16 if address.family == socket.AF_INET else 28)
