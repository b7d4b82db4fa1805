"""How the relay waits: it polls where the wait before was short and nobody else wants the processor."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

import pytest

from openmrc.conform.media import medium
from openmrc.conform.media.medium import Readiness

MS = 1_000_000  # ns


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        yield one, other


@pytest.fixture
def yields(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Offers of the processor so far; looks take no time that counts, however busy the host."""
    seen: list[int] = []
    monkeypatch.setattr(medium, "CROWDED", 1_000 * MS)
    monkeypatch.setattr(os, "sched_yield", lambda: seen.append(1))
    return seen


def test_what_is_there_is_found_at_once(ends: tuple[socket.socket, socket.socket], yields: list[int]) -> None:
    watch = Readiness([ends[0].fileno()], [])
    ends[1].send(b"x")
    for polls in (False, True):
        assert watch.wait(time.monotonic_ns() + 1_000 * MS, polls) == [ends[0].fileno()]
    assert (watch.polls, watch.now(), yields) == (1, [ends[0].fileno()], [])


def test_a_poll_that_brought_nothing_is_the_last_until_a_wait_is_short(
    ends: tuple[socket.socket, socket.socket], yields: list[int]
) -> None:
    watch = Readiness([ends[0].fileno()], [])
    assert watch.wait(time.monotonic_ns() + 5 * MS, polls=True) == []
    polled = len(yields)
    assert polled > 0
    assert watch.wait(time.monotonic_ns() + MS, polls=True) == []
    assert len(yields) == polled
    ends[1].send(b"x")
    watch.wait(time.monotonic_ns() + MS, polls=True)
    assert watch.polls == 0  # it slept
    watch.wait(time.monotonic_ns() + MS, polls=True)
    assert watch.polls == 1


def test_a_poll_ends_when_others_want_the_processor_and_the_next_waits_sleep(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(medium, "CROWDED", -1)  # every look finds that somebody had it
    watch = Readiness([ends[0].fileno()], [], longest_poll=1_000 * MS)
    assert watch.wait(time.monotonic_ns() + MS, polls=True) == []
    ends[1].send(b"x")
    for slept in range(5):
        watch.wait(time.monotonic_ns() + MS, polls=True)
        assert watch.polls == max(slept - 1, 0)  # the wait before the first was long, the second is the pause


def test_a_wait_that_may_not_poll_sleeps(ends: tuple[socket.socket, socket.socket], yields: list[int]) -> None:
    assert Readiness([ends[0].fileno()], [], longest_poll=0).wait(time.monotonic_ns() + MS, polls=True) == []
    assert Readiness([ends[0].fileno()], []).wait(time.monotonic_ns() + MS) == []
    assert yields == []
