"""Operations on an endpoint: its ports, the paths of its queue pairs and their votes, denials, events, requests."""

import msgspec

from openmrc.ctl.denials import MOST_LEASE, Denial
from openmrc.ctl.device import COUNTED, CtlDevice, DeviceReport, EvReport, PortReport, QpReport
from openmrc.ctl.endpoint_requests import PROBE, EpRequest, EpResponse
from openmrc.ctl.ev_events import EvStateEvent
from openmrc.errors import InvalidArgumentError


class PortsReply(msgspec.Struct, kw_only=True):
    """Every port."""

    ports: list[PortReport]


def device(endpoint: CtlDevice) -> DeviceReport:
    """Return the endpoint and its limits."""
    return endpoint.device()


def ports(endpoint: CtlDevice) -> PortsReply:
    """Return the ports."""
    return PortsReply(ports=endpoint.ports())


def set_port(endpoint: CtlDevice, *, port: int, enabled: bool) -> PortsReply:
    """Enable or disable a port; return all ports."""
    endpoint.set_port(port, enabled)
    return PortsReply(ports=endpoint.ports())


class PathsReply(msgspec.Struct, kw_only=True):
    """Queue pairs with their EVs."""

    queue_pairs: list[QpReport]


class Vote(msgspec.Struct, kw_only=True, array_like=True):
    """What was sent on one path, and what came of it, over all queue pairs to this peer since the endpoint opened."""

    peer: str  # its address on the port
    port: int
    ev: int
    path: str  # where the packets are sent: the SRv6 carrier, or the peer's address
    denied: bool = False
    sent: int = 0
    acked: int = 0  # delivered
    lost: int = 0
    marked: int = 0
    trimmed: int = 0
    probes: int = 0
    false_losses: int = 0  # of `lost`, packets that had arrived before they were sent again


class VotesReply(msgspec.Struct, kw_only=True):
    """Votes by peer, port and EV. Counters only grow; of more than 65,536 paths the oldest are forgotten."""

    votes: list[Vote]


def paths(device: CtlDevice, *, qpn: int = 0) -> PathsReply:
    """Return queue pairs, all if `qpn` is 0, with the states of their EVs."""
    found = [each for each in device.queue_pairs() if qpn in (0, each.qpn)]
    return PathsReply(queue_pairs=found)


def votes(device: CtlDevice, *, port: int = 0) -> VotesReply:
    """Return the votes of all queue pairs on a port, 0: on all, added up by path."""
    sums: dict[tuple[str, int, int], Vote] = {}
    for pair in (*device.queue_pairs(), *device.departed()):
        for ev in pair.evs:
            if port in (0, ev.port):
                peer = pair.peer[ev.port - 1]
                vote = sums.setdefault((peer, ev.port, ev.ev), Vote(peer=peer, port=ev.port, ev=ev.ev, path=ev.path))
                _add(vote, ev)
    return VotesReply(votes=list(sums.values()))


def _add(vote: Vote, ev: EvReport) -> None:
    for name in COUNTED:
        setattr(vote, name, getattr(vote, name) + getattr(ev, name))
    vote.denied |= ev.state == "DENIED"


class DeniedEv(msgspec.Struct, kw_only=True):
    """A denial and how long its lease has left."""

    denial: Denial
    seconds: float


class DenialsReply(msgspec.Struct, kw_only=True):
    """What is denied now."""

    epoch: int
    denied: list[DeniedEv]


def deny(
    device: CtlDevice, *, denials: list[Denial], lease: float = MOST_LEASE, epoch: int | None = None
) -> DenialsReply:
    """Deny EVs for `lease` seconds, in order up to the first that is refused (`done`); return all denials.

    Here and below `epoch` None is the present one.
    """
    device.denied.deny(denials, epoch, lease)
    return _reply(device)


def renew(device: CtlDevice, *, lease: float = MOST_LEASE, epoch: int | None = None) -> DenialsReply:
    """Extend all denials until `lease` seconds from now; return them."""
    device.denied.renew(epoch, lease)
    return _reply(device)


def lift(device: CtlDevice, *, denials: list[Denial] | None = None, epoch: int | None = None) -> DenialsReply:
    """Lift denials, None: all; return those that are left."""
    device.denied.lift(denials, epoch)
    return _reply(device)


def denials(device: CtlDevice) -> DenialsReply:
    """Return all denials."""
    return _reply(device)


def _reply(device: CtlDevice) -> DenialsReply:
    epoch, found = device.denied.denials()
    return DenialsReply(epoch=epoch, denied=[DeniedEv(denial=denial, seconds=left) for denial, left in found])


MOST_WAIT = 5.0  # s in one call


class EventQueueReply(msgspec.Struct, kw_only=True):
    """The number of a queue."""

    queue: int


class EvEventsReply(msgspec.Struct, kw_only=True):
    """Events, oldest first."""

    events: list[EvStateEvent]


class EpBatchReply(msgspec.Struct, kw_only=True):
    """Answers in the order of arrival; who did not answer in time is missing."""

    responses: list[EpResponse]


def create_events(device: CtlDevice, *, capacity: int = 4096) -> EventQueueReply:
    """Create a queue of EV events for this reader."""
    return EventQueueReply(queue=device.profiles.events.create(capacity))


def destroy_events(device: CtlDevice, *, queue: int) -> EventQueueReply:
    """Remove a queue of EV events."""
    device.profiles.events.destroy(queue)
    return EventQueueReply(queue=queue)


def poll_events(device: CtlDevice, *, queue: int, most: int = 256, wait: float = 0.0) -> EvEventsReply:
    """Return at most `most` EV events of a queue; wait up to `wait` seconds for the first."""
    if not 0 <= wait <= MOST_WAIT:
        raise InvalidArgumentError(f"wait: {wait} s is not in 0..{MOST_WAIT:g}")
    if most < 1:
        raise InvalidArgumentError(f"most: {most} is below 1")
    return EvEventsReply(events=device.profiles.events.poll(queue, most, wait))


def ep_batch(device: CtlDevice, *, requests: list[EpRequest], kind: str = PROBE, timeout: float = 1.0) -> EpBatchReply:
    """Send endpoint requests of one kind and return the answers that came within `timeout` seconds."""
    return EpBatchReply(responses=device.requests.send_wait(kind, requests, timeout))
