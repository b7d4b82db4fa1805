"""What happened between two looks at the endpoints of a host: rates, and the worst links and queue pairs."""

from collections.abc import Sequence

import msgspec

from openmrc.telemetry.snapshots import EndpointSnapshot, PortSnapshot, QpSnapshot

MOST_SHOWN = 10  # of links and of queue pairs
_AS_THEY_ARE = ("qpn", "timeouts", "inflight_bytes", "cwnd_bytes", "srtt_us", "ev_states")  # of a queue pair


class PortRate(msgspec.Struct, kw_only=True):
    """A port between two looks."""

    device: str
    port: int
    address: str
    state: str  # up, silent, or why it is down
    transmit_gbps: float  # payload
    receive_gbps: float
    lost_share: float  # of what was sent
    retransmitted: float  # packets/s
    evs: list[int]  # by state, as in EV_STATES


class LinkRate(msgspec.Struct, kw_only=True):
    """A path that loses packets."""

    device: str
    peer: str
    port: int
    ev: int
    path: str
    state: str
    lost_share: float
    lost: int


class QpRate(msgspec.Struct, kw_only=True):
    """A queue pair between two looks."""

    device: str
    qpn: int
    peer: str
    state: str
    transmit_gbps: float
    retransmitted: float  # packets/s
    timeouts: int
    inflight_bytes: int
    cwnd_bytes: int
    srtt_us: float
    ev_states: list[int]


class HostRates(msgspec.Struct, kw_only=True):
    """All endpoints of a host."""

    at: float  # s since 1970
    seconds: float  # between the two looks
    ports: list[PortRate] = []
    worst_links: list[LinkRate] = []
    queue_pairs: list[QpRate] = []


class HostWatch:
    """Remembers the look before."""

    def __init__(self) -> None:
        self._before: dict[str, EndpointSnapshot] = {}
        self.latest = HostRates(at=0.0, seconds=0.0)

    def look(self, snapshots: Sequence[EndpointSnapshot]) -> HostRates:
        """Return the rates since the look before; an endpoint that is new has none yet."""
        pairs = [(self._before.get(_key(each), each), each) for each in snapshots]
        self._before = {_key(each): each for each in snapshots}
        seconds = max((now.at - before.at for before, now in pairs), default=0.0)
        at = max((now.at for _, now in pairs), default=self.latest.at)
        self.latest = HostRates(at=at, seconds=seconds)
        for before, now in pairs:
            self.latest.ports += _ports(before, now)
            self.latest.worst_links += _links(before, now)
            known = {pair.qpn: pair for pair in before.queue_pairs}
            self.latest.queue_pairs += [
                _queue_pair(now.device, known.get(new.qpn, new), new, now.at - before.at) for new in now.queue_pairs
            ]
        self.latest.worst_links.sort(key=lambda link: (-link.lost_share, -link.lost))
        del self.latest.worst_links[MOST_SHOWN:]
        self.latest.queue_pairs.sort(key=lambda pair: (-pair.retransmitted, -pair.transmit_gbps))
        return self.latest


def _key(snapshot: EndpointSnapshot) -> str:
    return f"{snapshot.pid} {snapshot.device}"


def _ports(before: EndpointSnapshot, now: EndpointSnapshot) -> list[PortRate]:
    seconds = now.at - before.at
    return [
        _port(now.device, old, new, seconds)
        for old, new in zip(before.ports, now.ports, strict=len(before.ports) == len(now.ports))
    ]


def _port(device: str, old: PortSnapshot, new: PortSnapshot, seconds: float) -> PortRate:
    sent = new.transmitted_packets - old.transmitted_packets
    state = "silent" if new.silent else "up" if new.up else ", ".join(new.faults) or "down"
    return PortRate(
        device=device,
        port=new.port,
        address=new.address,
        state=state,
        transmit_gbps=_per(8 * (new.transmitted_bytes - old.transmitted_bytes), seconds) / 1e9,
        receive_gbps=_per(8 * (new.received_bytes - old.received_bytes), seconds) / 1e9,
        lost_share=_per(new.lost - old.lost, sent),
        retransmitted=_per(new.retransmitted - old.retransmitted, seconds),
        evs=new.evs,
    )


def _links(before: EndpointSnapshot, now: EndpointSnapshot) -> list[LinkRate]:
    known = {(pair.qpn, ev.port, ev.ev): ev for pair in before.queue_pairs for ev in pair.evs}
    found = []
    for pair in now.queue_pairs:
        for ev in pair.evs:
            old = known.get((pair.qpn, ev.port, ev.ev))
            lost, sent = (ev.lost - old.lost, ev.sent - old.sent) if old is not None else (0, 0)
            if lost > 0 or ev.state == "ASSUMED_BAD":
                peer = pair.peer[ev.port - 1] if len(pair.peer) >= ev.port else ""
                own = {name: getattr(ev, name) for name in ("port", "ev", "path", "state")}
                share = min(_per(lost, sent), 1.0)
                found.append(LinkRate(device=now.device, peer=peer, **own, lost_share=share, lost=lost))
    return found


def _queue_pair(device: str, old: QpSnapshot, new: QpSnapshot, seconds: float) -> QpRate:
    return QpRate(
        device=device,
        peer=new.peer[0] if new.peer else "",
        state=f"{new.state} {new.cause}".strip(),
        transmit_gbps=_per(8 * (new.sent_bytes - old.sent_bytes), seconds) / 1e9,
        retransmitted=_per(new.retransmitted - old.retransmitted, seconds),
        **{name: getattr(new, name) for name in _AS_THEY_ARE},
    )


def _per(count: float, whole: float) -> float:
    return count / whole if whole > 0 else 0.0
