"""A NIC as telemetry sees it: snapshots, totals that outlive queue pairs, and the event log."""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from openmrc.engine.state.machines import EvEvent, EvState, QpState
from openmrc.engine.state.tables import NONE, Cause, Event, EventKind
from openmrc.live.ctl import table_readings
from openmrc.live.ctl.queue_pair_rows import QueuePairRows
from openmrc.live.datapath.loop.link_state import Fault
from openmrc.live.host.runtime import EndpointRuntime
from openmrc.telemetry.event_log import EventLog
from openmrc.telemetry.exposition import openmetrics
from openmrc.telemetry.metrics_server import PORTS_TRIED, MetricsServer, parse_address
from openmrc.telemetry.snapshots import EndpointSnapshot
from openmrc.telemetry.totals import CounterTotals
from openmrc.version import __version__

log = logging.getLogger(__name__)
VARIABLE = "MRC_METRICS"


class Publisher:
    """The endpoints of a process, and the server that `MRC_METRICS` asks for, from the first endpoint to the last.

    Processes of a host may have the same variable, as the ranks of a job do: each takes the next free port, of 64.
    """

    def __init__(self) -> None:
        self._endpoints: dict[int, Callable[[], EndpointSnapshot]] = {}
        self._lock = threading.Lock()
        self.server: MetricsServer | None = None

    def add(self, key: int, snapshot: Callable[[], EndpointSnapshot]) -> None:
        """Publish an endpoint; ConfigError: the variable is wrong, or no port is free."""
        with self._lock:
            self._endpoints[key] = snapshot
            wanted = os.environ.get(VARIABLE, "")
            if not wanted or self.server is not None:
                return
            try:
                openmetrics([])  # the library is there
                self.server = MetricsServer(parse_address(wanted), self.scrape, PORTS_TRIED)
            except BaseException:
                del self._endpoints[key]
                raise
            log.info("mrc: metrics at %s", self.server.url)

    def remove(self, key: int) -> None:
        with self._lock:
            self._endpoints.pop(key, None)
            server = None
            if not self._endpoints:
                server, self.server = self.server, None
        if server is not None:
            server.close()

    def snapshots(self) -> list[EndpointSnapshot]:
        """Return a snapshot of each endpoint; one that closes meanwhile is left out."""
        with self._lock:
            sources = list(self._endpoints.values())
        found = []
        for source in sources:
            try:
                found.append(source())
            except Exception:
                log.debug("mrc: metrics: an endpoint is closing", exc_info=True)
        return found

    def scrape(self, plain: bool = False) -> bytes:
        """Return the text for a scraper, `plain` in Prometheus' older format."""
        return openmetrics(self.snapshots(), plain=plain)

    def abandon(self) -> None:
        """Forget everything in a forked child: threads and endpoints are the parent's."""
        server, self.server = self.server, None
        self._endpoints, self._lock = {}, threading.Lock()
        if server is not None:
            server.abandon()


PUBLISHER = Publisher()
os.register_at_fork(after_in_child=PUBLISHER.abandon)


_COMMAND_LENGTH = 64  # characters of the program's name: a label, not an audit


class NicTelemetry:
    def __init__(self, rows: QueuePairRows, runtime: EndpointRuntime) -> None:
        self._rows = rows
        self._runtime = runtime
        self._opened_at = time.monotonic()
        self._totals = CounterTotals()
        self._lock = threading.Lock()  # of the totals
        self._downs = [0] * len(runtime.sockets.addresses)
        self._ports_up = int(runtime.engine.endpoints[0].ports_up)
        self._errors = 0
        self.device = f"mrc_{str(runtime.sockets.addresses[0]).replace(':', '_')}"
        self.log = EventLog(self.device)

    def publish(self) -> None:
        """Publish the NIC; ConfigError: `MRC_METRICS` names an address that cannot be used."""
        PUBLISHER.add(id(self), self.snapshot)

    def close(self) -> None:
        PUBLISHER.remove(id(self))

    def on_event(self, record: Event) -> None:
        """Log an event of the engine; called by the endpoint's Python thread, for each."""
        qpn = self._rows.qpn(record.qp) if record.qp != NONE else 0
        match record.kind:
            case EventKind.EV_STATE:
                state, cause = EvState(record.state).name, EvEvent(record.cause).name
                self.log.add("ev_state", qpn=qpn, port=record.port + 1, ev=record.entropy, state=state, cause=cause)
            case EventKind.QP_ERROR:
                self._errors += 1
                self.log.add("qp_error", qpn=qpn, state="ERROR", cause=Cause(record.state).name)
            case EventKind.SILENT_PORT:
                state = "SILENT" if record.state else "HEARD"
                self.log.add("silent_port", qpn=qpn, port=record.port + 1, state=state)
            case EventKind.LOCAL_PORTS:
                self._on_local_ports(record.state)
            case _:
                self.log.add("peer_ports", state=f"{record.state:#b}")

    def _on_local_ports(self, mask: int) -> None:
        for plane in range(len(self._downs)):
            if (mask ^ self._ports_up) >> plane & 1:
                is_up = bool(mask >> plane & 1)
                self._downs[plane] += not is_up
                faults = int(self._runtime.datapath.planes[plane].faults)
                cause = ", ".join(fault.name for fault in Fault if faults & fault)
                self.log.add("port", port=plane + 1, state="UP" if is_up else "DOWN", cause=cause)
        self._ports_up = mask

    def before_end(self, row: int) -> None:
        """Keep the counters of a queue pair that goes to RESET or is destroyed."""
        with self._lock:
            self._totals.take(row, self._runtime.engine.qps[row])
            self._totals.forget(row)

    def snapshot(self, with_evs: bool = False) -> EndpointSnapshot:
        """Return counters and states now. Reads while the endpoint runs: counters of one moment may differ by a few."""
        rows = [row for row in self._rows.used() if self._rows.state(row) != QpState.RESET]
        self._take(rows)
        found = table_readings.snapshot(self._rows.peers, self._runtime, rows, self._downs, with_evs)
        return msgspec.structs.replace(
            found,
            device=self.device,
            pid=os.getpid(),
            uptime=time.monotonic() - self._opened_at,
            release=__version__,
            command=Path(sys.argv[0]).name[:_COMMAND_LENGTH],
            totals=self._totals.totals(),
            queue_pair_errors=self._errors,
            telemetry_events=self.log.count,
        )

    def _take(self, rows: list[int]) -> None:
        with self._lock:
            for row in rows:
                fired = self._totals.take(row, self._runtime.engine.qps[row])
                if fired:
                    self.log.add("timer", qpn=self._rows.qpn(row), cause="RTO", text=f"fired {fired} times")
