"""Reports of a NIC: counters, paths, events, and the description of a queue pair in errors."""

import errno
import select
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

from openmrc.ctl.device import COUNTED, EvReport
from openmrc.engine import user_timeout
from openmrc.engine.paths import last_probe, silence
from openmrc.engine.state.machines import EvEvent, EvState, QpState
from openmrc.engine.state.queue_pairs import active_rows
from openmrc.engine.state.tables import NONE, Cause, Event, EventKind
from openmrc.live.attributes import AsyncEvent, AsyncEventKind, EvStatus, PeerAddress, PlaneCounters, QpCounters
from openmrc.live.datapath.loop.operations import EMPTY_EV
from openmrc.live.host.addresses import host_of
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.live.host.sockets import LONGEST_HEADERS
from openmrc.units import PS_PER_MS, PS_PER_S, us_from_ps

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
    """Return where UDP datagrams of so many bytes end on the way, in words; "" if they arrive, or nothing tells.

    Asked as tracepath(8) does: a router that cannot forward a packet says so, and its MTU (RFC 1191, RFC 8201). Where
    that message is lost, short packets still make the next hop answer that their hop limit is over; long ones do not.
    """
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


_MOST_EVS = 4  # of one plane, in the text of an error
_OF_PORTS = (
    *("silences", "sent_packets", "sent_bytes", "received_packets", "received_bytes", "retransmitted", "lost"),
    *("requeued", "false_losses", "marked", "trimmed", "control_sent", "control_received"),
)  # counters of the engine


def plane_counters(runtime: EndpointRuntime) -> list[PlaneCounters]:
    counters, doubted = [], runtime.engine.endpoints[0].doubted_ports
    for plane, address in enumerate(runtime.sockets.addresses):
        port, wire = runtime.engine.ports[plane], runtime.datapath.planes[plane]
        counters.append(
            PlaneCounters(
                plane=plane,
                address=str(address),
                up=bool(runtime.engine.endpoints[0].ports_up >> plane & 1),
                silent=bool(doubted >> plane & 1),
                **{name: getattr(port, name) for name in _OF_PORTS},
                impaired=wire.taken,
                refused=wire.refused,
                send_stalls=wire.stalls,
                send_errors=wire.send_errors,
                kernel_drops=wire.kernel_drops,
            )
        )
    return counters


def qp_counters(runtime: EndpointRuntime, qp: int) -> QpCounters:
    row = runtime.engine.qps[qp]
    peer = runtime.engine.peers[row.peer] if row.peer != NONE else None
    names = set(QpCounters.__dataclass_fields__) - {"cwnd", "srtt_us"}
    return QpCounters(
        **{name: getattr(row, name) for name in names},
        cwnd=int(peer.cwnd) if peer is not None else 0,
        srtt_us=us_from_ps(peer.srtt) if peer is not None else 0.0,
    )


def ev_states(runtime: EndpointRuntime, qp: int) -> list[EvStatus]:
    """Return the state and counters of each of a queue pair's EVs."""
    row, silent = runtime.engine.qps[qp], silence.silent_ports(runtime.engine, qp)
    states, active = [], active_rows(runtime.engine, qp)
    for index in range(row.ev_base, row.ev_base + row.ev_count):
        ev, record = runtime.engine.evs[index], runtime.engine.ev_failures[index]
        if ev.value == EMPTY_EV:
            continue  # its EV profile has fewer on this port
        states.append(
            EvStatus(
                plane=ev.port,
                ev=ev.value,
                state=EvState(ev.state),
                active=index in active,
                silent=bool(silent >> ev.port & 1),
                sent=record.sent + ev.sent,
                acked=record.acked + ev.acked,
                lost=record.lost,
                marked=record.marked + ev.marked,
                trimmed=record.trimmed + ev.trimmed,
                probes=last_probe.count(runtime.engine, qp, index),
                false_losses=record.false_losses,
            )
        )
    return states


def ev_reports(runtime: EndpointRuntime, qp: int, path: Callable[[int, int, int], str]) -> list[EvReport]:
    """Return a queue pair's EVs as controllers and telemetry are told; `path` names one of a peer, a plane, an EV."""
    peer = int(runtime.engine.qps[qp].peer)
    return [
        EvReport(
            port=ev.plane + 1,
            ev=ev.ev,
            state=ev.state.name,
            active=ev.active,
            path=path(peer, ev.plane, ev.ev),
            **{name: getattr(ev, name) for name in COUNTED},
        )
        for ev in ev_states(runtime, qp)
    ]


def describe(runtime: EndpointRuntime, qp: int, remote: PeerAddress | None) -> str:
    """Return one line: peer, state, progress, when the peer was last heard, and bad paths."""
    row = runtime.engine.qps[qp]
    who = "/".join(remote.planes) if remote is not None else "nobody"
    text = f"queue pair {row.qpn:#x} to {who}: {QpState(row.state).name}"
    if row.state == QpState.ERROR:
        text += f" ({Cause(row.cause).name}"
        if row.cause == Cause.USER_TIMEOUT:
            text += f": no progress for {user_timeout.allowed(runtime.engine, qp) / PS_PER_S:g} s"
        text += ")"
    text += f", {row.unack_psn - row.first_psn} of {row.next_psn - row.first_psn} packets acknowledged"
    text += f", {row.message_tail - row.message_head} writes open"
    if row.retries > 0:
        text += f", {row.retries} attempts since the last progress"
    if row.heard_at > 0:
        text += f", peer last heard {(runtime.now() - row.heard_at) / PS_PER_MS:.1f} ms ago"
    return f"{text}; {_why_nothing_arrives(runtime, qp, remote)}{_paths(runtime, qp)}"


def _why_nothing_arrives(runtime: EndpointRuntime, qp: int, remote: PeerAddress | None) -> str:
    """Return likely causes where a queue pair failed though its peer answered, or where packets cannot leave.

    Probes are short: they pass where the path MTU has shrunk. It cannot be lowered on a connection: as in InfiniBand,
    all packets of a message but the last are as long as the path MTU that both ends agreed on, the responder refuses
    others, and each PSN that has left stands for that many bytes of its message.
    """
    row = runtime.engine.qps[qp]
    planes = [str(index) for index, plane in enumerate(runtime.datapath.planes) if plane.last_error == errno.EMSGSIZE]
    if planes:
        return f"plane {', '.join(planes)}: packets of {row.path_mtu} bytes are too long for the interface; "
    was_heard = row.heard_at - row.no_progress_since  # ps
    if row.cause == Cause.USER_TIMEOUT and was_heard > user_timeout.allowed(runtime.engine, qp) // 2:
        return (
            f"the peer answers, but no packet of {row.path_mtu} bytes arrives{_narrow_hops(runtime, qp, remote)}: if "
            "the MTU of the path has shrunk, "
            "connect again with a smaller path_mtu (--mtu), or after giving the planes' interfaces "
            "the MTU of the path; "
        )
    return ""


def _narrow_hops(runtime: EndpointRuntime, qp: int, remote: PeerAddress | None) -> str:
    """Return where packets as long as this queue pair's end on the planes, as far as routers say."""
    if remote is None:
        return ""
    pairs = zip(runtime.sockets.addresses, remote.planes, strict=False)
    payload = int(runtime.engine.qps[qp].path_mtu) + LONGEST_HEADERS
    found = (narrow_hop(str(here.ip), host_of(there), payload) for here, there in pairs)
    return "".join(f"; plane {plane}: {said}" for plane, said in enumerate(found) if said)


def _paths(runtime: EndpointRuntime, qp: int) -> str:
    bad: dict[int, list[str]] = {}
    for ev in ev_states(runtime, qp):
        if not ev.is_usable:
            bad.setdefault(ev.plane, []).append(f"EV {ev.ev:#x} {ev.state.name}")
    out = ((~runtime.engine.endpoints[0].ports_up, "port down"), (silence.silent_ports(runtime.engine, qp), "silent"))
    planes = range(len(runtime.sockets.addresses))
    unused = [f"plane {plane} ({why})" for mask, why in out for plane in planes if mask >> plane & 1]
    parts = [*unused, *(f"plane {plane}: {_first_of(evs)}" for plane, evs in bad.items())]
    return "; ".join(parts) or "all EVs of all planes GOOD"


def _first_of(evs: list[str]) -> str:
    more = len(evs) - _MOST_EVS
    return ", ".join(evs[:_MOST_EVS]) + (f" and {more} more" if more > 0 else "")


def event(record: Event, number: int | None) -> AsyncEvent:
    """Return an event of the engine for the application; `number` is that of the queue pair it is about, if any."""
    match record.kind:
        case EventKind.EV_STATE:
            state, cause = EvState(record.state), EvEvent(record.cause).name
            text = f"plane {record.port} EV {record.entropy:#x}: {state.name} ({cause})"
            return AsyncEvent(AsyncEventKind.EV_STATE, number, None, record.port, record.entropy, state, text=text)
        case EventKind.QP_ERROR:
            reason = Cause(record.state)
            return AsyncEvent(AsyncEventKind.QP_FATAL, number, cause=reason, text=f"queue pair in ERROR: {reason.name}")
        case EventKind.LOCAL_PORTS:
            text = f"local ports: {record.state:#b}"
            return AsyncEvent(AsyncEventKind.PORT_ACTIVE, port_mask=record.state, text=text)
        case EventKind.SILENT_PORT:
            text = f"plane {record.port}: " + ("silent, data takes the others" if record.state else "heard again")
            return AsyncEvent(AsyncEventKind.SILENT_PLANE, number, plane=record.port, text=text)
        case _:
            return AsyncEvent(
                AsyncEventKind.PEER_PORTS, port_mask=record.state, text=f"the peer's ports: {record.state:#b}"
            )
