import functools
import queue
import threading
import time
from typing import Any

import numpy as np
import pytest

from openmrc.collectives import choice
from openmrc.train.errors import UnsupportedError
from openmrc.train.group import Group
from openmrc.train.reduction import NUMPY, DType, Op
from tests.train.ranks import run

SIZES = (0, 1, 5, 2048, 70_001, 600_000)  # elements: in frames, in one chunk, in many


def ramp(rank: Any, count: Any, dtype: Any = np.float32) -> Any:
    return (np.arange(count) % 251 + rank).astype(dtype)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_collectives_give_every_rank_what_they_say(ranks: Any) -> None:
    def program(group: Group) -> None:
        me, all_ranks = group.rank, range(ranks)
        for count in SIZES:
            array = ramp(me, count)
            group.all_reduce(array)
            np.testing.assert_allclose(array, sum(ramp(rank, count, np.float64) for rank in all_ranks))

            given, out = ramp(me, count), np.zeros(count, np.float32)
            group.all_reduce(given, Op.MAX, out=out)
            np.testing.assert_array_equal(out, ramp(ranks - 1, count))
            np.testing.assert_array_equal(given, ramp(me, count))

            root = count % ranks
            array = ramp(me, count, np.int64)
            group.broadcast(array, root)
            np.testing.assert_array_equal(array, ramp(root, count, np.int64))

            array = ramp(me, count, np.int32)
            group.reduce(array, root)
            expected = sum(ramp(rank, count, np.int32) for rank in all_ranks) if me == root else ramp(me, count)
            np.testing.assert_array_equal(array, expected)

            out = np.zeros((ranks, count), np.int16)
            group.all_gather(out, ramp(me, count, np.int16))
            np.testing.assert_array_equal(out, [ramp(rank, count, np.int16) for rank in all_ranks])

            out = np.zeros(count, np.float64)
            parts = np.concatenate([ramp(me + 10 * part, count, np.float64) for part in all_ranks])
            group.reduce_scatter(out, parts)
            np.testing.assert_array_equal(out, sum(ramp(rank + 10 * me, count, np.float64) for rank in all_ranks))

            out = np.zeros(ranks * count, np.uint8)
            group.all_to_all(out, np.repeat(np.arange(ranks, dtype=np.uint8) + 10 * me, count))
            np.testing.assert_array_equal(out, np.repeat(np.arange(ranks) * 10 + me, count))

            gathered = np.zeros((ranks, count), np.float32) if me == root else None
            group.gather(ramp(me, count), gathered, root)
            if me == root:
                np.testing.assert_array_equal(gathered, [ramp(rank, count) for rank in all_ranks])

            out = np.zeros(count, np.float32)
            given = np.concatenate([ramp(rank, count) for rank in all_ranks]) if me == root else None
            group.scatter(out, given, root)
            np.testing.assert_array_equal(out, ramp(me, count))
            group.barrier()

    run(ranks, program)


@pytest.mark.parametrize("ranks", [3, 4])
def test_rings_and_trees_give_the_same_among_many_ranks(ranks: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(choice, "MANY", 1)  # as if these were more than may talk to all others at once
    test_collectives_give_every_rank_what_they_say(ranks)


def test_a_rank_that_runs_far_ahead_is_held_back() -> None:
    def program(group: Group) -> None:
        if group.rank == 2:
            time.sleep(1)  # the others cannot end the barrier, while rank 0 continues
        works = [group.barrier(async_op=True)]
        arrays = [np.full(100, n if group.rank == 0 else -1, np.int64) for n in range(1500)]
        works += [group.broadcast(array, 0, async_op=True) for array in arrays]
        for work in works:
            work.wait()
        assert all((array == n).all() for n, array in enumerate(arrays))

    run(3, program)


def test_a_callback_may_begin_the_next_collective() -> None:
    def program(group: Group) -> None:
        arrays = [np.ones(50_000, np.float32) for _ in range(20)]
        works: list[Any] = []

        def go_on(work: Any = None) -> None:
            if len(works) < len(arrays):
                works.append(group.all_reduce(arrays[len(works)], async_op=True))
                works[-1].add_done_callback(go_on)

        go_on()
        deadline = time.monotonic() + 10
        while not (len(works) == len(arrays) and works[-1].done()) and time.monotonic() < deadline:
            time.sleep(0.005)
        assert all((array == 2).all() for array in arrays)

    run(2, program)


def test_a_callback_that_waits_is_refused_instead_of_hanging() -> None:
    is_added = threading.Event()
    refusals: queue.Queue[str] = queue.Queue()

    def program(group: Group) -> None:
        def callback(_: Any) -> None:
            try:
                group.barrier()
            except UnsupportedError as error:
                refusals.put(str(error))

        if group.rank == 1:  # comes once the other has its callback: of a call that is over it runs in the caller
            assert is_added.wait(10)
            group.all_reduce(np.ones(3))
            return
        group.all_reduce(np.ones(3), async_op=True).add_done_callback(callback)
        is_added.set()
        assert "must not wait" in refusals.get(timeout=10)

    run(2, program)


def test_lists_of_arrays_are_written_in_place() -> None:
    def program(group: Group) -> None:
        outs = [np.zeros((3, 50_000), np.float32) for _ in range(3)]
        group.all_gather(outs, np.full((3, 50_000), group.rank, np.float32))
        assert [out[0, 0] for out in outs] == [0, 1, 2]
        out = np.zeros(1000, np.float32)
        group.reduce_scatter(out, [np.full(1000, group.rank + part, np.float32) for part in range(3)])
        assert (out == 3 + 3 * group.rank).all()

    run(3, program)


@pytest.mark.parametrize("sizes", [(0, 1, 2029), (2029, 2030, 1), (5, 70_000, 0)])
def test_parts_of_an_all_to_all_that_fit_into_a_frame_and_others_arrive(sizes: tuple[int, int, int]) -> None:
    def program(group: Group) -> list[float]:
        ranks, me = range(3), group.rank
        counts = [[sizes[(source + target) % 3] for target in ranks] for source in ranks]
        given = np.concatenate([np.full(counts[me][each], 10 * me + each, np.float32) for each in ranks])
        incoming = [counts[each][me] for each in ranks]
        out = np.empty(sum(incoming), np.float32)
        group.all_to_all(out, given, in_splits=counts[me], out_splits=incoming)
        return [bool((out == np.concatenate([np.full(incoming[s], 10 * s + me, np.float32) for s in ranks])).all())]

    assert run(3, program) == [[True]] * 3


def test_an_uneven_all_to_all_moves_what_the_splits_say() -> None:
    def program(group: Group) -> None:
        me, ranks = group.rank, range(group.size)
        splits = [40_000 * (me + target) for target in ranks]
        array = np.concatenate([np.full(n, 10 * me + target, np.int32) for target, n in enumerate(splits)])
        incoming = [40_000 * (source + me) for source in ranks]
        out = np.zeros(sum(incoming), np.int32)
        group.all_to_all(out, array, in_splits=splits, out_splits=incoming)
        np.testing.assert_array_equal(out, np.repeat([10 * source + me for source in ranks], incoming))

    run(3, program)


def test_arrays_that_are_not_contiguous_are_read_and_written() -> None:
    def program(group: Group) -> None:
        array = np.full((100, 600), group.rank, np.float32)
        group.all_reduce(array[:, ::2])
        assert (array[:, ::2] == 1).all()
        assert (array[:, 1::2] == group.rank).all()

    run(2, program)


FLOATS = [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64]
INTEGERS = [kind for kind in DType if kind not in FLOATS]


@pytest.mark.parametrize("dtype", list(DType))
def test_every_type_is_reduced_by_every_operation_that_it_has(dtype: Any) -> None:
    ops = [Op.SUM, Op.AVG, Op.PRODUCT, Op.MIN, Op.MAX] if dtype in FLOATS else list(Op)
    if dtype == DType.BOOL:
        ops.remove(Op.AVG)

    def values(rank: Any, count: Any) -> Any:
        small = np.arange(count) % 3 + 1 + rank
        if dtype == DType.BFLOAT16:
            return (small.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        return (small % 2 if dtype == DType.BOOL else small).astype(NUMPY[dtype])

    def number(array: Any) -> Any:
        return (array.astype(np.uint32) << 16).view(np.float32) if dtype == DType.BFLOAT16 else array

    def program(group: Group) -> None:
        for op in ops:
            for count in (7, 50_000):
                array = values(group.rank, count)
                group.all_reduce(array, op, dtype=dtype)
                np.testing.assert_array_equal(number(array), expected(op, [number(values(r, count)) for r in (0, 1)]))

    def expected(op: Any, inputs: Any) -> Any:
        a, b = inputs
        named: dict[Op, Any] = {Op.MIN: np.minimum, Op.MAX: np.maximum, Op.BAND: np.bitwise_and, Op.BOR: np.bitwise_or}
        named |= {Op.BXOR: np.bitwise_xor, Op.SUM: np.add, Op.PRODUCT: np.multiply, Op.AVG: np.add}
        result = named[op](a, b)
        return (result / 2).astype(result.dtype) if op == Op.AVG else result  # positive: rounds towards zero

    run(2, program)


def test_all_ranks_get_the_same_bits_and_get_them_again() -> None:
    def program(group: Group) -> Any:
        results = []
        for _ in range(3):
            for count in (100, 300_000):
                array = np.random.default_rng(group.rank).standard_normal(count).astype(np.float32)
                group.all_reduce(array)
                results.append(array.tobytes())
        return results

    first, *others = run(4, program)
    assert all(other == first for other in others)
    assert first[:2] == first[2:4] == first[4:]


def test_collectives_begun_together_end_in_the_order_of_their_calls() -> None:
    def program(group: Group) -> None:
        arrays = [np.full(1 + 30_000 * (n % 3), group.rank, np.int64) for n in range(30)]
        order: list[int] = []
        works = [group.all_reduce(array, async_op=True) for array in arrays]

        def note(n: int, _: Any) -> None:
            order.append(n)

        for n, work in enumerate(works):
            work.add_done_callback(functools.partial(note, n))
        for work in reversed(works):
            work.wait()
        assert all((array == 1).all() for array in arrays)
        assert order == sorted(order)

    run(2, program)


def test_what_nobody_waits_for_is_done_all_the_same() -> None:
    def program(group: Group) -> None:
        work = group.all_reduce(np.ones(400_000), async_op=True)
        deadline = time.monotonic() + 10
        while not work.done() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert work.done()

    run(2, program)


def test_sends_and_receives_match_by_tag_whoever_comes_first() -> None:
    def program(group: Group) -> None:
        big, small = np.arange(300_000, dtype=np.float32), np.arange(5, dtype=np.int16)
        if group.rank == 0:
            works = [group.send(big, 1, 7, async_op=True), group.send(small, 1, (1 << 16) + 7, async_op=True)]
            for work in works:
                work.wait()
        else:
            got_small, got_big = np.zeros_like(small), np.zeros_like(big)
            group.recv(got_small, 0, (1 << 16) + 7)
            group.recv(got_big, 0, 7)
            np.testing.assert_array_equal(got_small, small)
            np.testing.assert_array_equal(got_big, big)

    run(2, program)


def test_more_sends_than_a_send_queue_holds_wait_for_room() -> None:
    def program(group: Group) -> None:
        arrays = [np.full(5000, n if group.rank == 0 else -1, np.int32) for n in range(600)]
        call = group.send if group.rank == 0 else group.recv
        works = [call(array, 1 - group.rank, async_op=True) for array in arrays]
        for work in works:
            work.wait()
        assert all((array == n).all() for n, array in enumerate(arrays))

    run(2, program)


def test_a_receive_from_anyone_says_from_whom() -> None:
    def program(group: Group) -> None:
        if group.rank:
            group.send(np.full(20_000, group.rank, np.int32), 0)
            return
        sources = set()
        for _ in range(2):
            array = np.zeros(20_000, np.int32)
            work = group.recv(array)
            assert (array == work.source).all()
            sources.add(work.source)
        assert sources == {1, 2}

    run(3, program)


def test_a_broadcast_that_runs_ahead_waits_for_room() -> None:
    def program(group: Group) -> None:
        works = []
        for n in range(3000):
            array = np.full(2, n if group.rank == 0 else 0, np.int64)
            works.append((n, array, group.broadcast(array, 0, async_op=True)))
            if group.rank == 1 and n == 0:
                time.sleep(0.5)
        for n, array, work in works:
            work.wait()
            assert array[0] == n

    run(2, program)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda group: group.all_reduce(np.zeros(3, np.complex64)), "complex64"),
        (lambda group: group.all_reduce(np.zeros(3, np.float32), Op.BXOR), "BXOR is for integers"),
        (lambda group: group.all_reduce(np.zeros(3, np.bool_), Op.AVG), "AVG is for numbers"),
        (lambda group: group.broadcast(np.zeros(3), 5), "root: rank 5 is not in 0..1"),
        (lambda group: group.send(np.zeros(3), group.rank), "is this rank"),
        (lambda group: group.send(np.zeros(3), 1 - group.rank, tag=1 << 32), "tag: 4294967296"),
        (lambda group: group.all_gather(np.zeros(5), np.zeros(3)), "expected 2 x 3"),
        (lambda group: group.all_gather([np.zeros(3)] * 2, np.zeros(3)), "out: the arrays for ranks 0 and 1 are"),
        (lambda group: group.all_to_all([np.zeros(3)] * 2, [np.zeros(3)] * 2), "out: the arrays for ranks 0 and 1 are"),
        (lambda group: group.all_to_all(np.zeros(5), np.zeros(4)), "5 elements do not divide into 2 equal parts"),
        (lambda group: group.all_to_all(np.zeros(4), np.zeros(4), in_splits=[1, 2]), "in_splits"),
        (lambda group: group.broadcast(np.broadcast_to(np.zeros(1), 4), 0), "read-only"),
    ],
)
def test_wrong_arguments_are_refused_and_leave_the_group_usable(call: Any, says: Any) -> None:
    def program(group: Group) -> None:
        with pytest.raises(UnsupportedError, match=says):
            call(group)
        group.barrier()

    run(2, program)
