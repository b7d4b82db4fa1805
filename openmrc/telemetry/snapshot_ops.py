"""Operations of the controller socket: a snapshot of the endpoint, and its event log."""

from __future__ import annotations

from typing import Protocol

import msgspec

from openmrc.telemetry.event_log import TelemetryEvent
from openmrc.telemetry.snapshots import EndpointSnapshot

MOST_EVENTS = 1000  # of one answer


class SnapshotQuery(msgspec.Struct, kw_only=True):
    """What to include."""

    with_evs: bool = False


class EventsQuery(msgspec.Struct, kw_only=True):
    """Events after a number, at most 1,000."""

    since: int = 0


class EventsReply(msgspec.Struct, kw_only=True):
    """Events, the oldest first; a gap in their numbers is what is no longer kept."""

    events: list[TelemetryEvent]


class ObservedDevice(Protocol):
    """An endpoint, as telemetry sees it."""

    def snapshot(self, with_evs: bool) -> EndpointSnapshot:
        """Return counters and states now."""

    def events(self, since: int, most: int) -> list[TelemetryEvent]:
        """Return lines of the event log after a number."""


def snapshot(device: ObservedDevice, request: SnapshotQuery) -> EndpointSnapshot:
    """Return counters and states now."""
    return device.snapshot(request.with_evs)


def events(device: ObservedDevice, request: EventsQuery) -> EventsReply:
    """Return lines of the event log."""
    return EventsReply(events=device.events(request.since, MOST_EVENTS))
