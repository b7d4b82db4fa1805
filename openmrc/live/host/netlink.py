"""Interfaces, addresses and routes of this network namespace from rtnetlink(7), netlink(7).

The older ioctls report one IPv4 address per interface and no routes; netlink reports all, and announces changes.
"""

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

_GET_LINK = 18
_GET_ADDRESS = 22
_GET_ROUTE = 26
_LOOPBACK, _WORKS = 0x8, 0x1 | 0x10000  # interface flags; IFF_UP and IFF_LOWER_UP, a carrier
_ERROR, _DONE = 2, 3
_REQUEST, _DUMP = 0x1, 0x300
_GROUPS = 0x1 | 0x10 | 0x100  # RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR
_IFNAME, _MTU, _MASTER, _LINKINFO, _LINK_NETNSID = 3, 4, 10, 18, 37  # IFLA_*
_INFO_KIND = 1  # IFLA_INFO_KIND, in IFLA_LINKINFO
_ADDRESS, _LOCAL = 1, 2  # IFA_*
_DESTINATION, _SOURCE, _OUTPUT = 1, 2, 4  # RTA_*
_HEADER = struct.Struct("=IHHII")
_REPLY_BYTES = 1 << 17  # bytes, above the size of one part of a dump
_TIMEOUT = 2.0  # s; the kernel answers immediately

Address = IPv4Address | IPv6Address


@dataclass(frozen=True)
class NetlinkInterface:
    index: int
    name: str
    mtu: int  # bytes
    works: bool  # packets can leave: it is administratively up and has a carrier
    is_loopback: bool
    kind: str = ""  # of a virtual link, as in `ip link add type`; empty: hardware
    master: int = 0  # index of the bridge or bond that it is a port of; 0: none
    is_peer_elsewhere: bool = False  # its other end, or what it is on, is in another network namespace


def links() -> dict[int, NetlinkInterface]:
    """Return all interfaces by index."""
    found = (_link(body) for kind, body in _ask(_GET_LINK, struct.pack("=BxHiII", 0, 0, 0, 0, 0), _DUMP))
    return {link.index: link for link in found}


def addresses() -> list[tuple[int, Address]]:
    """Return the index of an interface with each of its addresses, all of IPv4 before those of IPv6."""
    found = []
    for family in (socket.AF_INET, socket.AF_INET6):
        for _, body in _ask(_GET_ADDRESS, struct.pack("=BBBBI", family, 0, 0, 0, 0), _DUMP):
            (index,) = struct.unpack_from("=4xI", body)
            attributes = dict(_attributes(body[8:]))
            packed = attributes.get(_LOCAL) or attributes.get(_ADDRESS)
            if packed:
                found.append((index, ip_address(packed)))
    return found


def route(destination: Address, source: Address) -> int | None:
    """Return the index of the interface by which packets from `source` to `destination` leave; None: no route."""
    family, bits = (socket.AF_INET, 32) if destination.version == 4 else (socket.AF_INET6, 128)
    request = struct.pack("=BBBBBBBBI", family, bits, bits, 0, 0, 0, 0, 0, 0)
    request += _attribute(_DESTINATION, destination.packed) + _attribute(_SOURCE, source.packed)
    try:
        _, body = next(_ask(_GET_ROUTE, request, 0))
    except OSError:
        return None
    attributes = dict(_attributes(body[12:]))
    return _word(attributes[_OUTPUT]) if _OUTPUT in attributes else None


def open_monitor() -> socket.socket:
    """Return a non-blocking socket that receives an announcement of every change of a link or an address."""
    monitor = _socket(_GROUPS)
    monitor.setblocking(False)
    return monitor


def _socket(groups: int) -> socket.socket:
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    try:
        sock.bind((0, groups))
    except BaseException:
        sock.close()
        raise
    return sock


def _ask(kind: int, body: bytes, flags: int) -> Iterator[tuple[int, bytes]]:
    """Send one request and yield kind and body of each reply message; OSError if the kernel refuses it."""
    with _socket(0) as sock:
        sock.settimeout(_TIMEOUT)
        sock.send(_HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | flags, 1, 0) + body)
        while True:
            for answered, message in _messages(sock.recv(_REPLY_BYTES)):
                if answered == _DONE:
                    return
                if answered == _ERROR:
                    code = -struct.unpack_from("=i", message)[0]
                    raise OSError(code, os.strerror(code))
                yield answered, message
            if not flags & _DUMP:
                return


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, at)
        if length < _HEADER.size or at + length > len(data):
            return
        yield kind, data[at + _HEADER.size : at + length]
        at += length + 3 & ~3


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4 or at + length > len(data):
            return
        yield kind & 0x3FFF, data[at + 4 : at + length]
        at += length + 3 & ~3


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value


def _link(body: bytes) -> NetlinkInterface:
    _, _, index, flags, _ = struct.unpack_from("=BxHiII", body)
    attributes = dict(_attributes(body[16:]))
    name = attributes.get(_IFNAME, b"").rstrip(b"\0").decode(errors="replace")
    info = dict(_attributes(attributes.get(_LINKINFO, b"")))
    return NetlinkInterface(
        index,
        name,
        _word(attributes[_MTU]),
        flags & _WORKS == _WORKS,
        bool(flags & _LOOPBACK),
        info.get(_INFO_KIND, b"").rstrip(b"\0").decode(errors="replace"),
        _word(attributes[_MASTER]) if _MASTER in attributes else 0,
        _LINK_NETNSID in attributes,
    )


def _word(data: bytes) -> int:
    return int(struct.unpack_from("=I", data)[0])
