"""Two contexts of this process joined over loopback, for tests; real sockets, real threads."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from openmrc.verbs import Connection, ConnectionOptions, Context, ContextAttr, Listener, MemoryRegion, connect

_PAIRS = itertools.count()
SMALL = ContextAttr(max_qp=2, max_peers=2, max_mr=8, max_mpr=4, max_wimm=16, max_recv_wr=64, evs_per_plane=2, seed=1)


@dataclass
class Pair:
    """Both ends of one connection and their memory."""

    contexts: tuple[Context, Context]
    regions: tuple[MemoryRegion, MemoryRegion]
    ends: tuple[Connection, Connection]
    port: int  # of the second's listener, which stays open


def addresses(side: int, pair: int, planes: int, family: int) -> list[str]:
    """Return addresses that no other test of this process, and no other process, uses."""
    if family == 4:
        return [f"127.{100 + os.getpid() % 100}.{pair % 250}.{1 + 16 * side + plane}" for plane in range(planes)]
    base = 20_000 + os.getpid() % 500 * 64 + pair % 2 * 32
    return [f"[::1]:{base + 16 * side + plane}" for plane in range(planes)]


@contextmanager
def joined(
    *,
    planes: int = 2,
    family: int = 4,
    attr: ContextAttr = SMALL,
    size: int = 1 << 16,
    faults: str | None = None,
    options: ConnectionOptions | None = None,
    **context_options: Any,
) -> Iterator[Pair]:
    """Yield a pair; `faults` are on what arrives at the second."""
    number = next(_PAIRS)
    chosen = options or ConnectionOptions(mpr=4, max_wimm=16, max_recv_wr=64, timeout=13, user_timeout=6.0)
    with ExitStack() as stack:
        first = stack.enter_context(Context(addresses(0, number, planes, family), attr, **context_options))
        second = stack.enter_context(Context(addresses(1, number, planes, family), attr, faults=faults))
        regions = tuple(each.alloc_pd().reg_mr(bytearray(size)) for each in (first, second))
        listener = stack.enter_context(Listener(second, "127.0.0.1", 0))
        accepted: list[Connection] = []
        thread = threading.Thread(
            target=lambda: accepted.append(listener.accept(regions=[regions[1]], options=chosen, timeout=20))
        )
        thread.start()
        here = connect(first, "127.0.0.1", listener.port, regions=[regions[0]], options=chosen, timeout=20)
        thread.join()
        yield Pair((first, second), (regions[0], regions[1]), (here, accepted[0]), listener.port)
