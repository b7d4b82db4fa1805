"""Small data that goes ahead of its receive: order, bounds, what it must not hold up."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from openmrc.train.errors import CollectiveMismatchError
from openmrc.train.execution import point_to_point
from openmrc.train.execution.point_to_point import AHEAD, Ahead
from openmrc.train.execution.work import Work
from openmrc.train.group import Group
from openmrc.train.links.frames import HEADER, INLINE, ControlFrame, FrameKind
from tests.train.ranks import outcomes, run

pytestmark = pytest.mark.needs("jit")
TRANSPORTS = pytest.mark.parametrize("options", [{}, {"shared_memory": True}], ids=["network", "shared"])
MANY = 3 * AHEAD // INLINE  # of the largest that go ahead: three times as many as may


def ahead_of(group: Group) -> Ahead:
    """Return the counters between two ranks."""
    return group._executor.p2p._ahead[1 - group.rank]


@TRANSPORTS
def test_a_small_send_is_done_before_its_receive_and_a_large_one_is_not(options: dict[str, Any]) -> None:
    def program(group: Group) -> None:
        if group.rank == 0:
            small, large = (group.send(np.ones(n, np.uint8), 1, async_op=True) for n in (INLINE, INLINE + 1))
            assert small.done()
            assert not large.done()
            group.barrier()
            large.wait()
        else:
            group.barrier()
            for length in (INLINE, INLINE + 1):
                out = np.zeros(length, np.uint8)
                group.recv(out, 0)
                assert out.all()

    run(2, program, **options)


@TRANSPORTS
def test_what_goes_ahead_is_bounded_holds_up_no_collective_and_keeps_its_order(options: dict[str, Any]) -> None:
    def program(group: Group) -> None:
        arrays = [np.full(INLINE + (n % 5 == 4), n if group.rank == 0 else 255, np.uint8) for n in range(MANY)]
        if group.rank == 0:
            works = [group.send(array, 1, async_op=True) for array in arrays]
            group.barrier()
        else:
            group.barrier()
            ahead = ahead_of(group)
            assert AHEAD - INLINE - HEADER < ahead.kept <= AHEAD
            works = [group.recv(array, 0, async_op=True) for array in arrays]
        for work in works:
            work.wait()
        assert all((array == n).all() for n, array in enumerate(arrays))
        assert ahead_of(group).kept == 0

    run(2, program, **options)


def test_a_rank_that_only_receives_reports_what_it_took() -> None:
    def program(group: Group) -> None:
        for n in range(MANY):
            array = np.full(INLINE, n if group.rank == 0 else 255, np.uint8)
            if group.rank == 0:
                group.send(array, 1)
            else:
                group.recv(array, 0)
                assert (array == n).all()
        group.barrier()
        counts = ahead_of(group)
        if group.rank == 0:
            assert counts.confirmed >= counts.sent - AHEAD
            assert counts.sent > AHEAD  # more than may go ahead went ahead, as receives took it

    run(2, program)


def test_receives_of_both_kinds_match_sends_of_one_tag_in_order() -> None:
    lengths = [3, INLINE + 3, 0, 5, 2 * INLINE, INLINE]

    def program(group: Group) -> None:
        arrays = [np.full(length, n + 1 if group.rank == 0 else 0, np.uint8) for n, length in enumerate(lengths)]
        if group.rank == 0:
            time.sleep(0.1)  # the large receives announce themselves before any send
        call = group.send if group.rank == 0 else group.recv
        works = [call(array, 1 - group.rank, async_op=True) for array in arrays]
        for work in works:
            work.wait()
        assert all((array == n + 1).all() for n, array in enumerate(arrays))

    run(2, program)


@pytest.mark.parametrize(("sent", "expected"), [(10, INLINE + 1), (INLINE + 1, 10), (10, 20)])
@pytest.mark.parametrize("late", [0, 1])
def test_a_receive_of_another_size_is_named_at_both_ends(sent: int, expected: int, late: int) -> None:
    def program(group: Group) -> None:
        if group.rank == late:
            time.sleep(0.1)
        if group.rank == 0:
            group.send(np.zeros(sent, np.uint8), 1)
            group.barrier()
        else:
            group.recv(np.zeros(expected, np.uint8), 0)

    for result in outcomes(2, program):
        assert isinstance(result, CollectiveMismatchError)
        assert f"rank 0 sends {sent:,} bytes, rank 1 expects {expected:,}" in str(result)


def test_a_delivery_without_an_offer_is_refused_and_leaves_no_receive_to_a_later_offer() -> None:
    def program(group: Group) -> None:
        if group.rank == 0:
            group.barrier()
            executor = group._executor
            with executor.progress.lock:
                executor.endpoint.links[1].send(ControlFrame(FrameKind.DELIVERED, sequence=1, elements=INLINE + 1))
            group.barrier()
        else:
            work = group.recv(np.zeros(INLINE + 1, np.uint8), 0, async_op=True)
            group.barrier()
            work.wait()

    for result in outcomes(2, program):
        assert isinstance(result, CollectiveMismatchError)
        assert "rank 0 delivered receive 1 but offered no send" in str(result)


def test_a_receive_from_any_rank_takes_what_came_first_and_leaves_other_tags() -> None:
    def program(group: Group) -> None:
        word = np.zeros(1, np.uint8)
        if group.rank == 0:
            group.recv(word, 2, tag=9)  # what rank 2 sent before it has come
            group.send(word, 1, tag=9)
            group.recv(word, 1, tag=9)
            out, works = np.zeros(3, np.uint8), []
            for n in range(3):
                works.append(group.recv(out[n : n + 1], tag=7))
            assert [work.source for work in works] == [2, 2, 1]
            assert out.tolist() == [20, 21, 10]
            group.recv(out[:1], 1, tag=8)
            assert out[0] == 18
        elif group.rank == 1:
            group.send(np.array([18], np.uint8), 0, tag=8)
            group.recv(word, 0, tag=9)
            group.send(np.array([10], np.uint8), 0, tag=7)
            group.send(word, 0, tag=9)
        else:
            group.send(np.array([20], np.uint8), 0, tag=7)
            group.send(np.array([21], np.uint8), 0, tag=7)
            group.send(word, 0, tag=9)

    run(3, program)


@pytest.mark.parametrize("by_each", [80, 101])
def test_what_no_call_matches_is_limited_by_rank(monkeypatch: pytest.MonkeyPatch, by_each: int) -> None:
    monkeypatch.setattr(point_to_point, "_MAX_UNMATCHED", 100)

    def program(group: Group) -> None:
        nothing = np.zeros(0, np.uint8)
        sends = [group.send(nothing, 0, async_op=True) for _ in range(by_each if group.rank else 0)]
        group.barrier()
        for n in range(2 * by_each if group.rank == 0 else 0):
            group.recv(nothing, n % 2 + 1)
        for send in sends:
            send.wait()

    for result in outcomes(3, program):
        if by_each <= 100:
            assert result is None
        else:
            assert isinstance(result, CollectiveMismatchError)
            assert "101 sends or receives without a matching call at rank 0" in str(result)


@TRANSPORTS
@pytest.mark.parametrize("count", [300, 2_000])
def test_sends_do_not_stand_behind_collectives_that_the_peer_has_not_begun(count: int, options: dict[str, Any]) -> None:
    """More than a peer keeps (`CALLS`), and more than may be queued for it before a call waits."""

    def program(group: Group) -> None:
        values = [np.full(10, each if group.rank == 0 else -1) for each in range(count)]
        small, large = np.arange(5), np.arange(1 << 18)

        def broadcast() -> list[Work]:
            return [group.broadcast(each, 0, async_op=True) for each in values]

        if group.rank == 0:
            works = broadcast()
            group.send(small, 1)
            group.send(large, 1)
            group.recv(np.zeros_like(large), 1)
        else:
            got = np.zeros_like(small)
            group.recv(got, 0)
            assert (got == small).all()
            got = np.zeros_like(large)
            group.recv(got, 0)
            assert (got == large).all()
            group.send(large, 0)
            works = broadcast()
        for each in works:
            each.wait()
        assert [int(each[0]) for each in values] == list(range(count))

    run(2, program, **options)


@TRANSPORTS
def test_collectives_do_not_stand_behind_sends_that_the_peer_has_not_received(options: dict[str, Any]) -> None:
    def program(group: Group) -> None:
        sends = 3_000
        values = [np.full(1 << 10, each) for each in range(sends)]
        works = [group.send(each, 1 - group.rank, async_op=True) for each in values]
        total = np.ones(1 << 18)
        group.all_reduce(total)
        assert (total == 2).all()
        for each in values:
            got = np.zeros_like(each)
            group.recv(got, 1 - group.rank)
            assert (got == each).all()
        for work in works:
            work.wait()

    run(2, program, timeout=60.0, **options)  # the last sends wait for all receives: 2 s on an idle machine
