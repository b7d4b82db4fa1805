from __future__ import annotations

import secrets
import threading
import time
from typing import Any

import pytest

from openmrc.train.errors import RendezvousError
from openmrc.train.links import introduction
from openmrc.train.links.introduction import LocalListener, agree, connect_local, host_identity
from openmrc.train.links.segment import map_incoming


def introduce(size: int) -> list[list[int]]:
    """Return for each of `size` ranks with which others it agreed."""
    nonces = [secrets.token_hex(8) for _ in range(size)]
    listeners = [LocalListener(nonce) for nonce in nonces]
    agreed: list[Any] = [None] * size

    def one(rank: int) -> None:
        dialled = {other: connect_local(nonces[other]) for other in range(rank)}
        callers = range(rank + 1, size)
        pairs = agree(rank, dialled, callers, listeners[rank], time.monotonic() + 5)  # type: ignore[arg-type]
        agreed[rank] = sorted(pair.rank for pair in pairs)
        for pair in pairs:
            pair.close()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    for listener in listeners:
        listener.close()
    return agreed


def test_all_ranks_of_a_host_agree() -> None:
    assert introduce(4) == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]


def test_ranks_stay_on_the_network_if_one_end_cannot_use_the_other_s_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    first = threading.Event()

    def fail_once(descriptor: int, size: int) -> Any:
        if not first.is_set():
            first.set()
            size += 1
        return map_incoming(descriptor, size)

    monkeypatch.setattr(introduction, "map_incoming", fail_once)
    assert introduce(2) == [[], []]


def test_a_rank_that_does_not_introduce_itself_ends_the_rendezvous_in_time() -> None:
    listener = LocalListener(secrets.token_hex(8))
    with pytest.raises(RendezvousError, match="did not introduce itself"):
        agree(0, {}, [1], listener, time.monotonic() + 0.1)
    listener.close()


def test_a_host_that_does_not_share_memory_has_no_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    assert host_identity() == host_identity() != ""
    monkeypatch.setenv("MRC_SHARED_MEMORY", "0")
    assert host_identity() == ""
    assert connect_local("nobody listens here") is None
