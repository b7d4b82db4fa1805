"""The memory of the demo: what is sent when, and what the receiver holds at the end."""

import hashlib

from openmrc.programs.demo.memory_transfer import PIECES, content, final_order, source_of


def test_no_slot_gets_the_piece_that_it_holds() -> None:
    held = [-1] * PIECES
    for number in range(5 * PIECES):
        assert held[number % PIECES] != source_of(number)
        held[number % PIECES] = source_of(number)
    assert held == final_order(5 * PIECES)


def test_a_short_transfer_leaves_slots_empty() -> None:
    assert final_order(2) == [0, 1, *[-1] * (PIECES - 2)]


def test_every_round_writes_every_piece_once() -> None:
    for turn in range(3 * PIECES):
        assert sorted(source_of(turn * PIECES + slot) for slot in range(PIECES)) == list(range(PIECES))


def test_the_same_seed_makes_the_same_content() -> None:
    first, again, other = (hashlib.sha256(content(seed)).digest() for seed in (7, 7, 8))
    assert first == again != other
