"""Which hop of a path takes no long packets, asked as tracepath(8) does: by hop limits, and the ICMP that comes back.

A router that cannot forward a packet says so (RFC 1191, RFC 8201), and its MTU. Where that message is lost, short
packets still make the next hop answer that their hop limit is over, and long ones do not: they end between the two.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
from contextlib import suppress

MOST_HOPS = 16
WAIT_S = 0.1  # for the answer of a hop
_PORT = 33434  # of traceroute(8): the destination answers that nobody listens there
_SHORT = 64  # bytes
_MOST_SILENT = 3  # hops in a row that answer nothing; then the rest will not either
_ERROR = struct.Struct("=IBBBBII")  # linux/errqueue.h, sock_extended_err: errno, origin, type, code, pad, info, data
_LOCAL = 1  # origin: this host's interface
_OPTIONS = {  # by family: level, IP_RECVERR, IP_MTU_DISCOVER, hop limit, where the offender's address is
    socket.AF_INET: (socket.IPPROTO_IP, 11, 10, socket.IP_TTL, 4, 4),
    socket.AF_INET6: (socket.IPPROTO_IPV6, 25, 23, socket.IPV6_UNICAST_HOPS, 8, 16),
}
_PMTUDISC_PROBE = 3


def narrow_hop(source: str, destination: str, payload: int) -> str:
    """Return where UDP datagrams of so many bytes end on the way, in words; "" if they arrive, or nothing tells."""
    family = socket.AF_INET6 if ":" in destination else socket.AF_INET
    before, silent = "this host", 0
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock:
        level, report_errors, discover, _, _, _ = _OPTIONS[family]
        sock.bind((source, 0))
        sock.setsockopt(level, report_errors, 1)
        sock.setsockopt(level, discover, _PMTUDISC_PROBE)
        for hops in range(1, MOST_HOPS + 1):
            number, hop, mtu = _asked(sock, family, (destination, hops), payload)
            if number == errno.EMSGSIZE:
                return f"{hop} forwards at most {mtu} bytes"
            if number == 0:
                number, hop, _ = _asked(sock, family, (destination, hops), _SHORT)
                if number != 0:
                    return f"they are lost between {before} and {hop}, which short ones reach"
                silent += 1
            if number == errno.ECONNREFUSED or silent == _MOST_SILENT:
                break
            before = hop or before
    return ""


def _asked(sock: socket.socket, family: int, where: tuple[str, int], payload: int) -> tuple[int, str, int]:
    """Send a datagram so many hops; return errno, hop and MTU of the ICMP that comes back, errno 0 if none does."""
    level, _, _, limit, at, length = _OPTIONS[socket.AddressFamily(family)]
    destination, hops = where
    sock.setsockopt(level, limit, hops)
    with suppress(OSError):  # an earlier ICMP, which is in the queue as well
        sock.sendto(bytes(payload), (destination, _PORT + hops))
    poll = select.poll()
    poll.register(sock, 0)  # errors only
    if not poll.poll(WAIT_S * 1000):
        return 0, "", 0
    _, controls, _, _ = sock.recvmsg(1, 512, socket.MSG_ERRQUEUE)
    for _, _, found in controls:
        number, origin, _, _, _, mtu, _ = _ERROR.unpack_from(found)
        offender = found[_ERROR.size + at : _ERROR.size + at + length]
        hop = "this host" if origin == _LOCAL else socket.inet_ntop(family, offender)
        return number, hop, mtu
    return 0, "", 0
