"""Queues by key: what waits for its counterpart, found in constant time however much waits."""

import collections
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


class KeyedQueues(Generic[Key, Item]):
    """First-in, first-out queues, one a key; an empty one takes no memory."""

    def __init__(self) -> None:
        self._queues: dict[Key, collections.deque[Item]] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __iter__(self) -> Iterator[Item]:
        return (item for each in self._queues.values() for item in each)

    def add(self, key: Key, item: Item) -> None:
        """Append an item to the queue of `key`."""
        self._queues.setdefault(key, collections.deque()).append(item)

    def first(self, key: Key) -> Item | None:
        """Return the oldest item of `key`; None if there is none."""
        found = self._queues.get(key)
        return found[0] if found else None

    def take(self, key: Key) -> Item | None:
        """Remove and return the oldest item of `key`; None if there is none."""
        found = self._queues.get(key)
        if not found:
            return None
        item = found.popleft()
        if not found:
            del self._queues[key]
        return item
