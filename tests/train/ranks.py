"""Ranks as threads of one process, each with an endpoint of its own on loopback sockets."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from openmrc.train.group import Group
from openmrc.train.links.store import TcpStore
from openmrc.verbs import Context

TIMEOUT = 8.0
_names = itertools.count()


class MemoryStore:
    """A store for ranks that are threads of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, bytes] = {}

    def set(self, key: str, value: str) -> None:
        self._values[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self._values[key]

    def add(self, key: str, amount: int) -> int:
        with self._lock:
            total = int(self._values.get(key, b"0")) + amount
            self._values[key] = str(total).encode()
        return total

    def check(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)


def run(size: int, program: Callable[[Group], Any], **options: Any) -> list[Any]:
    """Run `program(group)` at every rank; return what each returned, or raise the first rank's error."""
    results = outcomes(size, program, **options)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def outcomes(
    size: int, program: Callable[[Group], Any], contexts: Sequence[Context] | None = None, **options: Any
) -> list[Any]:
    """Run `program(group)` at every rank; return for each what it returned or the error that it raised.

    `shared_memory` may be a list by rank. `contexts` are endpoints by rank that the groups share; without them each
    group opens its own.
    """
    results: list[Any] = [None] * size
    store = TcpStore("127.0.0.1", 0, serve=True)
    name = f"test{next(_names)}"

    def one(rank: int) -> None:
        try:
            mine = TcpStore("127.0.0.1", store.port, serve=False)
            arguments = {"planes": "2", "timeout": TIMEOUT, "name": name, **options}
            if isinstance(options.get("shared_memory"), list):
                arguments["shared_memory"] = options["shared_memory"][rank]
            if contexts is not None:
                arguments |= {"planes": None, "context": contexts[rank]}
            try:
                group = Group(mine, rank, size, **arguments)
                try:
                    results[rank] = program(group)
                finally:
                    group.close()
            finally:
                mine.close()
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 2 * max(TIMEOUT, options.get("timeout", 0.0))
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
    store.close()
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    return results
