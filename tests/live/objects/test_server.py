"""The server against strangers: nothing that one of them does keeps a peer out, or holds more than its share."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import strangers
from openmrc.errors import ConfigError
from openmrc.live.errors import ClosedError, DeadlineError, ExchangeError
from openmrc.live.objects import server as module
from openmrc.live.objects.exchange import ControlChannel, dial
from openmrc.live.objects.handshake import GREETING_SECONDS, LARGEST_OFFER, Handshake, Role
from openmrc.live.objects.server import MOST, RendezvousServer

TOKEN = "a token of both sides"


@pytest.fixture
def server() -> Iterator[RendezvousServer]:
    made = RendezvousServer(["127.0.0.1"], 0)
    made.start(b"")
    yield made
    made.close()


def a_peer_is_served(server: RendezvousServer, seconds: float = 20.0) -> float:
    """Let a peer connect and return the seconds it took."""
    began = time.monotonic()
    channel = strangers.greet(server.port, strangers.offer(qpn=77))
    try:
        while True:
            arrival = server.accept(began + seconds)
            arrival.channel.close()
            if b'"qpn": 77' in arrival.offer:
                return time.monotonic() - began
    finally:
        channel.close()


@pytest.mark.parametrize("stranger", [strangers.reset, strangers.vanish])
def test_a_connection_that_ends_at_once_ends_nothing_else(server: RendezvousServer, stranger: object) -> None:
    for _ in range(50):
        stranger(server.port)  # type: ignore[operator]
    a_peer_is_served(server)


@pytest.mark.parametrize("said", [b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01" * 100, bytes(100), b"\xff" * 5000])
def test_other_protocols_are_cut_off_without_an_answer_beyond_the_greeting(
    server: RendezvousServer, said: bytes
) -> None:
    assert len(strangers.say(server.port, said)) < 200
    a_peer_is_served(server)


def test_silent_connections_keep_nobody_waiting(server: RendezvousServer) -> None:
    with strangers.silent(server.port, 3 * MOST):
        assert a_peer_is_served(server) < GREETING_SECONDS


def test_silent_connections_are_closed_after_a_while(server: RendezvousServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GREETING_SECONDS", 0.2)
    with strangers.silent(server.port, 3) as held:
        for sock in held:
            sock.settimeout(20)
            while sock.recv(1 << 12):
                continue


def test_a_peer_that_greeted_while_the_listener_did_not_run_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GREETING_SECONDS", 0.0)
    server = RendezvousServer(["127.0.0.1"], 0)  # takes its turns here, not in a thread
    held: list[ControlChannel] = []
    caller = threading.Thread(target=lambda: held.append(strangers.greet(server.port, strangers.offer())))
    caller.start()
    server._selector.select(20)
    server._admit(server._sockets[0])
    caller.join(20)
    server._turn([])  # what was ready before it was held up
    server.accept(time.monotonic() + 20).channel.close()
    server.close()
    for channel in held:
        channel.close()


def test_a_flood_holds_no_more_than_its_bound(server: RendezvousServer) -> None:
    begun = Handshake(Role.DIALLER, b"").outgoing() + LARGEST_OFFER.to_bytes(4, "big") + bytes(LARGEST_OFFER - 1)
    held = []
    for _ in range(4 * MOST):
        sock = socket.create_connection(("127.0.0.1", server.port))
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.send(begun)
        held.append(sock)
    a_peer_is_served(server)
    guests = list(server._guests.values())
    assert len(guests) <= MOST
    assert sum(len(guest.handshake._frames._bytes) for guest in guests) <= MOST * 2 * LARGEST_OFFER
    for sock in held:
        sock.close()


def test_peers_that_greet_and_are_never_accepted_are_bounded_too(server: RendezvousServer) -> None:
    held = [strangers.greet(server.port, strangers.offer()) for _ in range(MOST + 20)]
    until = time.monotonic() + 20
    while len(server._arrivals) < MOST and time.monotonic() < until:
        time.sleep(0.01)
    assert a_peer_is_served(server) < 20
    for channel in held:
        channel.close()


def test_a_wrong_token_is_reported_and_named_when_nobody_else_comes() -> None:
    refusals: list[str] = []
    server = RendezvousServer(["127.0.0.1"], 0, refusals.append)
    server.start(TOKEN.encode())
    for token, why in (("", "requires a token"), ("x" * 16, "different token")):
        with pytest.raises(ExchangeError, match=why):
            dial("127.0.0.1", server.port, time.monotonic() + 20, token)
    strangers.reset(server.port)
    with pytest.raises(DeadlineError, match=r"rejected peer: 127\.0\.0\.1.*different token"):
        server.accept(time.monotonic() + 1.0)
    assert len(refusals) == 2
    server.close()


def test_the_right_token_is_let_in_after_many_wrong_ones() -> None:
    server = RendezvousServer(["127.0.0.1"], 0)
    server.start(TOKEN.encode())
    for number in range(20):
        with pytest.raises(ExchangeError):
            dial("127.0.0.1", server.port, time.monotonic() + 20, f"guess number {number:04}")
    channel = strangers.greet(server.port, strangers.offer(), TOKEN)
    assert server.accept(time.monotonic() + 20).channel._seals is not None
    channel.close()
    server.close()


def test_closing_wakes_who_waits_and_frees_the_port() -> None:
    server = RendezvousServer(["127.0.0.1", "127.0.0.5"], 0)
    server.start(b"")
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            server.accept(time.monotonic() + 20)
        except ClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    server.close()
    server.close()
    thread.join(10)
    assert len(errors) == 1
    for host in ("127.0.0.1", "127.0.0.5"):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, server.port))


def test_it_listens_where_it_was_told_and_nowhere_else() -> None:
    server = RendezvousServer(["127.0.0.1", "127.0.0.7"], 0)
    server.start(b"")
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    port = f"{server.port:04X}"
    listening = {fields[1] for fields in lines if fields[3] == "0A" and fields[1].endswith(f":{port}")}
    server.close()
    assert listening == {f"0100007F:{port}", f"0700007F:{port}"}
    assert server.is_loopback


def test_all_addresses_are_not_loopback() -> None:
    server = RendezvousServer([module.ANYWHERE], 0)
    server.start(b"")
    server.close()
    assert not server.is_loopback


def test_an_address_that_cannot_be_had_is_named() -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1"):
        RendezvousServer(["127.0.0.1", "192.0.2.1"], 0)
    held = RendezvousServer(["127.0.0.1"], 0)
    with pytest.raises(ConfigError, match=rf"127\.0\.0\.1, TCP port {held.port}"):
        RendezvousServer(["127.0.0.1"], held.port)
    held.close()
