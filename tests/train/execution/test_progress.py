"""What was accepted progresses without another call: a rank that computes after a call delays no other rank."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from openmrc.train.execution import progress
from openmrc.train.execution.work import Work
from openmrc.train.group import Group
from openmrc.train.links.frames import INLINE
from openmrc.train.links.mailbox import CHUNKS, FRAMES, ImmediateKind, RankLink
from tests.train.ranks import run

RANKS = 3
NOTICED = 5.0  # s that the computing rank gives the others
Call = Callable[[Group, int, bool], Work]


def array(length: int) -> Any:
    return np.zeros(length, np.uint8)


def per_rank(length: int) -> Any:
    return np.zeros(RANKS * length, np.uint8)


KINDS: dict[str, Call] = {
    "all_reduce": lambda g, n, a: g.all_reduce(array(n), async_op=a),
    "reduce": lambda g, n, a: g.reduce(array(n), 0, async_op=a),
    "broadcast": lambda g, n, a: g.broadcast(array(n), 0, async_op=a),
    "all_gather": lambda g, n, a: g.all_gather(per_rank(n), array(n), async_op=a),
    "reduce_scatter": lambda g, n, a: g.reduce_scatter(array(n), per_rank(n), async_op=a),
    "all_to_all": lambda g, n, a: g.all_to_all(per_rank(n), per_rank(n), async_op=a),
    "gather": lambda g, n, a: g.gather(array(n), per_rank(n) if g.rank == 0 else None, 0, async_op=a),
    "scatter": lambda g, n, a: g.scatter(array(n), per_rank(n) if g.rank == 0 else None, 0, async_op=a),
    "barrier": lambda g, _, a: g.barrier(async_op=a),
    "send": lambda g, n, a: transfer(g, n, a),
}


def transfer(group: Group, length: int, is_async: bool) -> Work:
    """Send from rank 0 to rank 1; the others do nothing."""
    if group.rank == 0:
        return group.send(array(length), 1, async_op=is_async)
    if group.rank == 1:
        return group.recv(array(length), 0, async_op=is_async)
    done = Work(group._executor.progress.wait)
    done.finish()
    return done


class Phase:
    """One kind of call: the busy rank waits, without a call, until the others have finished theirs."""

    def __init__(self) -> None:
        self.begin = threading.Barrier(RANKS)
        self.finished = threading.Semaphore(0)


def others_finish(group: Group, phase: Phase, busy: int, calls: int, call: Callable[[], Work], is_async: bool) -> bool:
    phase.begin.wait(30)
    works = [call() for _ in range(calls)]
    if group.rank != busy:
        for work in works if is_async else ():
            work.wait()
        phase.finished.release()
        has_noticed = False
    else:
        has_noticed = not all(phase.finished.acquire(timeout=NOTICED) for _ in range(RANKS - 1))
        for work in works if is_async else ():
            work.wait()
    phase.begin.wait(30)
    return has_noticed


def noticed(kinds: list[str], length: int, counts: tuple[int, ...], busy: int) -> list[tuple[str, int, bool]]:
    """Return the (kind, count, is_async) after which a rank other than `busy` waited for it."""
    cases = [(kind, count, is_async) for kind in kinds for count in counts for is_async in (False, True)]
    phases = [Phase() for _ in cases]

    def program(group: Group) -> list[bool]:
        return [
            others_finish(group, phase, busy, count, partial(KINDS[kind], group, length, is_async), is_async)
            for phase, (kind, count, is_async) in zip(phases, cases, strict=True)
        ]

    results = run(RANKS, program, timeout=60.0)
    return [case for case, has in zip(cases, results[busy], strict=True) if has]


@pytest.mark.parametrize("busy", [0, 1])
def test_a_rank_that_computes_after_many_small_calls_delays_no_other(busy: int) -> None:
    assert noticed(list(KINDS), 64, (3 * FRAMES,), busy) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("busy", [0, 1, 2])
@pytest.mark.parametrize("length", [1, INLINE, INLINE + 1, 300_000, 3 << 20])
def test_no_number_of_calls_round_the_credits_delays_another_rank(length: int, busy: int) -> None:
    most = 3 if length > INLINE else 2 * FRAMES + 1
    counts = (1, 2, 3) if most == 3 else (1, 7, 8, 9, *(n * FRAMES + d for n in (1, 2) for d in (-1, 0, 1)))
    assert noticed(list(KINDS), length, counts, busy) == []


def test_credits_of_single_chunks_travel_with_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    alone: list[ImmediateKind] = []
    post = RankLink._post

    def counted(link: RankLink, part: Any, address: int, key: int, signal: ImmediateKind) -> None:
        alone.extend([signal] if signal == ImmediateKind.CREDIT else [])
        post(link, part, address, key, signal)

    monkeypatch.setattr(RankLink, "_post", counted)

    def program(group: Group) -> list[bool]:
        arrays = [np.full(INLINE + 1, n if group.rank == 0 else 255, np.uint8) for n in range(3 * CHUNKS)]
        for array in arrays:
            group.broadcast(array, 0)
        return [bool((array == n).all()) for n, array in enumerate(arrays)]

    assert run(2, program) == [[True] * 3 * CHUNKS] * 2
    assert alone == []


def test_more_calls_than_may_wait_for_credits_wait_themselves_and_lose_nothing() -> None:
    goes_on = threading.Event()

    def program(group: Group) -> int:
        if group.rank == 0:
            for number in range(1500):
                if number == 1000:
                    goes_on.set()
                group.broadcast(np.full(8, number), 0)
            return 1500
        assert goes_on.wait(10)
        given = np.zeros(8, np.int64)
        right = 0
        for number in range(1500):
            group.broadcast(given, 0)
            right += bool((given == number).all())
        return right

    assert run(2, program, timeout=30.0) == [1500, 1500]


def test_a_group_that_is_closed_delivers_what_it_accepted() -> None:
    closing = threading.Event()

    def program(group: Group) -> Any:
        if group.rank == 0:
            for number in range(200):
                group.broadcast(np.full(8, number), 0)
            closing.set()
            return None
        assert closing.wait(10)
        given = np.zeros(8, np.int64)
        for _ in range(200):
            group.broadcast(given, 0)
        return given[0]

    assert run(2, program, timeout=30.0) == [None, 199]


def test_what_is_there_is_taken_between_two_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "TICK", 0.0)  # as for a thread that is starved: each time a check is due
    steps: list[str] = []

    class Queue:
        def wait(self, timeout: float, n: int = 16) -> list[Any]:
            return []

    class Steps:
        def on_completions(self, completions: list[Any]) -> None:
            steps.append("take")

        def check(self) -> None:
            steps.append("check")

        def is_idle(self) -> bool:
            return True

        def on_error(self, error: BaseException) -> None:
            raise error

    driver = progress.ProgressDriver(Queue(), Steps())
    assert driver.until(lambda: len(steps) >= 4, time.monotonic() + 10)
    assert steps == ["check", "take", "check", "take"]
