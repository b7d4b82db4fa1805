"""The memory of the demo: what is sent when, and what the receiver holds at the end."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from isal import isal_zlib

from openmrc.errors import PeerError
from openmrc.programs.demo import memory_transfer
from openmrc.programs.demo.memory_transfer import SLOTS, content, final_memory, slot, source


def test_no_slot_gets_the_piece_that_it_holds_and_none_is_left_out() -> None:
    held: dict[int, int] = {}
    for number in range(5 * SLOTS):
        at, piece = slot(number).start, source(number).start
        assert held.get(at) != piece
        held[at] = piece
    assert {source(number).start for number in range(SLOTS + 1)} == set(held.values()) | {source(4 * SLOTS - 1).start}


def test_the_receiver_holds_the_last_piece_of_each_slot() -> None:
    pieces, memory = content(), final_memory(2 * SLOTS + 3)
    for number in range(SLOTS + 3, 2 * SLOTS + 3):
        assert memory[slot(number)] == pieces[source(number)]
    assert not any(final_memory(2)[slot(2)])


def conversation(arrived: list[int], sent: int) -> Any:
    """Return what a receiver hears: pieces that arrive, and then how many were sent."""
    found = MagicMock()
    found.wait.side_effect = [[SimpleNamespace(immediate=number)] for number in arrived] + [[]]
    found.hear.return_value = sent
    found.lost = PeerError
    return found


@pytest.mark.parametrize(
    ("changed", "sent", "error"), [(None, 2, None), (1, 2, "piece 1 arrived"), (None, 3, "sent 3")]
)
def test_a_wrong_or_missing_piece_is_named(changed: int | None, sent: int, error: str | None) -> None:
    memory = memoryview(final_memory(2))
    crcs = [isal_zlib.crc32(content()[source(number)]) for number in range(SLOTS + 1)]
    if changed is not None:
        memory[slot(changed).start + 7] ^= 1
    if error is None:
        memory_transfer._check(conversation([0, 1], sent), memory, crcs)
        return
    with pytest.raises(PeerError, match=error):
        memory_transfer._check(conversation([0, 1], sent), memory, crcs)
