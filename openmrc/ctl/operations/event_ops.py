"""EV events, and batches of endpoint requests: operations that may wait."""

from __future__ import annotations

import msgspec

from openmrc.ctl.device import CtlDevice
from openmrc.ctl.endpoint_requests import PROBE, EpRequest, EpResponse
from openmrc.ctl.ev_events import EvStateEvent
from openmrc.errors import InvalidArgumentError

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
