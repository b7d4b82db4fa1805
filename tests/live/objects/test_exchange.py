import json
import math
import socket
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest

from openmrc.live.errors import DeadlineError, ExchangeError
from openmrc.live.objects import exchange
from openmrc.live.objects.exchange import (
    ControlChannel,
    Offer,
    TermsMismatchError,
    check_offers,
    decode_offer,
    dial,
    printable,
)
from openmrc.live.objects.handshake import LARGEST_OFFER, framed
from openmrc.live.objects.server import RendezvousServer

TOKEN = "a token of both sides"


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


@pytest.fixture(params=["", TOKEN])
def channels(request: pytest.FixtureRequest) -> Iterator[tuple[ControlChannel, ControlChannel]]:
    server = RendezvousServer(["127.0.0.1"], 0)
    server.start(request.param.encode())
    ours = dial("127.0.0.1", server.port, time.monotonic() + 5, request.param)
    ours.tell(offer())
    theirs = server.accept(time.monotonic() + 5).channel
    yield ours, theirs
    for channel in (ours, theirs):
        channel.close()
    server.close()


def test_what_one_side_tells_the_other_hears(channels: tuple[ControlChannel, ControlChannel]) -> None:
    ours, theirs = channels
    for number in range(3):
        ours.tell({"any": ["thing", number]})
        theirs.tell(number)
    assert [theirs.hear(timeout=5)["any"][1] for _ in range(3)] == [0, 1, 2]
    assert [ours.hear(int, timeout=5) for _ in range(3)] == [0, 1, 2]


def test_an_offer_carries_the_name_and_the_note_of_its_program(channels: tuple[ControlChannel, ControlChannel]) -> None:
    ours, theirs = channels
    theirs.tell(offer(note={"any": ["thing", 1]}))
    heard = ours.hear_offer(timeout=5)
    assert heard.note == {"any": ["thing", 1]}
    assert heard.name == theirs.name


def test_a_frame_written_by_somebody_else_is_noticed() -> None:
    server = RendezvousServer(["127.0.0.1"], 0)
    server.start(TOKEN.encode())
    ours = dial("127.0.0.1", server.port, time.monotonic() + 5, TOKEN)
    ours.tell(offer())
    theirs = server.accept(time.monotonic() + 5).channel
    ours._socket.sendall((2).to_bytes(4, "big") + b"{}" + bytes(32))
    with pytest.raises(ExchangeError, match="wrong tag"):
        theirs.hear(timeout=5)
    ours.close()
    theirs.close()
    server.close()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"planes": ["192.0.2.1"], "source_ports": [[1]]}, "plane count: here 2, there 1"),
        ({"mpr": 4}, "MPR: here 8, there 4"),
        ({"ev_format": "SRV6"}, "EV format: here UDP, there SRV6"),
        ({"dynamic_mpr": True}, "dynamic MPR: here False, there True"),
    ],
)
def test_a_mismatch_shows_both_values(changes: dict[str, object], text: str) -> None:
    with pytest.raises(TermsMismatchError, match=text):
        check_offers(offer(), offer(**changes), "the peer")


@pytest.mark.parametrize(
    "changes",
    [
        {"planes": []},
        {"planes": ["192.0.2.1"] * 17, "source_ports": [[1]] * 17},
        {"planes": ["192.0.2.1", "not an address"]},
        {"planes": ["192.0.2.1", "x" * 1000]},
        {"planes": ["192.0.2.1", "192.0.2.2:0"]},
        {"planes": ["192.0.2.1", f"192.0.2.2:{1 << 70}"]},
        {"planes": ["192.0.2.1", "224.0.0.1"]},
        {"planes": ["192.0.2.1", "255.255.255.255"]},
        {"planes": ["192.0.2.1", "0.0.0.0"]},
        {"planes": ["ff02::1", "::"]},
        {"source_ports": [[1]]},
        {"source_ports": []},
        {"source_ports": [[1], []]},
        {"source_ports": [[1], [0]]},
        {"source_ports": [[1], [65536]]},
        {"source_ports": [[1], [1 << 70]]},
        {"source_ports": [[1], [-1]]},
        {"source_ports": [[1], list(range(1, 3001))]},
        {"path_mtu": 0},
        {"path_mtu": 1 << 40},
        {"mpr": 0},
        {"mpr": 256},
        {"max_wimm": 0},
        {"max_wimm": 1 << 63},
        {"qpn": 0},
        {"qpn": 1},
        {"qpn": 2},  # endpoint operations
        {"qpn": 1 << 24},
        {"psn": -1},
        {"psn": 1 << 24},
        {"regions": [{"addr": 1 << 64, "r_key": 1, "length": 1}]},
        {"regions": [{"addr": -1, "r_key": 1, "length": 1}]},
        {"regions": [{"addr": 1, "r_key": 1 << 32, "length": 1}]},
        {"regions": [{"addr": 1, "r_key": 1, "length": -1}]},
        {"regions": [{"addr": 1.5, "r_key": 1, "length": 1}]},
        {"name": "x" * 257},
        {"further": 1},
    ],
    ids=lambda changes: str(changes)[:60],
)
def test_an_offer_out_of_range_is_refused_before_anything_is_made_of_it(changes: dict[str, object]) -> None:
    plain = json.loads(_encoded(offer())) | changes
    with pytest.raises(ExchangeError, match="the peer"):
        decode_offer(json.dumps(plain).encode(), "the peer")


def test_text_of_a_peer_cannot_steer_a_terminal() -> None:
    assert printable("a\x1b[2Jb\nc") == "a\\u001b[2Jb\\u000ac"
    assert decode_offer(_encoded(offer(name="a\x1b]0;x\x07")), "the peer").name == "a\\u001b]0;x\\u0007"
    assert len(printable("x" * 5000)) < 1100


def _encoded(whole: Offer) -> bytes:
    return msgspec.json.encode(whole)


def test_an_offer_too_large_to_be_taken_is_refused_by_who_makes_it(
    channels: tuple[ControlChannel, ControlChannel],
) -> None:
    with pytest.raises(ExchangeError, match=f"at most {LARGEST_OFFER}"):
        channels[0].tell(offer(note="x" * LARGEST_OFFER))


def test_a_message_may_be_waited_for_without_end(channels: tuple[ControlChannel, ControlChannel]) -> None:
    ours, theirs = channels
    theirs.tell(7)
    assert ours.hear(int, timeout=math.inf) == 7


def test_a_silent_peer_ends_in_an_error_that_names_it(channels: tuple[ControlChannel, ControlChannel]) -> None:
    ours, _ = channels
    with pytest.raises(DeadlineError, match=ours.peer):
        ours.hear(timeout=0.02)


def test_a_peer_that_hangs_up_is_told_apart_from_a_silent_one(channels: tuple[ControlChannel, ControlChannel]) -> None:
    ours, theirs = channels
    theirs.close()
    with pytest.raises(ExchangeError, match="closed"):
        ours.hear(timeout=5)


def test_a_length_beyond_the_limit_is_refused_before_anything_is_read(
    channels: tuple[ControlChannel, ControlChannel],
) -> None:
    ours, theirs = channels
    theirs._socket.sendall((exchange.LARGEST_FRAME + 1).to_bytes(4, "big"))
    with pytest.raises(ExchangeError, match=f"{ours.peer}.*at most"):
        ours.hear(timeout=5)


@pytest.mark.parametrize("body", [b"", b"{", b'{"qpn": "x"}', b"\xff\xfe", b"[" * 5000])
def test_malformed_frames_give_one_typed_error(channels: tuple[ControlChannel, ControlChannel], body: bytes) -> None:
    ours, theirs = channels
    seal = theirs._seals.ours if theirs._seals is not None else None
    theirs._socket.sendall(framed(body, seal))
    with pytest.raises(ExchangeError, match="unexpected message"):
        ours.hear_offer(timeout=5)


def test_dialling_where_nobody_listens_ends_at_its_deadline() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(DeadlineError, match="no answer"):
            dial("127.0.0.1", free.getsockname()[1], time.monotonic() + 0.05)


def test_a_greeting_cut_off_at_the_listeners_limit_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openmrc.live.objects.exchange.GREETING_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]

        def answer() -> None:
            first, _ = busy.accept()
            time.sleep(0.2)
            first.close()
            busy.accept()[0].close()  # at once: refused, not late

        listener = threading.Thread(target=answer)
        listener.start()
        begun = time.monotonic()
        with pytest.raises(ExchangeError):
            dial("127.0.0.1", port, begun + 20)
        listener.join(20)
        assert not listener.is_alive(), "the second connection came"
        assert time.monotonic() - begun >= 0.2
