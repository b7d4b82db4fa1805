import hmac
import json
from collections.abc import Iterator

import pytest

from openmrc.live.errors import ExchangeError, InvalidArgumentError
from openmrc.live.objects.handshake import (
    LARGEST_GREETING,
    LARGEST_OFFER,
    Handshake,
    Role,
    Seal,
    framed,
    fresh_token,
    token_bytes,
)

TOKEN = b"a token of both sides"


def exchange(dialler: Handshake, listener: Handshake) -> Iterator[tuple[Role, bytes]]:
    """Carry bytes between both until nobody sends any; yield what each side sends before it is delivered."""
    while True:
        said = dialler.outgoing(), listener.outgoing()
        if not any(said):
            return
        yield Role.DIALLER, said[0]
        yield Role.LISTENER, said[1]
        listener.feed(said[0])
        dialler.feed(said[1])


def offering(dialler: Handshake, body: bytes = b"{}") -> bytes:
    return framed(body, dialler.seals.ours if dialler.seals is not None else None)


@pytest.mark.parametrize("token", [b"", TOKEN])
def test_two_sides_with_the_same_token_meet_and_the_listener_has_the_offer(token: bytes) -> None:
    dialler, listener = Handshake(Role.DIALLER, token), Handshake(Role.LISTENER, token)
    for _ in exchange(dialler, listener):
        pass
    assert dialler.is_done
    assert not listener.is_done
    listener.feed(offering(dialler, b'{"an": "offer"}') + b"and more")
    assert listener.is_done
    assert listener.offer == b'{"an": "offer"}'
    assert listener.rest() == b"and more"


@pytest.mark.parametrize("size", [1, 3])
def test_bytes_may_arrive_in_pieces_of_any_size(size: int) -> None:
    dialler, listener = Handshake(Role.DIALLER, TOKEN), Handshake(Role.LISTENER, TOKEN)
    while not listener.is_done:
        for from_, to in ((dialler, listener), (listener, dialler)):
            said = from_.outgoing()
            if from_ is dialler and dialler.is_done:
                said += offering(dialler)
            for begin in range(0, len(said), size):
                to.feed(said[begin : begin + size])


def test_a_stranger_learns_nothing_that_depends_on_the_token() -> None:
    said = []
    for token in (TOKEN, TOKEN + b"x"):
        listener = Handshake(Role.LISTENER, token)
        stranger = Handshake(Role.DIALLER, b"what a stranger guesses")
        listener.feed(stranger.outgoing())
        greeting = listener.outgoing()
        stranger.feed(greeting)
        with pytest.raises(ExchangeError, match="different token"):
            listener.feed(stranger.outgoing())
        said.append((len(greeting), listener.outgoing()))
    assert said[0] == said[1]


def test_the_dialler_is_told_that_its_token_is_another() -> None:
    dialler, listener = Handshake(Role.DIALLER, b"x" * 16), Handshake(Role.LISTENER, TOKEN)
    listener.feed(dialler.outgoing())
    dialler.feed(listener.outgoing())
    with pytest.raises(ExchangeError):
        listener.feed(dialler.outgoing())
    with pytest.raises(ExchangeError, match="different token"):
        dialler.feed(listener.outgoing())


def test_a_listener_that_does_not_hold_the_token_is_found_out() -> None:
    dialler, impostor = Handshake(Role.DIALLER, TOKEN), Handshake(Role.LISTENER, b"")
    with pytest.raises(ExchangeError, match="has no token"):
        dialler.feed(impostor.outgoing())
    dialler, impostor = Handshake(Role.DIALLER, TOKEN), Handshake(Role.LISTENER, b"x" * 16)
    dialler.feed(impostor.outgoing())
    with pytest.raises(ExchangeError, match="different token"):
        dialler.feed(framed(b'"proof"', Seal(b"any key")))


def test_a_proof_sent_back_to_its_sender_proves_nothing() -> None:
    dialler = Handshake(Role.DIALLER, TOKEN)
    greeting = dialler.outgoing()
    dialler.feed(greeting)  # its own greeting, as a mirror would send it
    with pytest.raises(ExchangeError, match="different token"):
        dialler.feed(dialler.outgoing())


def test_a_recorded_conversation_replayed_proves_nothing() -> None:
    dialler, listener = Handshake(Role.DIALLER, TOKEN), Handshake(Role.LISTENER, TOKEN)
    recorded = b"".join(part for role, part in exchange(dialler, listener) if role is Role.DIALLER)
    with pytest.raises(ExchangeError, match="different token"):
        Handshake(Role.LISTENER, TOKEN).feed(recorded)


def test_without_the_token_that_the_other_side_requires_both_sides_say_so() -> None:
    dialler, listener = Handshake(Role.DIALLER, b""), Handshake(Role.LISTENER, TOKEN)
    greetings = dialler.outgoing(), listener.outgoing()
    with pytest.raises(ExchangeError, match="requires a token"):
        dialler.feed(greetings[1])
    with pytest.raises(ExchangeError, match="has no token"):
        listener.feed(greetings[0])


def test_an_offer_that_was_changed_on_the_way_is_refused() -> None:
    dialler, listener = Handshake(Role.DIALLER, TOKEN), Handshake(Role.LISTENER, TOKEN)
    for _ in exchange(dialler, listener):
        pass
    changed = bytearray(offering(dialler, b'{"psn": 1}'))
    changed[-33] ^= 1
    with pytest.raises(ExchangeError, match="wrong tag"):
        listener.feed(bytes(changed))


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        (LARGEST_GREETING + 1).to_bytes(4, "big"),
        b"\xff" * 4,
        framed(b"{"),
        framed(b"[" * 1000),
        framed(b"\xff\xfe"),
        framed(json.dumps({"openmrc": 2, "wire": 1}).encode()),
        framed(json.dumps({"openmrc": 2, "wire": 1, "nonce": "00"}).encode()),
        framed(json.dumps({"openmrc": 1 << 70, "wire": 1, "nonce": "0" * 64}).encode()),
        framed(json.dumps({"openmrc": 2, "wire": 2, "nonce": "0" * 64}).encode()),
    ],
)
@pytest.mark.parametrize("token", [b"", TOKEN])
def test_what_is_no_greeting_is_refused_with_one_kind_of_error(said: bytes, token: bytes) -> None:
    listener = Handshake(Role.LISTENER, token)
    if not said:
        listener.feed(said)
        assert not listener.is_done
        return
    with pytest.raises(ExchangeError):
        listener.feed(said)


def test_an_offer_of_more_than_its_limit_is_refused_when_it_is_announced() -> None:
    dialler, listener = Handshake(Role.DIALLER, b""), Handshake(Role.LISTENER, b"")
    for _ in exchange(dialler, listener):
        pass
    with pytest.raises(ExchangeError, match="at most"):
        listener.feed((LARGEST_OFFER + 1).to_bytes(4, "big"))


def test_another_version_is_refused_with_both_versions() -> None:
    theirs = framed(json.dumps({"openmrc": 99, "wire": 2, "name": "from the future"}).encode())
    with pytest.raises(ExchangeError, match=r"local 2, peer 99.*local 0b1, peer 0b10"):
        Handshake(Role.LISTENER, b"").feed(theirs)


def test_the_same_body_never_has_the_same_tag_twice() -> None:
    seal = Seal(b"key")
    assert seal.tag(b"x") != seal.tag(b"x")


def test_tags_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert not Seal(b"key").matches(b"x", bytes(32))
    assert len(compared) == 1


def test_short_tokens_are_refused_and_fresh_ones_are_long_and_different() -> None:
    with pytest.raises(InvalidArgumentError, match="15 characters, at least 16"):
        token_bytes("x" * 15)
    tokens = {fresh_token() for _ in range(50)}
    assert len(tokens) == 50
    assert all(token_bytes(token) for token in tokens)
