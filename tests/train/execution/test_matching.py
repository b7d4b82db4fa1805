"""Queues by key."""

from __future__ import annotations

from openmrc.train.execution.matching import KeyedQueues


def test_each_key_has_its_own_order_and_an_empty_queue_is_gone() -> None:
    queues: KeyedQueues[str, int] = KeyedQueues()
    for key, item in [("a", 1), ("b", 2), ("a", 3)]:
        queues.add(key, item)
    assert queues.first("a") == 1
    assert sorted(queues) == [1, 2, 3]
    assert [queues.take("a"), queues.take("a"), queues.take("a")] == [1, 3, None]
    assert queues.first("a") is None
    assert queues
    assert queues.take("b") == 2
    assert not queues
    assert not queues._queues


def test_what_waits_last_is_found_as_fast_as_what_waits_first() -> None:
    count = 100_000  # a search through all of them each time would take minutes
    queues: KeyedQueues[int, int] = KeyedQueues()
    for key in range(count):
        queues.add(key, key)
    assert all(queues.take(key) == key for key in reversed(range(count)))
