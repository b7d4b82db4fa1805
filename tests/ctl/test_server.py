"""The controller socket against strangers: rubbish, floods, silence, other versions, other users."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openmrc.ctl import endpoint_ops, messages, server
from openmrc.ctl.channel import Channel
from openmrc.ctl.client import CtlClient
from openmrc.ctl.device import CtlDevice, DeviceReport, PortReport
from openmrc.ctl.errors import NotSupportedError
from openmrc.ctl.messages import CtlAnswer, CtlCall, CtlFailure, CtlGreeting
from openmrc.errors import CallError, InvalidArgumentError, PeerError


class Device:
    """An endpoint that notes what is asked of it."""

    def __init__(self) -> None:
        self.enabled = True
        self.release = threading.Event()

    def device(self) -> DeviceReport:
        return DeviceReport(endpoint="test")

    def ports(self) -> list[PortReport]:
        return [PortReport(port=1, address="a", enabled=self.enabled, up=True)]

    def set_port(self, port: int, enabled: bool) -> None:
        if port == 99:
            raise ZeroDivisionError
        if port != 1:
            raise InvalidArgumentError(f"port: {port} is not in 1..1")
        self.enabled = enabled


@pytest.fixture
def served(tmp_path: Path) -> Iterator[server.CtlServer]:
    device: Any = Device()
    found = server.CtlServer(device, tmp_path / "ctl")
    yield found
    found.close()


def connected(served: server.CtlServer) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(10)
    sock.connect(str(served.path))
    return sock


def works(served: server.CtlServer) -> bool:
    with CtlClient(served.path) as client:
        return client.call(endpoint_ops.device).endpoint == "test"


def test_calls_are_answered_and_refusals_have_their_errno(served: server.CtlServer) -> None:
    with CtlClient(served.path) as client:
        assert not client.call(endpoint_ops.set_port, port=1, enabled=False).ports[0].enabled
        with pytest.raises(InvalidArgumentError, match="port: 2"):
            client.call(endpoint_ops.set_port, port=2, enabled=False)
        assert client.call(endpoint_ops.ports).ports[0].port == 1  # the connection goes on


def levitate(device: CtlDevice) -> DeviceReport:
    return device.device()


def test_an_unknown_operation_is_refused_by_name(served: server.CtlServer) -> None:
    with CtlClient(served.path) as client, pytest.raises(NotSupportedError, match="'levitate'"):
        client.call(levitate)


def test_a_request_of_the_wrong_shape_names_the_field(served: server.CtlServer) -> None:
    with CtlClient(served.path) as client, pytest.raises(InvalidArgumentError, match=r"set_port: .*port"):
        client.call(endpoint_ops.set_port)  # type: ignore[call-arg]


def test_a_defect_in_an_operation_ends_neither_connection_nor_endpoint(served: server.CtlServer) -> None:
    with CtlClient(served.path) as client:
        with pytest.raises(CallError, match="ZeroDivisionError"):
            client.call(endpoint_ops.set_port, port=99, enabled=False)
        assert client.call(endpoint_ops.ports)


@pytest.mark.parametrize(
    "rubbish",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\0" * 4096,
        b"\xff" * 4096,
        messages.LENGTH.pack(5) + b"\xc1\xc1\xc1\xc1\xc1",  # never valid MessagePack
        messages.LENGTH.pack(900) + b"\x91" * 900,  # deeply nested
        messages.frame(CtlCall(number=1, operation="device")),  # no greeting
        messages.frame(CtlGreeting(oldest=1, newest=1)) * 2,
    ],
)
def test_rubbish_ends_its_own_connection_only(served: server.CtlServer, rubbish: bytes) -> None:
    with connected(served) as sock:
        sock.sendall(rubbish)
        deadline = time.monotonic() + 8
        try:
            while sock.recv(4096):
                assert time.monotonic() < deadline
        except ConnectionResetError:  # what it sent was not read to the end
            pass
    assert works(served)


def test_a_length_beyond_the_limit_is_refused_before_it_is_read(served: server.CtlServer) -> None:
    with connected(served) as sock:
        channel = Channel(sock)
        channel.send(CtlGreeting(oldest=1, newest=1), 5)
        assert isinstance(channel.receive(1024, 5, 5), CtlGreeting)
        sock.sendall(messages.LENGTH.pack(messages.MOST_CALL + 1))
        failure = channel.receive(1024, 5, 5)
        assert isinstance(failure, CtlFailure)
        assert str(messages.MOST_CALL) in failure.reason


def test_an_unfinished_message_is_given_up(served: server.CtlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MESSAGE_SECONDS", 0.1)
    with connected(served) as sock:
        sock.sendall(b"\0")
        assert sock.recv(4096) == b""


def test_a_caller_that_takes_no_answers_is_given_up(served: server.CtlServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.2)
    with connected(served) as sock:
        channel = Channel(sock)
        channel.send(CtlGreeting(oldest=1, newest=1), 5)
        call = messages.frame(CtlCall(number=1, operation="x" * 4000)) * 20
        with pytest.raises(OSError):
            sock.sendall(call * 5_000)
    assert works(served)


def test_a_flood_of_connections_keeps_nobody_out_for_long(served: server.CtlServer) -> None:
    flood = [connected(served) for _ in range(4 * server.MOST_CONNECTIONS)]
    assert works(served)
    threads = [each for each in threading.enumerate() if each.name == "openmrc ctl call"]
    assert len(threads) <= 2 * server.MOST_CONNECTIONS
    for sock in flood:
        sock.close()


def test_closing_ends_waiting_connections_and_removes_the_file(tmp_path: Path) -> None:
    device: Any = Device()
    found = server.CtlServer(device, tmp_path / "ctl")
    with CtlClient(found.path) as client:
        began = time.monotonic()
        found.close()
        assert time.monotonic() - began < 2
        assert not found.path.exists()
        with pytest.raises(PeerError):
            client.call(endpoint_ops.device)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_process_of_another_user_is_refused_even_if_it_reaches_the_file() -> None:
    device: Any = Device()
    with tempfile.TemporaryDirectory() as root:
        served = server.CtlServer(device, Path(root) / "ctl")
        for path in (Path(root), served.path.parent, served.path):
            path.chmod(0o777)
        code = (
            "import os\nfrom pathlib import Path\nfrom openmrc.ctl.client import CtlClient\n"
            f"os.setuid(65534)\nCtlClient(Path({str(served.path)!r}))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        served.close()
    assert f"is of user 65534; this endpoint is of user {os.geteuid()}" in done.stderr


@pytest.mark.parametrize("theirs", [(0, 1), (1, 2)])
def test_a_peer_one_release_older_or_newer_is_served(served: server.CtlServer, theirs: tuple[int, int]) -> None:
    with connected(served) as sock:
        channel = Channel(sock)
        channel.send(CtlGreeting(oldest=theirs[0], newest=theirs[1]), 5)
        greeting = channel.receive(1024, 5, 5)
        assert isinstance(greeting, CtlGreeting)
        assert messages.common_version(greeting, *theirs) == 1
        channel.send(CtlCall(number=1, operation="device"), 5)
        assert isinstance(channel.receive(1 << 16, 5, 5), CtlAnswer)


def test_a_peer_without_a_common_version_is_told_both_ranges(served: server.CtlServer) -> None:
    with connected(served) as sock:
        channel = Channel(sock)
        channel.send(CtlGreeting(oldest=2, newest=3, release="9.0"), 5)
        failure = channel.receive(1024, 5, 5)
        assert isinstance(failure, CtlFailure)
        assert "openmrc 9.0" in failure.reason
        assert "2 to 3, here 1 to 1" in failure.reason


def test_fields_that_a_side_does_not_know_are_left_out() -> None:
    newer = {"type": "greeting", "oldest": 1, "newest": 1, "colour": "red"}
    import msgspec

    assert messages.message(msgspec.msgpack.encode(newer)) == CtlGreeting(oldest=1, newest=1)


def test_a_forked_child_lets_go_of_the_socket(served: server.CtlServer) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0 if served._is_closed and served._sock.fileno() == -1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert works(served)
