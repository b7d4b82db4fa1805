"""Agents and controllers over real TLS on loopback: certificates, versions, floods, rubbish, restarts, processes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from harness.agent_hosts import ModelEndpoints, twelve
from openmrc.ctl.messages import frame
from openmrc.errors import ConfigError, MrcError, PeerError
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.operations.diagnosis.path_index import PathIndex
from openmrc.operations.fleets.agents import link as agent_link
from openmrc.operations.fleets.agents import port as agent_port
from openmrc.operations.fleets.agents.certificates import (
    CONTROLLER,
    REVOKED,
    ControllerTls,
    agent_tls,
    check_identity,
)
from openmrc.operations.fleets.agents.host_agent import HostAgent
from openmrc.operations.fleets.agents.link import AgentLink, BackOff, run_agent
from openmrc.operations.fleets.agents.messages import (
    AgentGreeting,
    HostOrders,
    HostReport,
    fabric_digest,
    unframed,
)
from openmrc.operations.fleets.agents.port import MOST_STRANGERS, AgentPort
from openmrc.operations.fleets.agents.remote_fleet import RemoteFleet
from tests.waiting import await_true

authority = pytest.importorskip("openmrc.operations.fleets.agents.authority")
make_certificates, revoke = authority.make_certificates, authority.revoke
LOOPBACK = ("127.0.0.1", 0)


@pytest.fixture(scope="module")
def plan() -> UsidPlan:
    return twelve()


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    make_certificates(folder, "twelve", [CONTROLLER, "h0", "h1", "h2", "h99"], 30)
    return folder


@pytest.fixture
def fleet(plan: UsidPlan) -> RemoteFleet:
    return RemoteFleet(plan)


@pytest.fixture
def port(fleet: RemoteFleet, plan: UsidPlan, certs: Path) -> Iterator[AgentPort]:
    made = AgentPort(fleet, fabric_digest(plan.topology), ControllerTls(certs), LOOPBACK)
    yield made
    made.close()


def agent_of(plan: UsidPlan, nic: int = 0) -> HostAgent:
    return HostAgent(ModelEndpoints(plan, nic, PathIndex(plan)))


def linked(port: AgentPort, plan: UsidPlan, certs: Path, host: str = "h0") -> AgentLink:
    return AgentLink(port.address, agent_tls(certs, host), fabric_digest(plan.topology))


def test_a_host_reports_and_is_told(port: AgentPort, fleet: RemoteFleet, plan: UsidPlan, certs: Path) -> None:
    agent = agent_of(plan)
    link = linked(port, plan, certs)
    link.exchange(agent)
    fleet.tell(1 << 20, frozenset([plan.topology.planes[0].fabric_up]), 30.0, time.monotonic())
    link.exchange(agent)
    link.exchange(agent)
    host = agent.fleet
    assert isinstance(host, ModelEndpoints)
    assert host.denied(time.monotonic())
    assert "h0" not in fleet.waiting_for(time.monotonic())
    assert fleet.look().by_plane
    link.close()


def test_an_agent_with_another_host_s_certificate_is_told_before_it_connects(certs: Path, tmp_path: Path) -> None:
    check_identity(certs, "h1")
    for ending in ("pem", "key"):
        (tmp_path / f"h4.{ending}").write_bytes((certs / f"h1.{ending}").read_bytes())
        (tmp_path / f"h4.{ending}").chmod(0o600)
    (tmp_path / "ca.pem").write_bytes((certs / "ca.pem").read_bytes())
    with pytest.raises(ConfigError, match=r"h4\.pem: the certificate of 'h1', so nobody takes this agent for 'h4'"):
        check_identity(tmp_path, "h4")


def test_an_agent_is_told_why_its_certificate_would_be_refused(certs: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"controller\.pem: unsuitable certificate purpose"):
        check_identity(certs, CONTROLLER)
    make_certificates(tmp_path, "twelve", ["h0"], 30)
    (tmp_path / "ca.pem").write_bytes((certs / "ca.pem").read_bytes())
    with pytest.raises(ConfigError, match=r"h0\.pem: .*; `mrc map certs` makes another"):
        check_identity(tmp_path, "h0")


def test_a_controller_says_once_whom_it_does_not_hear(
    port: AgentPort, plan: UsidPlan, certs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        with pytest.raises(PeerError):
            linked(port, plan, certs, "h99")
    await_true(lambda: bool(caplog.messages))
    assert caplog.messages == ["mrc: an agent at 127.0.0.1 is not heard: 'h99' is no host of this fabric"]


def test_certificates_of_nobody_of_another_authority_and_of_hosts_that_are_not_there_are_refused(
    port: AgentPort, fleet: RemoteFleet, plan: UsidPlan, certs: Path, tmp_path: Path
) -> None:
    make_certificates(tmp_path, "twelve", ["h0"], 30)
    (tmp_path / "ca.pem").write_bytes((certs / "ca.pem").read_bytes())
    with pytest.raises((OSError, EOFError, PeerError)):  # signed by somebody else
        linked(port, plan, tmp_path)
    with pytest.raises(PeerError, match="h99"):
        linked(port, plan, certs, "h99")
    with pytest.raises((OSError, EOFError, PeerError)):  # a controller's certificate makes no agent
        linked(port, plan, certs, CONTROLLER)
    none = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    none.load_verify_locations(certs / "ca.pem")
    with pytest.raises((OSError, EOFError, PeerError)):
        AgentLink(port.address, none, fabric_digest(plan.topology))
    with pytest.raises(PeerError, match="description of the fabric"):
        AgentLink(port.address, agent_tls(certs, "h0"), "0" * 32)
    assert fleet.hosts == {}


def test_a_hosts_certificate_makes_no_controller(
    plan: UsidPlan, certs: Path, fleet: RemoteFleet, tmp_path: Path
) -> None:
    for name, mine in (("h1.pem", "controller.pem"), ("h1.key", "controller.key"), ("ca.pem", "ca.pem")):
        shutil.copy(certs / name, tmp_path / mine)
    impostor = AgentPort(fleet, fabric_digest(plan.topology), ControllerTls(tmp_path), LOOPBACK)
    try:
        with pytest.raises(ssl.SSLCertVerificationError):
            linked(impostor, plan, certs)
    finally:
        impostor.close()


def test_a_revoked_host_is_no_longer_heard_and_renewed_certificates_are(
    plan: UsidPlan, fleet: RemoteFleet, tmp_path: Path
) -> None:
    """Without a restart: OpenSSL is who reads the list, also by its command."""
    make_certificates(tmp_path, "twelve", [CONTROLLER, "h0", "h1"], 30)
    port = AgentPort(fleet, fabric_digest(plan.topology), ControllerTls(tmp_path), LOOPBACK)
    try:
        revoked, other = linked(port, plan, tmp_path, "h0"), linked(port, plan, tmp_path, "h1")
        assert revoke(tmp_path, ["h0"]) == 1
        ended = (OSError, EOFError, PeerError)
        await_true(lambda: has_ended(revoked, plan, 0) and has_ended(other, plan, 1))
        with pytest.raises(ended):
            linked(port, plan, tmp_path, "h0").exchange(agent_of(plan, 0))
        linked(port, plan, tmp_path, "h1").exchange(agent_of(plan, 1))
        make_certificates(tmp_path, "twelve", ["h0", CONTROLLER], 30)
        await_true(lambda: not has_ended(linked(port, plan, tmp_path, "h0"), plan, 0))
    finally:
        port.close()
    told = ["openssl", "crl", "-in", str(tmp_path / REVOKED), "-CAfile", str(tmp_path / "ca.pem"), "-noout"]
    assert "verify OK" in subprocess.run(told, capture_output=True, text=True, check=True).stderr


def has_ended(link: AgentLink, plan: UsidPlan, nic: int) -> bool:
    try:
        link.exchange(agent_of(plan, nic))
    except (OSError, EOFError, PeerError):
        return True
    return False


def test_files_that_cannot_be_used_change_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_certificates(tmp_path, "twelve", [CONTROLLER], 30)
    tls = ControllerTls(tmp_path)
    before = tls.context()
    (tmp_path / REVOKED).write_text("nothing")
    await_true(lambda: tls.context() is before and bool(caplog.messages))
    assert "new certificates are not used" in caplog.messages[0]


def test_older_tls_is_refused(port: AgentPort, plan: UsidPlan, certs: Path) -> None:
    old = agent_tls(certs, "h0")
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        AgentLink(port.address, old, fabric_digest(plan.topology))


def test_a_key_that_others_can_read_and_files_that_are_missing_are_named(certs: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"h7\.pem"):
        agent_tls(certs, "h7")
    make_certificates(tmp_path, "twelve", ["h0"], 30)
    (tmp_path / "h0.key").chmod(0o644)
    with pytest.raises(ConfigError, match="0644"):
        agent_tls(tmp_path, "h0")


@pytest.mark.parametrize(("theirs", "fits"), [((0, 1), True), ((1, 2), True), ((2, 3), False)])
def test_a_side_may_be_a_release_older(
    port: AgentPort, plan: UsidPlan, certs: Path, monkeypatch: pytest.MonkeyPatch, theirs: tuple[int, int], fits: bool
) -> None:
    monkeypatch.setattr(agent_link, "AGENTS_OLDEST", theirs[0])
    monkeypatch.setattr(agent_link, "AGENTS_NEWEST", theirs[1])
    if fits:
        linked(port, plan, certs).close()
    else:
        with pytest.raises(PeerError, match="versions 2 to 3, here 1 to 1"):
            linked(port, plan, certs)


def test_fields_of_a_newer_release_are_left_out_and_missing_ones_have_defaults() -> None:
    newer = {**msgspec.to_builtins(HostReport(number=4)), "temperature": 61.5}
    assert unframed(msgspec.msgpack.encode(newer), HostReport) == HostReport(number=4)
    assert unframed(msgspec.msgpack.encode({"heard": 1, "number": 2, "wait": 0.5}), HostOrders).links == []


def tls_socket(port: AgentPort, certs: Path, host: str = "h2") -> ssl.SSLSocket:
    raw = socket.create_connection(port.address, 5.0)
    return agent_tls(certs, host).wrap_socket(raw, server_hostname=CONTROLLER)


def closed_by_peer(sock: socket.socket) -> bool:
    sock.settimeout(10.0)
    try:
        while sock.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


@pytest.mark.parametrize("content", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"\x00\x00\x00\x02\xc1\xc1"])
def test_rubbish_ends_its_own_connection_only(
    port: AgentPort, fleet: RemoteFleet, plan: UsidPlan, certs: Path, content: bytes
) -> None:
    agent, link = agent_of(plan), linked(port, plan, certs)
    link.exchange(agent)
    with socket.create_connection(port.address, 5.0) as stranger:
        stranger.sendall(content)
        assert closed_by_peer(stranger)
    with tls_socket(port, certs) as known:
        known.sendall(content)
        assert closed_by_peer(known)
    with tls_socket(port, certs) as known:
        greeting = AgentGreeting(oldest=1, newest=1, fabric=fabric_digest(plan.topology))
        known.sendall(frame(greeting) + content)
        assert closed_by_peer(known)
    link.exchange(agent)
    link.close()


def test_a_report_about_others_ends_the_connection(port: AgentPort, plan: UsidPlan, certs: Path) -> None:
    link = linked(port, plan, certs, "h2")
    with pytest.raises((OSError, EOFError)):
        link.exchange(agent_of(plan, nic=0))  # with h0's paths
    link.close()


def test_a_flood_of_strangers_is_bounded_and_hosts_come_through(port: AgentPort, plan: UsidPlan, certs: Path) -> None:
    silent = [socket.create_connection(port.address, 5.0) for _ in range(2 * MOST_STRANGERS)]
    try:
        await_true(lambda: port.connections[1] >= MOST_STRANGERS)
        assert port.connections[1] <= MOST_STRANGERS
        link = linked(port, plan, certs)
        link.exchange(agent_of(plan))
        link.close()
    finally:
        for each in silent:
            each.close()


def test_silent_strangers_are_let_go(port: AgentPort, certs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_port, "GREETING_S", 0.2)
    with socket.create_connection(port.address, 5.0) as silent:
        assert closed_by_peer(silent)
    with tls_socket(port, certs) as known:
        assert closed_by_peer(known)
    await_true(lambda: port.connections == (0, 0))


def test_a_host_has_one_connection_the_newest(port: AgentPort, plan: UsidPlan, certs: Path) -> None:
    agent = agent_of(plan)
    first, second = linked(port, plan, certs), linked(port, plan, certs)
    second.exchange(agent)
    with pytest.raises((OSError, EOFError, MrcError)):
        first.exchange(agent_of(plan))
    second.exchange(agent)
    assert port.connections[0] == 1
    for each in (first, second):
        each.close()


def test_an_agent_returns_to_a_controller_that_was_restarted(
    port: AgentPort, plan: UsidPlan, certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_link, "FIRST_BACK_OFF_S", 0.05)
    stop, said = threading.Event(), list[str]()
    digest, address = fabric_digest(plan.topology), port.address
    thread = threading.Thread(target=run_agent, args=(
        agent_of(plan), None, [address], lambda where: AgentLink(where, agent_tls(certs, "h0"), digest),
        stop.is_set, said.append,
    ))  # fmt: skip
    thread.start()
    try:
        await_true(lambda: port.connections[0] == 1)
        port.close()
        second = RemoteFleet(plan)
        again = AgentPort(second, digest, ControllerTls(certs), address)
        await_true(lambda: 0 in second.hosts, 40.0)
        again.close()
    finally:
        stop.set()
        thread.join(20.0)
    assert len([text for text in said if "connected to" in text]) >= 2


def test_attempts_are_spread_and_their_limit_doubles() -> None:
    back_off = BackOff()
    assert all(0 <= back_off.next() <= limit for limit in (0.5, 1, 2, 4, 8, 16, 30, 30))
    hosts = [BackOff(8.0).next() for _ in range(200)]
    assert sum(wait < 4.0 for wait in hosts) in range(60, 140), "no herd"


MRC = [sys.executable, "-m", "openmrc.programs.main"]
FABRIC = """
name: twelve
hosts: {count: 12}
planes:
  - {count: 2, host_gbps: 100, t0: {down: 4, up: 4}, t1: {}}
"""


def test_real_processes_meet_survive_kills_and_a_second_controller_takes_over(certs: Path, tmp_path: Path) -> None:
    (tmp_path / "twelve.yaml").write_text(FABRIC)
    make_certificates(tmp_path / "certs", "twelve", [CONTROLLER, "h0"], 30)
    with socket.create_server(LOOPBACK) as free:
        where = f"127.0.0.1:{free.getsockname()[1]}"
    absent = [word for nic in range(1, 12) for word in ("--absent", f"h{nic}")]
    environment = {**os.environ, "MRC_CTL": str(tmp_path / "ctl"), "NUMBA_DISABLE_JIT": "1"}

    def started(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen([*MRC, "map", *words], cwd=tmp_path, env=environment, text=True, stderr=subprocess.PIPE)

    def watch(state: str) -> subprocess.Popen[str]:
        return started(
            "watch", "twelve.yaml", "--listen", where, "--ctl", str(tmp_path / state), "--apply", "--no-probes", *absent
        )

    agent = started("agent", "twelve.yaml", "h0", "--controller", where, "--certs", "certs", "--no-probes")
    try:
        for state in ("one", "one"):
            controller = watch(state)
            assert agent.stderr is not None
            line_with(agent, f"connected to {where}")
            controller.send_signal(signal.SIGKILL)
            controller.wait(10)
        agent.terminate()
        assert agent.wait(10) == 143
    finally:
        for each in (agent, controller):
            each.kill()
            each.communicate()


def line_with(process: subprocess.Popen[str], text: str) -> None:
    """Wait until a process says `text` on stderr, or on stdout where both are one."""
    end = time.monotonic() + 60
    said = process.stderr or process.stdout
    assert said is not None
    for line in said:
        if text in line:
            return
        assert time.monotonic() < end, f"no {text!r} in time"
    raise AssertionError(f"ended without {text!r}")
