"""Local addresses of an endpoint: given, those of the interfaces, or loopback addresses.

All of 127.0.0.0/8 is local: plane p of a server is 127.0.<p+1>.1 and of a client 127.0.<p+1>.2.
"""

import re
import socket
from collections.abc import Sequence
from enum import Enum
from ipaddress import ip_address

from openmrc.errors import UsageError
from openmrc.live.host.addresses import PlaneAddress, host_of
from openmrc.live.host.interfaces import find_planes, interfaces
from openmrc.live.host.sockets import MAX_PLANES

_NAME = re.compile(r"[A-Za-z][\w.-]*")  # of an interface or host; an address of IPv6 has colons


class EndpointSide(Enum):
    """Which end an endpoint is: on one machine they need different addresses."""

    SERVER = 1
    CLIENT = 2


def local_planes(text: str | None, side: EndpointSide, host: str | None = None) -> list[str]:
    """Return the addresses to open: loopback ones for "4", those named by "10.0.0.1,eth1", the interfaces' for None.

    A client whose `host` is this machine gets the addresses of its interfaces, as the server has them. An empty list
    leaves the choice to the context.
    """
    if text is None:
        is_beside = side == EndpointSide.CLIENT and host is not None and is_this_machine(host)
        return [str(each.address) for each in find_planes(MAX_PLANES)] if is_beside else []
    if text.strip().isdigit():
        count = int(text)
        if not 1 <= count <= MAX_PLANES:
            raise UsageError(f"--planes: {count} planes; expected 1 to {MAX_PLANES}")
        return loopback_planes(count, side)
    return [named_address(part) for each in text.split(",") if (part := each.strip())]


def named_address(text: str) -> str:
    """Return an address as it is, that of the interface or the host of that name; UsageError if there is none."""
    if not _NAME.fullmatch(text):
        return text
    named = [each for each in interfaces() if each.name == text]
    if named:
        return str(PlaneAddress(named[0].address, scope=named[0].scope))
    try:
        return str(socket.getaddrinfo(text, None, type=socket.SOCK_DGRAM)[0][4][0])
    except OSError:
        known = ", ".join(sorted({each.name for each in interfaces()}))
        raise UsageError(f"--planes: {text!r} is no address, no interface ({known}), and no host's name") from None


def loopback_planes(count: int, side: EndpointSide) -> list[str]:
    """Return one loopback address per plane."""
    return [f"127.0.{plane + 1}.{side.value}" for plane in range(count)]


def interface_planes(names: str, index: int) -> list[str]:
    """Return an address of each interface named in "eth0,eth1": the one with this index, from 0."""
    chosen = []
    for name in (part.strip() for part in names.split(",")):
        found = [each for each in interfaces() if each.name == name]
        if not found:
            known = ", ".join(sorted({each.name for each in interfaces()}))
            raise UsageError(f"--ib-dev: no interface {name!r} with an address; available: {known}")
        if index >= len(found):
            raise UsageError(f"--gid-index: {name} has addresses 0 to {len(found) - 1}, not {index}")
        chosen.append(str(PlaneAddress(found[index].address, scope=found[index].scope)))
    return chosen


def planes_beside(planes: Sequence[str]) -> list[str]:
    """Return planes for a second endpoint on this machine, which the first one leaves free."""
    if list(planes) == loopback_planes(len(planes), EndpointSide.CLIENT):
        return loopback_planes(len(planes), EndpointSide.SERVER)
    return [host_of(address) for address in planes]


def is_this_machine(host: str) -> bool:
    """Whether the host's address is local."""
    try:
        summary = {entry[4][0] for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return False
    ours = {each.address for each in interfaces()}
    return any((address := ip_address(str(text).split("%")[0])).is_loopback or address in ours for text in summary)
