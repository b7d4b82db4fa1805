"""The memory of the demo: what is sent when, and by what the receiver shows that it arrived."""

import hashlib
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from openmrc.programs.demo import memory_transfer
from openmrc.programs.demo.memory_transfer import PIECE, PIECES, SLOTS, digest_of, place, receive


def test_no_slot_gets_the_piece_that_it_holds_and_none_is_left_out() -> None:
    held: dict[int, int] = {}
    for number in range(PIECES * SLOTS):
        at, piece = place(number, SLOTS).start, place(number, PIECES).start
        assert held.get(at) != piece
        held[at] = piece
    assert sorted(held) == [slot * PIECE for slot in range(SLOTS)]
    assert {place(number, PIECES).start for number in range(PIECES)} == {piece * PIECE for piece in range(PIECES)}


class Arrivals:
    """A conversation with a sender that writes pieces into the memory of the receiver."""

    def __init__(self, memory: Any, content: Any, sent: int) -> None:
        self.told: list[Any] = []
        self._memory, self._content, self._sent = memory, content, sent
        self.reporting = MagicMock()

    def wait(self, *_: object, **__: object) -> list[Any]:
        number = len(self.told) - 1
        if number == self._sent:
            return []
        self._memory[place(number, SLOTS)] = self._content[place(number, PIECES)]
        return [SimpleNamespace(immediate=number)]

    def tell(self, message: Any) -> None:
        self.told.append(message)

    def hear(self, kind: type) -> int:
        return self._sent


@pytest.mark.parametrize("wrong", [None, 3])
def test_the_receiver_tells_the_digest_of_every_piece_that_arrived(
    wrong: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, content = 2 * SLOTS + 3, np.random.default_rng(1).integers(0, 256, PIECES * PIECE, np.uint8)
    expected = digest_of(content, sent)
    if wrong is not None:
        content[place(wrong, PIECES).start + 7] ^= 1
    region = SimpleNamespace(bytes=np.zeros(SLOTS * PIECE, np.uint8))
    arrivals = Arrivals(region.bytes, content, sent)
    monkeypatch.setattr(memory_transfer, "Conversation", lambda *_: arrivals)
    listener = MagicMock()
    listener.context.alloc_pd().reg_mr().__enter__.return_value = region
    receive(listener, MagicMock())
    assert arrivals.told[:-1] == list(range(sent + 1))
    assert (arrivals.told[-1] == expected) == (wrong is None)


def test_a_piece_that_is_missing_changes_the_digest() -> None:
    content = np.random.default_rng(1).integers(0, 256, PIECES * PIECE, np.uint8)
    assert len({digest_of(content, sent) for sent in range(3 * PIECES)}) == 3 * PIECES
    assert digest_of(content, 0) == hashlib.sha256().hexdigest()
