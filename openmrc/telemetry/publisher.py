"""The metrics of this process: its open endpoints, and the server that `MRC_METRICS` asks for.

The server starts with the first endpoint and ends with the last. Processes of a host may have the same variable, as the
ranks of a job do: each takes the next free port, of 64. `mrc metrics` serves all of them from one port instead.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from openmrc.telemetry.exposition import openmetrics
from openmrc.telemetry.metrics_server import PORTS_TRIED, MetricsServer, parse_address
from openmrc.telemetry.snapshots import EndpointSnapshot

log = logging.getLogger(__name__)
VARIABLE = "MRC_METRICS"


class Publisher:
    """The endpoints of a process."""

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
        """Publish an endpoint no more."""
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
