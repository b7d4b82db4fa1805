"""A small HTTP server for scrapers: one path, read only, bounded in connections and in time.

It serves `/metrics` to whoever can connect, so it listens on loopback unless told otherwise. Metrics hold addresses,
the command line's program and traffic; no data and no keys.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from openmrc.errors import ConfigError
from openmrc.telemetry.exposition import CONTENT_TYPE, OPENMETRICS, PLAIN_CONTENT_TYPE

Scrape = Callable[[bool], bytes]
log = logging.getLogger(__name__)
MOST_SCRAPES = 8  # at a time; more are closed at once
CONNECTION_SECONDS = 10.0  # of a connection in all, Prometheus' own limit: a byte now and then would hold a place
REQUEST_SECONDS = 3.0  # s to send a request, and to read a part of the answer
PORTS_TRIED = 64  # processes of a host share the variable: each takes the next free port
_LONGEST_NAME = 253


def parse_address(text: str, variable: str = "MRC_METRICS") -> tuple[str, int]:
    """Return host and port of `ADDRESS:PORT`, `:PORT` or `PORT` (on loopback), `[IPv6]:PORT`; ConfigError names it."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not port.isascii() or not port.isdigit() or not 0 <= int(port) <= 65535 or len(host) > _LONGEST_NAME:
        raise ConfigError(f"{variable}: {text!r} is not ADDRESS:PORT, such as 127.0.0.1:9400")
    return host, int(port)


class MetricsServer:
    """Serves the bytes that `scrape` returns, told whether to write Prometheus' older text format."""

    def __init__(self, address: tuple[str, int], scrape: Scrape, tries: int = 1) -> None:
        """Listen on the first free of `tries` ports from the given one; ConfigError if there is none."""
        self._http = _listening(address, scrape, tries)
        self.address: tuple[str, int] = self._http.server_address[0], self._http.server_address[1]  # type: ignore[assignment]
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.2}, name="openmrc metrics", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        host, port = self.address
        return f"http://[{host}]:{port}/metrics" if ":" in host else f"http://{host}:{port}/metrics"

    def wait(self) -> None:
        """Wait until the server is closed."""
        while self._thread.is_alive():
            self._thread.join(0.5)

    def abandon(self) -> None:
        """Let go of the socket in a forked child, which has no thread of it."""
        self._http.socket.close()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(REQUEST_SECONDS)


def _listening(address: tuple[str, int], scrape: Scrape, tries: int) -> ThreadingHTTPServer:
    host, first = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    error: OSError | None = None
    for port in range(first, min(first + (tries if first else 1), 65536)):
        try:
            return _ScrapeServer(family, (host, port), scrape)
        except OSError as found:
            error = found
    raise ConfigError(f"metrics: {host}:{first}: {error.strerror if error is not None else 'no port'}")


class _ScrapeHandler(BaseHTTPRequestHandler):
    server: _ScrapeServer
    timeout = REQUEST_SECONDS
    server_version = "openmrc"
    sys_version = ""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404, "only /metrics")
            return
        try:
            plain = _wants_plain(self.headers.get("Accept", ""))
            body = self.server.scrape(plain)
        except Exception as error:
            log.exception("mrc: metrics: a scrape failed")
            self.send_error(500, type(error).__name__)
            return
        self.send_response(200)
        self.send_header("Content-Type", PLAIN_CONTENT_TYPE if plain else CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


def _wants_plain(accept: str) -> bool:
    """Whether a scraper takes the older text format only (RFC 9110 section 12.5.1; weights order what it takes)."""
    kinds = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return "text/plain" in kinds and OPENMETRICS not in kinds


class _ScrapeServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 16

    def __init__(self, family: int, address: tuple[str, int], scrape: Scrape) -> None:
        self.address_family = family
        self.scrape = scrape
        self._slots = threading.BoundedSemaphore(MOST_SCRAPES)
        super().__init__(address, _ScrapeHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        end = threading.Timer(CONNECTION_SECONDS, _cut, (request,))
        end.daemon = True
        try:
            end.start()
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("mrc: metrics: %s", client_address, exc_info=True)


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended
        connection.shutdown(socket.SHUT_RDWR)
