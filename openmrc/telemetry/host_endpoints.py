"""All endpoints of this host that have a controller socket, or publish their tables: their snapshots and events."""

from __future__ import annotations

import importlib
import logging

from openmrc.ctl.client import CtlClient, local_endpoints
from openmrc.ctl.folder import check_private, folder_of
from openmrc.errors import CallError, PeerError
from openmrc.telemetry.event_log import TelemetryEvent
from openmrc.telemetry.snapshot_ops import EventsQuery, EventsReply, SnapshotQuery
from openmrc.telemetry.snapshots import EndpointSnapshot

log = logging.getLogger(__name__)
TABLES_ENDING = ".tables"  # of files that lead to the tables of programs through libmrc
TABLES_READER = "openmrc.native.shared_tables:snapshots"  # in a layer above this one
CALL_SECONDS = 2.0  # for each endpoint: one that hangs must not hide the others


def host_snapshots(folder: str | None = None, with_evs: bool = False) -> list[EndpointSnapshot]:
    """Return a snapshot of each endpoint; those that do not answer are left out and logged."""
    found = []
    for path in local_endpoints(folder):
        try:
            with CtlClient(path, CALL_SECONDS) as client:
                found.append(client.call("snapshot", SnapshotQuery(with_evs=with_evs), EndpointSnapshot))
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
                new = client.call("events", EventsQuery(since=seen.get(path.stem, 0)), EventsReply).events
        except (PeerError, CallError) as error:
            log.debug("mrc: %s", error)
            continue
        if new:
            seen[path.stem] = new[-1].number
        found += new
    return sorted(found, key=lambda event: event.at)
