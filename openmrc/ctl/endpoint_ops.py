"""Operations on an endpoint: its ports, the paths of its queue pairs and their votes, denials, events, requests."""

import msgspec

from openmrc.ctl.denials import MOST_LEASE, Denial
from openmrc.ctl.device import COUNTED, CtlDevice, DeviceReport, EvReport, PortReport, QpReport
from openmrc.ctl.endpoint_requests import PROBE, EpRequest, EpResponse
from openmrc.ctl.ev_events import EvStateEvent
from openmrc.errors import InvalidArgumentError


class Nothing(msgspec.Struct):
    """A request or reply without fields."""


class PortsReply(msgspec.Struct, kw_only=True):
    """Every port."""

    ports: list[PortReport]


class SetPort(msgspec.Struct, kw_only=True):
    """Enable or disable a port."""

    port: int
    enabled: bool


def device(endpoint: CtlDevice, request: Nothing) -> DeviceReport:
    """Return the endpoint and its limits."""
    return endpoint.device()


def ports(endpoint: CtlDevice, request: Nothing) -> PortsReply:
    """Return the ports."""
    return PortsReply(ports=endpoint.ports())


def set_port(endpoint: CtlDevice, request: SetPort) -> PortsReply:
    """Set the admin state of a port and return all ports."""
    endpoint.set_port(request.port, request.enabled)
    return PortsReply(ports=endpoint.ports())


class PathsQuery(msgspec.Struct, kw_only=True):
    """Which queue pairs; 0: all."""

    qpn: int = 0


class PathsReply(msgspec.Struct, kw_only=True):
    """Queue pairs with their EVs."""

    queue_pairs: list[QpReport]


class VotesQuery(msgspec.Struct, kw_only=True):
    """Which votes; 0: of all ports."""

    port: int = 0


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


class VotesReply(msgspec.Struct, kw_only=True):
    """Votes by peer, port and EV. Counters only grow; of more than 65,536 paths the oldest are forgotten."""

    votes: list[Vote]


def paths(device: CtlDevice, request: PathsQuery) -> PathsReply:
    """Return queue pairs with the states of their EVs."""
    found = [each for each in device.queue_pairs() if request.qpn in (0, each.qpn)]
    return PathsReply(queue_pairs=found)


def votes(device: CtlDevice, request: VotesQuery) -> VotesReply:
    """Return the votes of all queue pairs, added up by path."""
    sums: dict[tuple[str, int, int], Vote] = {}
    for pair in (*device.queue_pairs(), *device.departed()):
        for ev in pair.evs:
            if request.port in (0, ev.port):
                peer = pair.peer[ev.port - 1]
                vote = sums.setdefault((peer, ev.port, ev.ev), Vote(peer=peer, port=ev.port, ev=ev.ev, path=ev.path))
                _add(vote, ev)
    return VotesReply(votes=list(sums.values()))


def _add(vote: Vote, ev: EvReport) -> None:
    for name in COUNTED:
        setattr(vote, name, getattr(vote, name) + getattr(ev, name))
    vote.denied |= ev.state == "DENIED"


class Deny(msgspec.Struct, kw_only=True):
    """EVs to deny, in order up to the first that is refused (`done`)."""

    denials: list[Denial]
    lease: float = MOST_LEASE  # s
    epoch: int | None = None  # None: the present one


class Renew(msgspec.Struct, kw_only=True):
    """Extend everything that is denied."""

    lease: float = MOST_LEASE  # s, from now
    epoch: int | None = None


class Lift(msgspec.Struct, kw_only=True):
    """EVs to use again; None: all."""

    denials: list[Denial] | None = None
    epoch: int | None = None


class DenialsQuery(msgspec.Struct):
    """What is denied."""


class DeniedEv(msgspec.Struct, kw_only=True):
    """A denial and how long its lease has left."""

    denial: Denial
    seconds: float


class DenialsReply(msgspec.Struct, kw_only=True):
    """What is denied now."""

    epoch: int
    denied: list[DeniedEv]


def deny(device: CtlDevice, request: Deny) -> DenialsReply:
    """Deny EVs; return all denials."""
    device.denied.deny(request.denials, request.epoch, request.lease)
    return _reply(device)


def renew(device: CtlDevice, request: Renew) -> DenialsReply:
    """Renew all denials; return them."""
    device.denied.renew(request.epoch, request.lease)
    return _reply(device)


def lift(device: CtlDevice, request: Lift) -> DenialsReply:
    """Lift denials; return those that are left."""
    device.denied.lift(request.denials, request.epoch)
    return _reply(device)


def denials(device: CtlDevice, request: DenialsQuery) -> DenialsReply:
    """Return all denials."""
    return _reply(device)


def _reply(device: CtlDevice) -> DenialsReply:
    epoch, found = device.denied.denials()
    return DenialsReply(epoch=epoch, denied=[DeniedEv(denial=denial, seconds=left) for denial, left in found])


MOST_WAIT = 5.0  # s in one call


class CreateEvents(msgspec.Struct, kw_only=True):
    """A queue of EV events for this reader."""

    capacity: int = 4096


class EventQueueReply(msgspec.Struct, kw_only=True):
    """The number of a queue."""

    queue: int


class PollEvents(msgspec.Struct, kw_only=True):
    """Read a queue; wait up to `wait` seconds for the first event."""

    queue: int
    most: int = 256
    wait: float = 0.0


class EvEventsReply(msgspec.Struct, kw_only=True):
    """Events, oldest first."""

    events: list[EvStateEvent]


class EpBatch(msgspec.Struct, kw_only=True):
    """Requests of one kind, and how long to wait for their answers."""

    requests: list[EpRequest]
    kind: str = PROBE
    timeout: float = 1.0  # s


class EpBatchReply(msgspec.Struct, kw_only=True):
    """Answers in the order of arrival; who did not answer in time is missing."""

    responses: list[EpResponse]


def create_events(device: CtlDevice, request: CreateEvents) -> EventQueueReply:
    """Create a queue of EV events."""
    return EventQueueReply(queue=device.profiles.events.create(request.capacity))


def destroy_events(device: CtlDevice, request: EventQueueReply) -> EventQueueReply:
    """Remove a queue of EV events."""
    device.profiles.events.destroy(request.queue)
    return request


def poll_events(device: CtlDevice, request: PollEvents) -> EvEventsReply:
    """Return EV events."""
    if not 0 <= request.wait <= MOST_WAIT:
        raise InvalidArgumentError(f"wait: {request.wait} s is not in 0..{MOST_WAIT:g}")
    if request.most < 1:
        raise InvalidArgumentError(f"most: {request.most} is below 1")
    return EvEventsReply(events=device.profiles.events.poll(request.queue, request.most, request.wait))


def ep_batch(device: CtlDevice, request: EpBatch) -> EpBatchReply:
    """Send endpoint requests and return the answers that came in time."""
    return EpBatchReply(responses=device.requests.send_wait(request.kind, request.requests, request.timeout))
