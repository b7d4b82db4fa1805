"""What strangers, and peers gone bad, can do to an endpoint that serves a friend: the table of docs/security.md."""

from __future__ import annotations

import itertools
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from ipaddress import ip_address

import pytest

from harness import strangers
from harness.forger import FEEDBACK, Forger, feedback, outside_window
from harness.live_pair import SMALL, addresses
from openmrc.errors import PeerError
from openmrc.live.datapath import sources
from openmrc.live.errors import ExchangeError
from openmrc.live.host.addresses import PlaneAddress
from openmrc.verbs import (
    Connection,
    ConnectionOptions,
    Context,
    Listener,
    MemoryRegion,
    PeerAddress,
    QpState,
    WcStatus,
    connect,
)
from openmrc.wire.codes import Opcode
from openmrc.wire.icrc import halves
from openmrc.wire.message import compose

OPTIONS = ConnectionOptions(mpr=4, max_wimm=16, max_recv_wr=64, timeout=13)
ATTR = replace(SMALL, max_qp=4, max_peers=4)
TOKEN = "a token of both sides"
SIZE = 1 << 14


@dataclass
class Host:
    """An endpoint with a friend, that goes on accepting."""

    context: Context
    listener: Listener
    region: MemoryRegion
    friend: Connection  # the friend's end
    memory: MemoryRegion  # the friend's
    accepted: list[Connection] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    token: str = ""
    patience: float = 20.0  # s, to accept

    def serve(self, count: int = 1) -> threading.Thread:
        """Accept in a thread."""

        def accept() -> None:
            for _ in range(count):
                try:
                    self.accepted.append(
                        self.listener.accept(regions=[self.region], options=OPTIONS, timeout=self.patience)
                    )
                except Exception as error:
                    self.errors.append(error)

        thread = threading.Thread(target=accept)
        thread.start()
        return thread

    def the_friend_still_writes(self) -> None:
        self.memory.bytes[:] = list(random.Random(time.monotonic_ns()).randbytes(SIZE))
        self.friend.write(self.memory, self.friend.remote.regions[0], timeout=20)
        assert self.region.bytes.tobytes() == self.memory.bytes.tobytes()

    def refuses(self, said: dict[str, object]) -> str:
        """Return what a stranger with this offer hears last; the friend must not notice."""
        self.patience = 0.5
        thread = self.serve()
        heard = strangers.last_words(strangers.greet(self.listener.port, said, self.token))
        thread.join(20)
        assert len(self.accepted) == 1
        self.the_friend_still_writes()
        return heard


NUMBERS = itertools.cycle(range(230, 250))


@contextmanager
def hosting(token: str = "", planes: int = 1) -> Iterator[Host]:
    number = next(NUMBERS)
    with ExitStack() as stack:
        theirs = stack.enter_context(Context(addresses(0, number, planes, 4), ATTR))
        ours = stack.enter_context(Context(addresses(1, number, planes, 4), ATTR))
        memory, region = (each.alloc_pd().reg_mr(bytearray(SIZE)) for each in (theirs, ours))
        listener = stack.enter_context(Listener(ours, "127.0.0.1", 0, token=token))
        host = Host(ours, listener, region, None, memory, token=token)  # type: ignore[arg-type]
        thread = host.serve()
        host.friend = connect(
            theirs, "127.0.0.1", listener.port, regions=[memory], options=OPTIONS, token=token, timeout=20
        )
        thread.join()
        yield host


@pytest.fixture(params=["", TOKEN], ids=["open", "token"])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    with hosting(request.param) as made:
        yield made


def offer(**changes: object) -> dict[str, object]:
    return strangers.offer(OPTIONS, **changes)


# A peer gone bad: it holds the token, if there is one.


IMPOSSIBLE: dict[str, dict[str, object]] = {
    "3,000 source ports": {"source_ports": [list(range(1, 3001))]},
    "more source ports than its share": {"source_ports": [list(range(1, 1001))]},
    "fewer source ports than planes": {"source_ports": []},
    "a port of 70 bits": {"source_ports": [[1 << 70]]},
    "more planes": {"planes": ["127.9.9.9:4791", "127.9.9.8"]},
    "another family": {"planes": ["2001:db8::1"]},
    "multicast": {"planes": ["224.0.0.1"]},
    "an address of 64 bits": {"regions": [{"addr": 1 << 63, "r_key": 0, "length": 0}]},
    "another window": {"mpr": 255},
    "another MTU": {"path_mtu": 300},
}


@pytest.mark.parametrize("changes", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_offer_that_cannot_be_met_ends_only_its_own_connection(host: Host, changes: dict[str, object]) -> None:
    heard = host.refuses(offer(**changes))
    assert heard


@pytest.mark.parametrize(
    "said",
    [b"", b"{", b"[]", b"null", b'"x"', b"[" * 60_000, b"\xff\xfe", b"{}", b'{"refused": 7}'],
    ids=range(9),
)
def test_something_else_than_an_offer_ends_only_its_own_connection(host: Host, said: bytes) -> None:
    assert host.refuses(said)  # type: ignore[arg-type]


@pytest.mark.parametrize("spelled", ["{}:4791", " {} "])
def test_the_address_of_a_connected_peer_spelled_otherwise_is_the_same_peer(host: Host, spelled: str) -> None:
    address = host.friend.context.address
    thread = host.serve()
    planes = [spelled.format(address.planes[0])]
    channel = strangers.greet(
        host.listener.port,
        offer(planes=planes, source_ports=[list(ports) for ports in address.source_ports]),
        host.token,
    )
    channel.hear(timeout=20)
    channel.hear(str, timeout=20)
    channel.tell("ready")
    thread.join(20)
    assert len(host.accepted) == 2
    numbers = {int(host.context.nic.runtime.engine.qps[each.qp.row].peer) for each in host.accepted}
    assert len(numbers) == 1
    host.the_friend_still_writes()
    host.accepted[1].close()
    host.the_friend_still_writes()
    channel.close()


def test_the_sources_of_a_connected_peer_cannot_be_taken_over(host: Host) -> None:
    address = host.friend.context.address
    overlapping = [[address.source_ports[0][0], 40_000]]
    assert "already belongs to another peer" in host.refuses(
        offer(planes=list(address.planes), source_ports=overlapping)
    )


def test_another_port_of_a_connected_peers_address_is_another_peer(host: Host) -> None:
    address = host.friend.context.address
    host.refuses(offer(planes=list(address.planes), source_ports=[[40_000]]))


def test_loopback_addresses_from_another_machine_are_refused(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openmrc.live.objects.exchange.ControlChannel.is_local", property(lambda channel: False))
    monkeypatch.setattr(
        host.context.nic.sockets, "addresses", [PlaneAddress(ip_address("192.0.2.1"))]
    )  # as if our plane were no loopback
    assert "loopback" in host.refuses(offer(planes=["127.0.0.53:53"]))


def test_a_peer_that_stalls_is_given_up_and_the_next_one_served(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openmrc.live.objects.connecting.READY_SECONDS", 3.0)
    thread = host.serve()
    stalling = strangers.greet(host.listener.port, offer(), host.token)
    time.sleep(0.05)
    next_one = strangers.greet(host.listener.port, offer(qpn=6, planes=["127.9.9.8"]), host.token)
    next_one.hear(timeout=20)
    next_one.hear(str, timeout=20)
    next_one.tell("ready")
    thread.join(20)
    assert len(host.accepted) == 2
    assert host.accepted[1].remote.qpn == 6
    host.the_friend_still_writes()
    stalling.close()
    next_one.close()


# Strangers on the network: forged packets. Each knows more than the one before.


SILENCE = compose(
    Opcode.ENDPOINT_REQUEST, bth={"dqp": 2, "psn": 1}, erth={"op": 0, "port_status_mask": 0}
)  # "none of my ports works"
PLANE_1_DENIED = compose(
    Opcode.ENDPOINT_REQUEST, bth={"dqp": 2, "psn": 1}, erth={"op": 0, "port_status_mask": 0b010}
)  # bit n is port n, from 1


def test_another_user_of_the_peers_host_cannot_speak_in_its_name() -> None:
    with hosting() as host:
        forger = Forger(host.friend.context, host.context)
        before = forger.refused()
        forger.send_from_another_port(SILENCE)
        assert forger.is_refused_after(before)
        assert not [event for event in host.context.poll_async_events() if event.port_mask == 0]
        host.the_friend_still_writes()


def test_forged_writes_reach_no_memory_without_number_sequence_and_key() -> None:
    with hosting() as host:
        forger = Forger(host.friend.context, host.context)
        before = host.region.bytes.tobytes()
        theirs = host.accepted[0].qp.qpn
        for number in range(2000):
            # A guess of number and sequence together is right once in 4,096, and then ends the connection, as in RoCE.
            qpn = theirs if number % 200 == 0 else random.randrange(1 << 24)
            forger.send(
                compose(
                    Opcode.WRITE_ONLY,
                    b"forged data.",
                    bth={"dqp": qpn, "psn": random.randrange(1 << 24)},
                    reth={"va": host.region.addr, "r_key": random.randrange(1 << 32), "dmalen": 12},
                )
            )
        time.sleep(0.1)
        assert host.region.bytes.tobytes() == before
        assert host.accepted[0].qp.state == QpState.RTS
        host.the_friend_still_writes()


@pytest.mark.parametrize("kind", FEEDBACK)
def test_feedback_forged_with_the_number_alone_neither_ends_a_connection_nor_loses_data(kind: str) -> None:
    with hosting() as host:
        forger, ours = Forger(host.friend.context, host.context), host.accepted[0]
        base = ours.qp.query()[0].sq_psn or 0
        stop = threading.Event()

        def forge() -> None:
            while not stop.is_set():
                forger.send(feedback(kind, ours.qp.qpn, outside_window(base)))
                time.sleep(0.0005)

        thread = threading.Thread(target=forge)
        thread.start()
        try:
            for _ in range(20):
                host.region.bytes[:] = list(random.randbytes(SIZE))
                ours.write(host.region, ours.remote.regions[0], timeout=20)
                assert host.memory.bytes.tobytes() == host.region.bytes.tobytes()
        finally:
            stop.set()
            thread.join()
        assert ours.qp.state == QpState.RTS
        host.the_friend_still_writes()


def test_a_port_status_update_that_denies_the_port_it_came_from_is_ignored() -> None:
    with hosting() as host:
        Forger(host.friend.context, host.context).send(SILENCE)
        ours = host.accepted[0]
        ours.write(host.region, ours.remote.regions[0], timeout=20)
        assert not [event for event in host.context.poll_async_events() if event.port_mask == 0]


def test_a_plane_denied_by_a_forged_port_status_update_is_used_again_within_seconds() -> None:
    with hosting(planes=2) as host:
        ours = host.accepted[0]
        Forger(host.friend.context, host.context).send(PLANE_1_DENIED)
        assert saw_ports(host, 0b01)
        ours.write(host.region, ours.remote.regions[0], timeout=20)
        assert saw_ports(host, 0b11)
        host.the_friend_still_writes()


def saw_ports(host: Host, mask: int) -> bool:
    """Wait a few seconds for the event that the friend's working planes are these."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        if any(event.port_mask == mask for event in host.context.poll_async_events()):
            return True
        time.sleep(0.005)
    return False


def test_a_write_with_the_right_numbers_and_a_wrong_key_reaches_no_memory() -> None:
    with hosting() as host:
        before = host.region.bytes.tobytes()
        remote = host.friend.remote.regions[0]
        host.friend.qp.post_write(host.memory, remote.addr, remote.r_key ^ 0x10000)
        assert host.friend.send_cq.wait(20)[0].status == WcStatus.REM_ACCESS_ERR
        assert host.region.bytes.tobytes() == before


def test_a_stranger_without_the_token_never_sees_an_address_or_a_key() -> None:
    with hosting(TOKEN) as host:
        heard = strangers.say(host.listener.port, b"")
        for token in ("", "x" * 16):
            with pytest.raises(ExchangeError):
                strangers.greet(host.listener.port, offer(), token)
        assert str(host.region.addr).encode() not in heard
        assert b"r_key" not in heard
        host.the_friend_still_writes()


def test_a_listener_without_the_token_never_sees_an_address_or_a_key() -> None:
    impostor, heard = socket.create_server(("127.0.0.1", 0)), []

    def be_impostor() -> None:
        sock, _ = impostor.accept()
        with sock:
            sock.settimeout(20)
            sock.sendall(strangers.impostor("x" * 16))
            while part := sock.recv(1 << 12):
                heard.append(part)

    thread = threading.Thread(target=be_impostor)
    thread.start()
    with Context(addresses(0, 229, 1, 4), ATTR) as context, context.alloc_pd().reg_mr(bytearray(SIZE)) as region:
        with pytest.raises(PeerError):
            connect(context, "127.0.0.1", impostor.getsockname()[1], regions=[region], token=TOKEN, timeout=2)
        thread.join(20)
        assert b"r_key" not in b"".join(heard)
        assert str(region.addr).encode() not in b"".join(heard)
    impostor.close()


# What the numbers of two endpoints have in common.


def test_numbers_of_two_endpoints_have_nothing_in_common() -> None:
    seen: list[tuple[int, int, int]] = []
    for _ in range(2):
        with hosting() as host:
            seen.append((host.accepted[0].qp.qpn, host.region.r_key, host.friend.remote.qpn))
            assert host.accepted[0].qp.qpn != host.friend.qp.qpn
    assert all(one != other for one, other in zip(*seen, strict=True))


def test_peers_come_and_go_without_leaving_anything_in_the_source_table() -> None:
    with hosting() as host:
        table = host.context.nic.runtime.datapath.sources
        nic = host.context.nic
        used = [int(row.used) for row in table].count(1)
        with nic.runtime.locked():
            for number in range(300):
                peers = [
                    nic.peers.take(
                        nic.peers.prepare(PeerAddress(planes=(f"127.8.{number % 250}.{k}",), source_ports=((k, 9),)))
                    )
                    for k in (1, 2, 3)
                ]
                random.shuffle(peers)
                for peer in peers:
                    nic.peers.give_back(peer)
        assert [int(row.used) for row in table].count(1) == used
        address = PlaneAddress.parse(host.friend.context.address.planes[0])
        port = host.friend.context.address.source_ports[0][0]
        assert sources.find_source(nic.runtime.datapath, 0, *halves(address.ip), port) >= 0
        host.the_friend_still_writes()
