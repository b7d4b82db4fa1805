"""Memory that calls use one after the other."""

from __future__ import annotations

from openmrc.train.buffers import KEPT, SpareMemory


def test_the_larger_piece_is_kept_for_the_next_call_and_handed_out_once() -> None:
    spare = SpareMemory()
    small, large = spare.take(1000), spare.take(5000)
    for each in (large, small):
        spare.give_back(each)
    assert spare.take(5000) is large
    assert spare.take(10) is not large


def test_memory_that_is_too_small_or_too_much_is_not_used() -> None:
    spare = SpareMemory()
    small = spare.take(1000)
    spare.give_back(small)
    assert spare.take(1001) is not small
    spare.give_back(spare.take(KEPT + 1))
    assert spare.take(1000) is small
    spare.give_back(small)
    spare.clear()
    assert spare.take(1000) is not small
