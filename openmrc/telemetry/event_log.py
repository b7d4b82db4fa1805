"""The event log: one JSON object a line, for EV transitions, ports, queue pair errors and timers.

The last lines stay in memory, where `mrc ctl` and the page read them; `MRC_EVENT_LOG` names a file to append them to.
Writing never delays the endpoint by more than a write to a file, and a file that cannot be written is given up once.
"""

import collections
import logging
import os
import threading
import time
from pathlib import Path

import msgspec

log = logging.getLogger(__name__)
VARIABLE = "MRC_EVENT_LOG"
MOST_KEPT = 4096
MOST_FILE_BYTES = 64 << 20  # then the file is full: telemetry must not fill a disk


class TelemetryEvent(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One line of the log."""

    number: int  # from 1, without gaps
    at: float  # s since 1970
    kind: str  # ev_state, port, peer_ports, silent_port, qp_error, timer, cq_error, verdict, action
    device: str = ""
    qpn: int = 0
    port: int = 0  # from 1
    ev: int = -1
    state: str = ""  # of the EV, port or queue pair
    cause: str = ""
    text: str = ""


class EventLog:
    """Keeps events, and appends them to a file."""

    def __init__(self, device: str, path: str | None = None) -> None:
        """`path` is the file, None: as the environment says."""
        named = os.environ.get(VARIABLE, "") if path is None else path
        self._device = device
        self._path = Path(named) if named else None
        self._kept: collections.deque[TelemetryEvent] = collections.deque(maxlen=MOST_KEPT)
        self._lock = threading.Lock()
        self.count = 0

    def add(self, kind: str, **fields: object) -> TelemetryEvent:
        """Append an event; fields as of `TelemetryEvent`."""
        with self._lock:
            self.count += 1
            event = TelemetryEvent(number=self.count, at=time.time(), kind=kind, device=self._device, **fields)  # type: ignore[arg-type]
            self._kept.append(event)
            self._write(event)
        return event

    def since(self, number: int, most: int = MOST_KEPT) -> list[TelemetryEvent]:
        """Return at most so many events after a number, the oldest first; those no longer kept are missing."""
        with self._lock:
            found = [event for event in self._kept if event.number > number]
        return found[:most]

    def _write(self, event: TelemetryEvent) -> None:
        if self._path is None:
            return
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                if os.fstat(descriptor).st_size > MOST_FILE_BYTES:
                    raise OSError(f"larger than {MOST_FILE_BYTES} bytes")
                os.write(descriptor, msgspec.json.encode(event) + b"\n")  # appended whole, whoever else writes
            finally:
                os.close(descriptor)
        except OSError as error:
            log.warning("mrc: %s: %s: no more events are written: %s", VARIABLE, self._path, error)
            self._path = None
