"""Of two controllers one has the lease: etcd itself is asked."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.free_port import free_port
from openmrc.errors import ConfigError
from openmrc.operations.control import etcd_lease
from openmrc.operations.control.etcd_lease import EtcdLease
from openmrc.operations.fleets.state_folder import NotedChange, StateFolder
from tests.waiting import await_true

LEASE_S = 3


class Etcd:
    """An etcd of this test."""

    def __init__(self, folder: Path) -> None:
        self.url, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        etcd = shutil.which("etcd")
        assert etcd is not None
        line = [etcd, "--data-dir", str(folder / "etcd"), "--listen-client-urls", self.url, "--advertise-client-urls"]
        line += [self.url, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        line += ["--initial-cluster", f"default={peer}"]
        self.process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        await_true(self.is_healthy)

    def is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:
                return bool(json.load(answer)["health"] == "true")
        except OSError:
            return False


@pytest.fixture
def etcd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Etcd]:
    monkeypatch.setattr(etcd_lease, "LEASE_S", LEASE_S)
    monkeypatch.setattr(etcd_lease, "RENEW_S", 0.1)
    made = Etcd(tmp_path)
    yield made
    made.process.send_signal(signal.SIGCONT)
    made.process.kill()
    made.process.wait()


class Controller:
    """Holds the lease in a thread, as soon as it can."""

    def __init__(self, etcd: Etcd, name: str, folder: Path) -> None:
        self.state = StateFolder(folder / name)
        self.lease = EtcdLease(etcd.url, "lab", name, self.state)
        self.said, self.epoch, self.end, self.gives_up = list[str](), 0, threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            with self.lease.held(self._wait):
                self.epoch = self.state.take_epoch(0)
                self.end.wait()
        except ConfigError as error:
            self.said.append(str(error))

    def _wait(self, said: str) -> bool:
        self.said.append(said)
        return not self.gives_up.is_set()

    def stop(self) -> None:
        self.end.set()
        self.gives_up.set()
        self.thread.join(30)


@pytest.mark.needs("etcd")
def test_one_is_in_charge_and_the_next_goes_on_from_its_state_with_a_greater_epoch(etcd: Etcd, tmp_path: Path) -> None:
    first = Controller(etcd, "one", tmp_path)
    await_true(lambda: first.epoch > 0)
    second = Controller(etcd, "two", tmp_path)
    await_true(lambda: "one is in charge" in second.said)
    first.state.note(NotedChange(at=1.0, target="plane 1", links=(3,), what="replaced a cable"))
    assert not second.epoch
    first.stop()
    await_true(lambda: second.epoch > 0)
    assert second.epoch > first.epoch
    assert [each.what for each in second.state.changes()] == ["replaced a cable"]
    second.stop()


@pytest.mark.needs("etcd")
def test_without_etcd_the_lease_is_lost_in_time_and_another_has_it_once_it_is_back(etcd: Etcd, tmp_path: Path) -> None:
    first = Controller(etcd, "one", tmp_path)
    await_true(lambda: first.epoch > 0)
    assert not first.lease.is_lost
    etcd.process.send_signal(signal.SIGSTOP)
    await_true(lambda: first.lease.is_lost)
    etcd.process.send_signal(signal.SIGCONT)
    await_true(etcd.is_healthy)  # it may elect itself first; who asks meanwhile is told so, and ends
    second = Controller(etcd, "two", tmp_path)
    await_true(lambda: second.epoch > 0)
    assert first.lease.is_lost, "what is lost stays lost"
    first.stop()
    assert not second.lease.is_lost, "whose lease it was no longer takes the other's"
    second.stop()


def test_an_etcd_that_is_not_there_is_named(tmp_path: Path) -> None:
    lease = EtcdLease("http://127.0.0.1:9", "lab", "one", StateFolder(tmp_path / "one"))
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:9: .*refused"), lease.held(lambda said: False):
        pass
    with pytest.raises(ConfigError, match="no http"):
        EtcdLease("etcd:2379", "lab", "one", StateFolder(tmp_path / "one"))


@pytest.mark.parametrize(
    "answer", [b"220 ready for mail\r\n", b"HTTP/1.0 200 OK\r\n\r\n[]", b"HTTP/1.0 200 OK\r\n\r\n{}"]
)
def test_what_is_no_etcd_is_named(answer: bytes, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        lease = EtcdLease(url, "lab", "one", StateFolder(tmp_path / "one"))
        with pytest.raises(ConfigError, match=url), lease.held(lambda said: False):
            pass
