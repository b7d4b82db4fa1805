"""Snapshot and event log of an endpoint, as operations of its controller socket; both of all endpoints of a host."""

import importlib
import logging
from typing import Protocol

import msgspec

from openmrc.ctl.client import CtlClient, local_endpoints
from openmrc.ctl.folder import check_private, folder_of
from openmrc.errors import CallError, PeerError
from openmrc.telemetry.event_log import TelemetryEvent
from openmrc.telemetry.snapshots import EndpointSnapshot

log = logging.getLogger(__name__)
MOST_EVENTS = 1000  # of one answer
TABLES_ENDING = ".tables"  # of files that lead to the tables of programs through libmrc
TABLES_READER = "openmrc.native.shared_tables:snapshots"  # in a layer above this one
CALL_SECONDS = 2.0  # for each endpoint: one that hangs must not hide the others


class EventsReply(msgspec.Struct, kw_only=True):
    """Events, the oldest first; a gap in their numbers is what is no longer kept."""

    events: list[TelemetryEvent]


class ObservedDevice(Protocol):
    """An endpoint, as telemetry sees it."""

    def snapshot(self, with_evs: bool) -> EndpointSnapshot:
        """Return counters and states now."""

    def events(self, since: int, most: int) -> list[TelemetryEvent]:
        """Return lines of the event log after a number."""


def snapshot(device: ObservedDevice, *, with_evs: bool = False) -> EndpointSnapshot:
    """Return counters and states now."""
    return device.snapshot(with_evs)


def events(device: ObservedDevice, *, since: int = 0) -> EventsReply:
    """Return lines of the event log after a number, at most 1,000."""
    return EventsReply(events=device.events(since, MOST_EVENTS))


def host_snapshots(folder: str | None = None, with_evs: bool = False) -> list[EndpointSnapshot]:
    """Return a snapshot of each endpoint; those that do not answer are left out and logged."""
    found = []
    for path in local_endpoints(folder):
        try:
            with CtlClient(path, CALL_SECONDS) as client:
                found.append(client.call(snapshot, with_evs=with_evs))
        except (PeerError, CallError) as error:  # it may have ended, or be of an older release
            log.warning("mrc: %s", error)
    return found + _published(folder, with_evs)


def _published(folder: str | None, with_evs: bool) -> list[EndpointSnapshot]:
    """Return snapshots of endpoints that are not in Python; what reads them is imported only if there are any."""
    place = folder_of(folder)
    leads = sorted(place.glob(f"*{TABLES_ENDING}")) if place.is_dir() else []
    if not leads:
        return []
    check_private(place)
    module, _, name = TABLES_READER.partition(":")
    found: list[EndpointSnapshot] = getattr(importlib.import_module(module), name)(leads, with_evs)
    return found


def host_events(seen: dict[str, int], folder: str | None = None) -> list[TelemetryEvent]:
    """Return events that are new since `seen`, which is updated: the last number of each socket."""
    found: list[TelemetryEvent] = []
    for path in local_endpoints(folder):
        try:
            with CtlClient(path, CALL_SECONDS) as client:
                new = client.call(events, since=seen.get(path.stem, 0)).events
        except (PeerError, CallError) as error:
            log.debug("mrc: %s", error)
            continue
        if new:
            seen[path.stem] = new[-1].number
        found += new
    return sorted(found, key=lambda event: event.at)
