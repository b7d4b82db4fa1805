"""Any calls in any groups, all begun before any is awaited, in an order of each rank's own: NumPy's results."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openmrc.collectives.choice import Collective
from openmrc.train.execution.work import Work
from openmrc.train.group import Group
from openmrc.train.reduction import Op
from tests.train.ranks import MemoryStore, run

pytestmark = pytest.mark.needs("jit")
REFERENCE: dict[Op, Any] = {
    Op.SUM: np.add.reduce,
    Op.AVG: lambda each: each.sum(0) // len(each),  # of positive numbers
    Op.PRODUCT: np.multiply.reduce,
    Op.MIN: np.minimum.reduce,
    Op.MAX: np.maximum.reduce,
    Op.BAND: np.bitwise_and.reduce,
    Op.BOR: np.bitwise_or.reduce,
    Op.BXOR: np.bitwise_xor.reduce,
}


@dataclass(frozen=True)
class Drawn:
    """A call, of `count` elements a part, in the group of that number; the root is taken modulo the size."""

    group: int
    kind: Collective
    op: Op
    count: int
    root: int


@dataclass(frozen=True)
class Example:
    ranks: int
    groups: list[list[int]]  # ranks of each, the first of all
    calls: list[Drawn]
    seed: int  # of the order in which each rank makes the calls of different groups


@st.composite
def examples(draw: st.DrawFn) -> Example:
    ranks = draw(st.integers(2, 12))
    subsets = st.lists(st.sets(st.integers(0, ranks - 1), min_size=2).map(sorted), max_size=2)
    groups = [list(range(ranks)), *draw(subsets)]
    count = st.sampled_from([1, 7, 1_023, 8_192, 8_193, 20_000, 70_000]) | st.integers(1, 3_000)
    call = st.builds(
        Drawn,
        st.integers(0, len(groups) - 1),
        st.sampled_from(Collective),
        st.sampled_from(Op),
        count,
        st.integers(0, 11),
    )
    return Example(ranks, groups, draw(st.lists(call, min_size=1, max_size=12)), draw(st.integers(0, 1 << 16)))


def part(call: int, rank: int, index: int, count: int) -> Any:
    """Return what a rank gives in part `index` of a call."""
    return ((np.arange(count) * (rank + 3) + 7 * call + index) % 11 + 1).astype(np.int64)


def parts(call: int, rank: int, size: int, count: int) -> Any:
    return np.concatenate([part(call, rank, index, count) for index in range(size)])


def begin(group: Group, number: int, call: Drawn) -> tuple[Work, Any, Any]:
    """Begin a call; return its work, where its result will be and what that must be then, or None and None."""
    rank, size, count = group.rank, group.size, call.count
    root, every = call.root % size, range(size)
    own = part(number, rank, 0, count)
    total = REFERENCE[call.op](np.stack([part(number, each, 0, count) for each in every]))
    joined = np.concatenate([part(number, each, 0, count) for each in every])
    mine = [part(number, each, rank, count) for each in every]
    out, long = np.zeros(count, np.int64), np.zeros(size * count, np.int64)
    given, is_root = parts(number, rank, size, count), rank == root
    match call.kind:
        case Collective.ALL_REDUCE:
            return group.all_reduce(own, call.op, async_op=True), own, total
        case Collective.REDUCE:
            return group.reduce(own, root, call.op, async_op=True), own, total if is_root else own.copy()
        case Collective.BROADCAST:
            return group.broadcast(own, root, async_op=True), own, part(number, root, 0, count)
        case Collective.ALL_GATHER:
            return group.all_gather(long, own, async_op=True), long, joined
        case Collective.REDUCE_SCATTER:
            return group.reduce_scatter(out, given, call.op, async_op=True), out, REFERENCE[call.op](np.stack(mine))
        case Collective.ALL_TO_ALL:
            return group.all_to_all(long, given, async_op=True), long, np.concatenate(mine)
        case Collective.GATHER:
            return group.gather(own, long, root, async_op=True), long, joined if is_root else np.zeros_like(long)
        case Collective.SCATTER:
            return group.scatter(out, given, root, async_op=True), out, part(number, root, rank, count)
        case Collective.BARRIER:
            return group.barrier(async_op=True), None, None


def ordered(example: Example, rank: int) -> list[int]:
    """Return the calls of a rank: those of a group in their order, the groups mixed in one of its own."""
    order = random.Random(example.seed + rank)
    queues = [
        [number for number, call in enumerate(example.calls) if call.group == group]
        for group, ranks in enumerate(example.groups)
        if rank in ranks
    ]
    result = []
    while queues := [each for each in queues if each]:
        result.append(order.choice(queues).pop(0))
    return result


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(example=examples())
def test_any_calls_give_what_numpy_computes(example: Example) -> None:
    store = MemoryStore()

    def program(world: Group) -> None:
        groups = {0: world}
        for number, ranks in enumerate(example.groups[1:], 1):
            if world.rank in ranks:
                own, name = ranks.index(world.rank), f"{world.name}/{number}"
                groups[number] = Group(
                    store, own, len(ranks), context=world.context, name=name, timeout=30.0, shared_memory=True
                )
        pending = [
            (call, *begin(groups[call.group], number, call))
            for number in ordered(example, world.rank)
            for call in example.calls[number : number + 1]
        ]
        for call, work, got, expected in pending:
            work.wait()
            np.testing.assert_array_equal(got, expected, f"rank {world.rank}, {call}")
        world.barrier()
        for number in range(1, len(example.groups)):
            if number in groups:
                groups[number].close()

    run(example.ranks, program, shared_memory=True, timeout=30.0)
