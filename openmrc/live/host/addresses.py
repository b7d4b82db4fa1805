"""Plane addresses in text form and as kernel structures."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from openmrc.errors import ConfigError
from openmrc.wire.codes import UDP_PORT

SHARED_PORTS = range(UDP_PORT, UDP_PORT + 64)  # of the processes on one NIC, in the order in which they come


@dataclass(frozen=True)
class PlaneAddress:
    """An IP address and the UDP port on which packets arrive there."""

    ip: IPv4Address | IPv6Address
    port: int = UDP_PORT
    scope: int = 0  # interface index of a link-local address

    @staticmethod
    def parse(text: str, field: str = "planes") -> PlaneAddress:
        """Read "192.0.2.1", "192.0.2.1:9001", "2001:db8::1", "[2001:db8::1]:9001" or "fe80::1%eth0"."""
        host, port = _split(text.strip())
        host, _, zone = host.partition("%")
        try:
            number = int(port) if port else UDP_PORT
            scope = socket.if_nametoindex(zone) if zone else 0
            address = ip_address(host)
        except ValueError:
            raise ConfigError(f"{field}: {text!r} is not an IP address, with a port or without") from None
        except OSError:
            raise ConfigError(f"{field}: {text!r}: this machine has no interface {zone!r}") from None
        if not 1 <= number <= 65535:
            raise ConfigError(f"{field}: {text!r} has port {number}, not in 1..65535")
        return PlaneAddress(address, number, scope)

    @property
    def family(self) -> socket.AddressFamily:
        """AF_INET or AF_INET6."""
        return socket.AF_INET if self.ip.version == 4 else socket.AF_INET6

    @property
    def is_unicast(self) -> bool:
        """Whether it can be the address of one host: not unspecified, multicast, or IPv4's limited broadcast."""
        return not (self.ip.is_unspecified or self.ip.is_multicast or self.ip == IPv4Address("255.255.255.255"))

    def socket_name(self, port: int | None = None) -> tuple[str, int] | tuple[str, int, int, int]:
        """Return what Python's sockets take; with another port if one is given."""
        number = self.port if port is None else port
        return (str(self.ip), number) if self.ip.version == 4 else (str(self.ip), number, 0, self.scope)

    def packed(self, flow_label: int = 0) -> bytes:
        """Return a `struct sockaddr`."""
        head = struct.pack("=H", self.family) + struct.pack("!H", self.port)
        if self.ip.version == 4:
            return head + self.ip.packed + bytes(8)
        return head + struct.pack("!I", flow_label) + self.ip.packed + struct.pack("=I", self.scope)

    def __str__(self) -> str:
        if self.port == UDP_PORT:
            return str(self.ip)
        return f"{self.ip}:{self.port}" if self.ip.version == 4 else f"[{self.ip}]:{self.port}"


def host_of(text: str) -> str:
    """Return an address as it was written, without its port."""
    return _split(text.strip())[0]


def names_port(text: str) -> bool:
    return bool(_split(text.strip())[1])


def _split(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest.removeprefix(":")
    if text.count(":") == 1:
        host, _, port = text.partition(":")
        return host, port
    return text, ""
