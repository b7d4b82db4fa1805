"""A conversation over a real connection, with a peer that does not stop talking."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from openmrc.errors import MrcError
from openmrc.programs.endpoint.conversation import MOST_UNREAD, Conversation
from openmrc.verbs import Connection, Context, Listener, connect

MESSAGE = "x" * 60_000


@pytest.fixture
def ends() -> Iterator[tuple[Connection, Connection]]:
    """Two ends of a connection between two contexts of this process."""
    accepted: list[Connection] = []
    with (
        Context(["127.0.1.31"]) as one,
        Context(["127.0.1.32"]) as two,
        Listener(one, "127.0.0.1", 0) as listener,
    ):
        server = threading.Thread(target=lambda: accepted.append(listener.accept(timeout=60)))
        server.start()
        with connect(two, "127.0.0.1", listener.port, timeout=60) as far:
            server.join()
            with accepted[0] as near:
                yield near, far


def test_a_peer_that_talks_without_end_is_not_kept(ends: tuple[Connection, Connection]) -> None:
    near, far = ends
    conversation = Conversation(near, str, 60.0)
    told = 0

    def talk() -> None:
        nonlocal told
        with suppress(MrcError):
            while True:
                far.tell(MESSAGE)
                told += 1

    talker = threading.Thread(target=talk)
    talker.start()
    try:
        for _ in range(3):
            assert conversation.wait(near.recv_cq, 0.5) == []
        assert MOST_UNREAD <= conversation._unread < MOST_UNREAD + 2 * len(MESSAGE)
        before = told
        assert conversation.wait(near.recv_cq, 0.5) == []
        assert told == before  # TCP's flow control holds it
        assert conversation.hear(str) == MESSAGE
    finally:
        near.channel.close()
        talker.join()
