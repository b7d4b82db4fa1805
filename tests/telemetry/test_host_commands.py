"""`mrc metrics` and `mrc top` read every endpoint of a host; a real Prometheus scrapes them."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("prometheus_client")

from openmrc.telemetry.exposition import openmetrics
from openmrc.telemetry.metric_table import configuration
from openmrc.telemetry.metrics_server import MetricsServer
from openmrc.telemetry.snapshot_ops import host_snapshots
from tests.ctl.endpoints import connected
from tests.ctl.test_endpoint_control import send
from tests.needs import require
from tests.programs.in_process import run_here


def test_metrics_and_top_see_both_endpoints_of_a_host(tmp_path: Path) -> None:
    folder = str(tmp_path)
    with connected(tmp_path) as (pair, _):
        send(pair)
        code, out, err = run_here("metrics", "--folder", folder)
        assert (code, err) == (0, "")
        assert out.count("mrc_queue_pairs{") == 2
        assert out.endswith("# EOF\n")
        code, out, _ = run_here("top", "--json", "--interval", "0.1", "--folder", folder)
        assert code == 0
        found = json.loads(out)
        assert len(found["ports"]) == 4
        assert {pair["state"] for pair in found["queue_pairs"]} == {"RTS"}
        code, out, _ = run_here("top", "--once", "--interval", "0.1", "--folder", folder)
        assert code == 0
        assert "Planes" in out
        pair.contexts[0].set_plane(1, False)
        pair.contexts[0].get_async_event(5.0)
        code, out, _ = run_here("top", "--events", "--once", "--folder", folder)
        assert code == 0
        assert [each["state"] for each in map(json.loads, out.splitlines()) if each["kind"] == "port"] == ["DOWN"]
    assert host_snapshots(folder) == []


@pytest.mark.needs("prometheus")
def test_a_real_prometheus_scrapes_a_host_without_warnings_and_loads_the_rules(tmp_path: Path) -> None:
    require("prometheus")
    with connected(tmp_path / "ctl") as (pair, _):
        send(pair)
        server = MetricsServer(("127.0.0.1", 0), lambda plain: openmetrics(host_snapshots(str(tmp_path / "ctl"))))
        try:
            with _prometheus(tmp_path, server.address[1]) as ask:
                sent = _until(lambda: ask("sum(mrc_port_data_transmitted_bytes_total)"))
                assert float(sent[0]["value"][1]) >= 40 * 4096
                assert len(ask("mrc_port_evs")) == 2 * 2 * 4
                assert float(ask("up")[0]["value"][1]) == 1.0
                said = (tmp_path / "prometheus.log").read_text()
        finally:
            server.close()
    assert "Server is ready" in said
    assert "level=warn" not in said
    assert "level=error" not in said


class _prometheus:  # noqa: N801
    """A Prometheus with the shipped configuration and rules, on a port of its own."""

    def __init__(self, folder: Path, port: int) -> None:
        config = yaml.safe_load(configuration("prometheus"))
        config["global"]["scrape_interval"] = "1s"
        config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{port}"]
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        (folder / "mrc.rules.yaml").write_text(configuration("rules"))
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]

    def __enter__(self) -> Any:
        log = (self._folder / "prometheus.log").open("w")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={self._folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={self._folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            stdout=log,
            stderr=log,
        )
        return self._ask

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)

    def _ask(self, query: str) -> Any:
        url = f"http://127.0.0.1:{self._port}/api/v1/query?query={query}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)["data"]["result"]


def _until(ask: Any) -> Any:
    for _ in range(60):
        try:
            if found := ask():
                return found
        except OSError:
            pass
        time.sleep(0.5)
    raise AssertionError("Prometheus has scraped nothing within 30 s")
