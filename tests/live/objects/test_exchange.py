import socket
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

from openmrc.live.api.errors import DeadlineError, ExchangeError
from openmrc.live.objects import exchange
from openmrc.live.objects.exchange import Channel, Greeting, Offer, Server, check_offers, dial


def offer(**changes: object) -> Offer:
    fields = {
        "planes": ["192.0.2.1", "192.0.2.2"],
        "source_ports": [[1], [2]],
        "ev_format": "UDP",
        "path_mtu": 4096,
        "mpr": 8,
        "max_wimm": 16,
        "dynamic_mpr": False,
        "qpn": 3,
        "psn": 7,
        "regions": [],
    }
    return Offer(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture
def channels() -> Iterator[tuple[Channel, Channel]]:
    server = Server("127.0.0.1", 0)
    accepted: list[Channel] = []
    thread = threading.Thread(target=lambda: accepted.append(server.accept(time.monotonic() + 5)))
    thread.start()
    ours = dial("127.0.0.1", server.port, time.monotonic() + 5)
    thread.join()
    yield ours, accepted[0]
    for channel in (ours, accepted[0]):
        channel.close()
    server.close()


def test_what_one_side_tells_the_other_hears(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    ours.tell(offer(note={"any": ["thing", 1]}))
    heard = theirs.hear(Offer, timeout=5)
    assert heard.note == {"any": ["thing", 1]}
    assert heard.name == ours.name


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"planes": ["192.0.2.1"], "source_ports": [[1]]}, "plane count: here 2, there 1"),
        ({"path_mtu": 1024}, "path MTU: here 4096, there 1024"),
        ({"mpr": 4}, "MPR: here 8, there 4"),
        ({"ev_format": "SRV6"}, "EV format: here UDP, there SRV6"),
        ({"dynamic_mpr": True}, "dynamic MPR: here False, there True"),
    ],
)
def test_a_mismatch_shows_both_values(changes: dict[str, object], text: str) -> None:
    with pytest.raises(ExchangeError, match=text):
        check_offers(offer(), offer(**changes), "the peer")


def test_another_version_fails_at_once_with_both_versions() -> None:
    server = Server("127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", server.port)) as old:
        body = msgspec.json.encode(Greeting(99, 2, "from the future"))
        old.sendall(len(body).to_bytes(4, "big") + body)
        with pytest.raises(ExchangeError, match=r"here 1, there 99.*here 0b1, there 0b10"):
            server.accept(time.monotonic() + 5)
    server.close()


def test_a_silent_peer_ends_in_an_error_that_names_it(channels: tuple[Channel, Channel]) -> None:
    ours, _ = channels
    with pytest.raises(DeadlineError, match=ours.peer):
        ours.hear(timeout=0.02)


def test_a_peer_that_hangs_up_is_told_apart_from_a_silent_one(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    theirs.close()
    with pytest.raises(ExchangeError, match="closed"):
        ours.hear(timeout=5)


def test_a_length_beyond_the_limit_is_refused_before_anything_is_read(channels: tuple[Channel, Channel]) -> None:
    ours, theirs = channels
    theirs._socket.sendall((exchange.LARGEST_FRAME + 1).to_bytes(4, "big"))
    with pytest.raises(ExchangeError, match="at most"):
        ours.hear(timeout=5)


@pytest.mark.parametrize("body", [b"", b"{", b'{"qpn": "x"}', b"\xff\xfe", b"[" * 5000])
def test_malformed_frames_give_one_typed_error(channels: tuple[Channel, Channel], body: bytes) -> None:
    ours, theirs = channels
    theirs._socket.sendall(len(body).to_bytes(4, "big") + body)
    with pytest.raises(ExchangeError, match="something else"):
        ours.hear(Offer, timeout=5)


def test_dialling_where_nobody_listens_ends_at_its_deadline() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(DeadlineError, match="nobody answers"):
            dial("127.0.0.1", free.getsockname()[1], time.monotonic() + 0.05)
