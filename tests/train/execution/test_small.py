"""Small collectives: the same results, messages and errors as a general run, whichever way each rank goes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from openmrc.collectives.choice import Collective
from openmrc.train.errors import CollectiveMismatchError
from openmrc.train.execution.small import parts_of
from openmrc.train.group import Group
from openmrc.train.links.frames import INLINE
from openmrc.train.reduction import DType, Op
from tests.train.ranks import outcomes, run

pytestmark = pytest.mark.needs("jit")
KINDS = (
    Collective.ALL_REDUCE,
    Collective.REDUCE,
    Collective.BROADCAST,
    Collective.ALL_GATHER,
    Collective.REDUCE_SCATTER,
    Collective.ALL_TO_ALL,
)
ROOT = 1
IN_PLACE = frozenset({Collective.ALL_REDUCE, Collective.REDUCE, Collective.BROADCAST})


def small(group: Group, kind: Collective, given: Any, out: Any, op: Op, **options: Any) -> Any:
    """Make a call the short way."""
    plan = group.small_plan(kind, DType.FLOAT32, min(given.size, out.size) // min(parts_of(kind, group.size)), op, ROOT)
    assert plan is not None
    return group.run_small(plan, given.ctypes.data, out.ctypes.data, (given, out), **options)


def general(group: Group, kind: Collective, given: Any, out: Any, op: Op, **options: Any) -> Any:
    """Make the same call the general way."""
    calls = {
        Collective.ALL_REDUCE: lambda: group.all_reduce(out, op, **options),
        Collective.REDUCE: lambda: group.reduce(out, ROOT, op, **options),
        Collective.BROADCAST: lambda: group.broadcast(out, ROOT, **options),
        Collective.ALL_GATHER: lambda: group.all_gather(out, given, **options),
        Collective.REDUCE_SCATTER: lambda: group.reduce_scatter(out, given, op, **options),
        Collective.ALL_TO_ALL: lambda: group.all_to_all(out, given, **options),
    }
    return calls[kind]()


def arrays(group: Group, kind: Collective, count: int) -> tuple[Any, Any]:
    """Return input and output of this rank: numbers whose sum depends on the order of addition."""
    given_parts, out_parts = parts_of(kind, group.size)
    random = np.random.default_rng(group.rank)
    given = (random.standard_normal(count * given_parts) * 1e6 ** random.random(count * given_parts)).astype(np.float32)
    return given, given if kind in IN_PLACE else np.zeros(count * out_parts, np.float32)


@pytest.mark.parametrize("options", [{}, {"shared_memory": True}], ids=["network", "shared"])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_results_are_those_of_a_general_run_whoever_goes_which_way(size: int, options: dict[str, Any]) -> None:
    def program(group: Group) -> list[bytes]:
        results = []
        for kind in KINDS:
            for op in (Op.SUM, Op.AVG, Op.MAX):
                for way in (
                    (general,) * size,
                    (small,) * size,
                    (small, *(general,) * (size - 1)),
                    (general, *(small,) * (size - 1)),
                ):
                    given, out = arrays(group, kind, 33)
                    way[group.rank](group, kind, given, out, op)
                    results.append(out.tobytes())
        return results

    for results in run(size, program, **options):
        for first in range(0, len(results), 4):
            assert len(set(results[first : first + 4])) == 1


def test_many_at_once_keep_their_order_and_share_their_scratch() -> None:
    def program(group: Group) -> None:
        calls = [(kind, *arrays(group, kind, 5 + n % 3)) for n in range(60) for kind in KINDS]
        again = [(kind, given.copy(), None if out is given else out.copy()) for kind, given, out in calls]
        works = [small(group, kind, given, out, Op.SUM, async_op=True) for kind, given, out in calls]
        for work in works:
            work.wait()
        for (kind, _, out), (_, given, expected) in zip(calls, again, strict=True):
            expected = given if expected is None else expected
            general(group, kind, given, expected, Op.SUM)
            assert (out == expected).all()

    run(3, program, shared_memory=True)


@pytest.mark.parametrize(
    ("kind", "count", "is_small"),
    [
        (Collective.ALL_REDUCE, INLINE // 4, True),
        (Collective.ALL_REDUCE, INLINE // 4 + 1, False),
        (Collective.ALL_REDUCE, 0, False),
        (Collective.REDUCE_SCATTER, INLINE // 8, True),
        (Collective.REDUCE_SCATTER, INLINE // 8 + 1, False),
        (Collective.ALL_TO_ALL, INLINE // 4, True),
        (Collective.ALL_TO_ALL, INLINE // 4 + 1, False),
    ],
)
def test_what_is_small(kind: Collective, count: int, is_small: bool) -> None:
    def program(group: Group) -> bool:
        return group.small_plan(kind, DType.FLOAT32, count) is not None

    assert run(2, program) == [is_small] * 2


@pytest.mark.parametrize("ways", [(small, small), (small, general), (general, small)])
@pytest.mark.parametrize("other", [8, INLINE // 4, INLINE])
def test_parts_of_another_size_are_named(ways: Any, other: int) -> None:
    if other > INLINE // 4:
        ways = tuple(way if rank == 0 else general for rank, way in enumerate(ways))

    def program(group: Group) -> None:
        given, out = arrays(group, Collective.ALL_TO_ALL, 6 if group.rank == 0 else other)
        ways[group.rank](group, Collective.ALL_TO_ALL, given, out, Op.SUM)

    for result in outcomes(2, program):
        assert isinstance(result, CollectiveMismatchError)
        assert "all_to_all: rank" in str(result)
        assert f"{other:,}" in str(result)


def test_another_call_is_named() -> None:
    def program(group: Group) -> None:
        given, out = arrays(group, Collective.ALL_REDUCE, 6)
        small(group, Collective.ALL_REDUCE, given, out, Op.SUM if group.rank else Op.MAX)

    for result in outcomes(2, program):
        assert isinstance(result, CollectiveMismatchError)
        assert "called all_reduce SUM of 6 float32" in str(result)
        assert "called all_reduce MAX of 6 float32" in str(result)
