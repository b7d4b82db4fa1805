"""What programs through the native library publish: the same snapshots and metrics as endpoints in Python."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.free_port import free_port
from openmrc.telemetry.snapshot_ops import host_snapshots
from openmrc.telemetry.snapshots import EndpointSnapshot
from tests.native.building import program
from tests.native.test_c_programs import start

pytestmark = pytest.mark.needs("cc", "verbs.h", "jit")


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], subprocess.Popen[str]]]:
    """Two processes, the second of which writes to the first; their tables are in `tmp_path`."""
    tmp_path.chmod(0o700)
    made, port = program("examples/mrc_ev_listener.c"), str(free_port())
    server = start(made, "-p", port, MRC_CTL=str(tmp_path))
    client = start(made, "-p", port, "-t", "60", "127.0.0.1", MRC_CTL=str(tmp_path))
    try:
        yield server, client
    finally:
        for each in (client, server):
            each.kill()
            each.wait()


def until(folder: Path, is_so: Callable[[dict[int, EndpointSnapshot]], bool]) -> dict[int, EndpointSnapshot]:
    """The snapshots of a folder by process, once something is so."""
    for _ in range(200):
        found = {each.pid: each for each in host_snapshots(str(folder))}
        if is_so(found):
            return found
        time.sleep(0.05)
    raise AssertionError(found)


def test_both_ends_are_seen_with_ports_and_queue_pairs(
    tmp_path: Path, writing: tuple[subprocess.Popen[str], subprocess.Popen[str]]
) -> None:
    server, client = (each.pid for each in writing)
    found = until(tmp_path, lambda all_: client in all_ and all_[client].ports[3].transmitted_bytes > 1 << 20)
    sender, receiver = found[client], host_snapshots(str(tmp_path))
    assert {each.pid for each in receiver} == {server, client}
    assert [port.address for port in sender.ports] == ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"]
    assert all(port.up and port.evs == [8, 0, 0, 0] for port in sender.ports)
    (pair,) = sender.queue_pairs
    assert (pair.state, pair.peer) == ("RTS", ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"])
    assert pair.srtt_us > 0
    assert sender.command.startswith("mrc_ev_listener")
    assert sender.uptime > 0
    arrived = next(each for each in receiver if each.pid == server)
    assert sum(port.received_bytes for port in arrived.ports) > 1 << 20


def test_evs_are_read_if_they_are_asked_for(
    tmp_path: Path, writing: tuple[subprocess.Popen[str], subprocess.Popen[str]]
) -> None:
    until(tmp_path, lambda all_: any(each.working_queue_pairs for each in all_.values()))
    evs = host_snapshots(str(tmp_path), with_evs=True)[0].queue_pairs[0].evs
    assert len(evs) == 32
    assert {(ev.port, ev.path) for ev in evs} == {(port, f"127.0.0.{port}") for port in range(1, 5)}


def test_the_metrics_are_those_of_any_endpoint(
    tmp_path: Path, writing: tuple[subprocess.Popen[str], subprocess.Popen[str]]
) -> None:
    pytest.importorskip("prometheus_client")
    from openmrc.telemetry.exposition import openmetrics

    until(tmp_path, lambda all_: len(all_) == 2 and any(each.working_queue_pairs for each in all_.values()))
    text = openmetrics(host_snapshots(str(tmp_path))).decode()
    assert text.count("mrc_port_data_transmitted_bytes_total{") == 8
    assert f'pid="{writing[1].pid}"' in text


def test_leads_of_programs_that_were_killed_are_removed_by_who_reads(
    tmp_path: Path, writing: tuple[subprocess.Popen[str], subprocess.Popen[str]]
) -> None:
    until(tmp_path, lambda all_: len(all_) == 2)
    for each in writing:
        each.send_signal(signal.SIGKILL)
        each.wait()
    assert len(list(tmp_path.glob("*.tables"))) == 2
    assert host_snapshots(str(tmp_path)) == []
    assert not list(tmp_path.glob("*.tables"))


def test_a_program_that_ends_takes_its_lead_away(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    made, port = program("examples/mrc_prober.c"), str(free_port())
    both = [start(made, "-p", port, "-n", "1", *host, MRC_CTL=str(tmp_path)) for host in ((), ("127.0.0.1",))]
    assert [each.wait(timeout=30) for each in both] == [0, 0]
    assert not list(tmp_path.glob("*.tables"))


def test_nothing_is_published_unasked(tmp_path: Path) -> None:
    made, port = program("examples/mrc_prober.c"), str(free_port())
    server = start(made, "-p", port, MRC_CTL="", MRC_METRICS="", TMPDIR=str(tmp_path), XDG_RUNTIME_DIR=str(tmp_path))
    try:
        client = start(made, "-p", port, "-n", "1", "127.0.0.1", TMPDIR=str(tmp_path), XDG_RUNTIME_DIR=str(tmp_path))
        assert client.wait(timeout=30) == 0
        assert server.wait(timeout=30) == 0
    finally:
        server.kill()
    assert not list(tmp_path.rglob("*.tables"))


def test_a_lead_that_says_rubbish_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "1-0.tables").write_text("{}")
    (tmp_path / "2-0.tables").write_text(
        '{"layout": "old", "pid": 1, "descriptor": 0, "token": 0, "counts_at": 0, '
        '"opened_at": 0, "command": "", "planes": ["127.0.0.1"]}'
    )
    assert host_snapshots(str(tmp_path)) == []
    assert "2-0.tables: process 1 has tables of another release" in caplog.text
    assert "1-0.tables: Object missing required field" in caplog.text


def test_the_fields_that_outlive_a_queue_pair_are_counters_of_the_engine() -> None:
    from openmrc.native.description import tables
    from openmrc.telemetry.totals import FIELDS

    assert set(FIELDS) <= set(tables(1)["engine_qps"].dtype.names)
