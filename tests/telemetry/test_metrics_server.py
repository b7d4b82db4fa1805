"""The port that scrapers read: loopback unless told otherwise, one path, bounded in connections and time."""

from __future__ import annotations

import contextlib
import socket
import time
import urllib.error
import urllib.request

import pytest

pytest.importorskip("prometheus_client")

from openmrc.errors import ConfigError
from openmrc.live.ctl.observed import Publisher
from openmrc.telemetry import metrics_server
from openmrc.telemetry.metrics_server import MetricsServer, parse_address
from tests.telemetry.snapshots_of_tests import endpoint


def get(url: str) -> tuple[int, bytes, str]:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.status, answer.read(), answer.headers["Content-Type"]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9400", ("127.0.0.1", 9400)),
        (":9400", ("127.0.0.1", 9400)),
        ("0.0.0.0:1", ("0.0.0.0", 1)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_an_address_is_loopback_unless_it_says_otherwise(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "host", "1.2.3.4:", ":70000", "1.2.3.4:-1", ":x", ":\u0663"])
def test_a_wrong_address_is_refused_by_the_name_of_its_variable(text: str) -> None:
    with pytest.raises(ConfigError, match="MRC_METRICS"):
        parse_address(text)


@pytest.mark.parametrize(("accept", "kind"), [
    ("text/plain", "text/plain; version=0.0.4"),
    ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", "text/plain; version=0.0.4"),
    ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", "application/openmetrics"),
    ("*/*", "application/openmetrics"),
])  # fmt: skip
def test_a_scraper_that_takes_only_the_older_format_gets_it(accept: str, kind: str) -> None:
    server = MetricsServer(("127.0.0.1", 0), lambda plain: b"plain" if plain else b"text")
    try:
        request = urllib.request.Request(server.url, headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=5) as answer:
            assert answer.headers["Content-Type"].startswith(kind)
            assert answer.read() == (b"plain" if kind.startswith("text") else b"text")
    finally:
        server.close()


def test_it_serves_one_path_and_says_openmetrics() -> None:
    server = MetricsServer(("127.0.0.1", 0), lambda plain: b"plain" if plain else b"text")
    try:
        status, body, kind = get(server.url)
        assert (status, body) == (200, b"text")
        assert kind.startswith("application/openmetrics-text; version=1.0.0")
        with pytest.raises(urllib.error.HTTPError) as error:
            get(server.url.replace("/metrics", "/etc/passwd"))
        assert error.value.code == 404
        request = urllib.request.Request(server.url, data=b"x", method="POST")
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(request, timeout=5)
        assert error.value.code == 501
    finally:
        server.close()


def test_silent_connections_keep_scrapers_waiting_for_a_bounded_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "REQUEST_SECONDS", 0.2)
    server = MetricsServer(("127.0.0.1", 0), lambda plain: b"plain" if plain else b"text")
    idle = [socket.create_connection(server.address) for _ in range(3 * metrics_server.MOST_SCRAPES)]
    try:
        deadline, status = time.monotonic() + 10, 0
        while status != 200 and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                status = get(server.url)[0]
            time.sleep(0.02)
        assert status == 200
    finally:
        for each in idle:
            each.close()
        server.close()


def test_a_request_of_a_byte_now_and_then_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "CONNECTION_SECONDS", 0.4)
    server = MetricsServer(("127.0.0.1", 0), lambda plain: b"plain" if plain else b"text")
    begun = time.monotonic()
    try:
        with socket.create_connection(server.address) as slow, contextlib.suppress(OSError):
            while time.monotonic() < begun + 20:
                slow.sendall(b"G")
                time.sleep(0.02)
        assert time.monotonic() < begun + 20
        assert get(server.url)[0] == 200
    finally:
        server.close()


def test_processes_that_share_the_variable_take_the_next_free_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("MRC_METRICS", str(port))
    first, second = Publisher(), Publisher()
    first.add(1, endpoint)
    second.add(1, endpoint)
    assert first.server is not None
    assert second.server is not None
    try:
        assert second.server.address[1] > first.server.address[1] >= port
        assert b'mrc_queue_pairs{device="mrc_10.0.0.1",pid="7"} 1.0' in get(second.server.url)[1]
    finally:
        first.remove(1)
        second.remove(1)
    assert first.server is None


def test_without_the_variable_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MRC_METRICS", raising=False)
    publisher = Publisher()
    publisher.add(1, endpoint)
    assert publisher.server is None
    assert [each.pid for each in publisher.snapshots()] == [7]


def test_a_defect_of_one_endpoint_hides_no_other_one() -> None:
    publisher = Publisher()
    publisher.add(1, lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    publisher.add(2, endpoint)
    assert len(publisher.snapshots()) == 1
