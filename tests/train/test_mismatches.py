"""Two ranks that call different things: both learn it, whatever the difference, whoever is first, on both ways."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from openmrc.train.errors import CollectiveMismatchError
from openmrc.train.group import Group
from openmrc.train.reduction import Op
from tests.train.ranks import outcomes

pytestmark = pytest.mark.needs("jit")
Make = Callable[[Group, int], Any]  # a call of about that many elements


def ones(count: int, dtype: str = "f4") -> Any:
    return np.ones(count, dtype)


def to_all(group: Group, count: int, sent: tuple[int, int], got: tuple[int, int]) -> None:
    """Exchange parts of so many times `count` elements."""
    group.all_to_all(
        ones(sum(got) * count),
        ones(sum(sent) * count),
        in_splits=[each * count for each in sent],
        out_splits=[each * count for each in got],
    )


# Where neither rank waits for the other, each of them passes, and finds out from the frame that is late.
NOBODY_WAITS: dict[str, tuple[Make, Make]] = {
    "broadcast from itself": (lambda g, n: g.broadcast(ones(n), 0), lambda g, n: g.broadcast(ones(n), 1)),
    "reduce to the other": (lambda g, n: g.reduce(ones(n), 1), lambda g, n: g.reduce(ones(n), 0)),
    "broadcast and reduce": (lambda g, n: g.broadcast(ones(n), 0), lambda g, n: g.reduce(ones(n), 0)),
    "of other sizes": (lambda g, n: g.broadcast(ones(n), 0), lambda g, n: g.reduce(ones(n + 5), 0)),
    "scatter and gather": (
        lambda g, n: g.scatter(ones(n), ones(2 * n), 0),
        lambda g, n: g.gather(ones(n), None, 0),
    ),
    "gather and broadcast": (lambda g, n: g.gather(ones(n), None, 1), lambda g, n: g.broadcast(ones(n), 1)),
    "a part that is not expected": (
        lambda g, n: to_all(g, n, (1, 1), (1, 0)),
        lambda g, n: to_all(g, n, (1, 1), (1, 1)),
    ),
}
ONE_WAITS: dict[str, tuple[Make, Make]] = {
    "count": (lambda g, n: g.broadcast(ones(n), 0), lambda g, n: g.broadcast(ones(n + 1), 0)),
    "type": (lambda g, n: g.broadcast(ones(n), 0), lambda g, n: g.broadcast(ones(n, "i4"), 0)),
    "operation": (lambda g, n: g.all_reduce(ones(n)), lambda g, n: g.all_reduce(ones(n), Op.MAX)),
    "kind": (lambda g, n: g.all_reduce(ones(n)), lambda g, n: g.all_gather(ones(2 * n), ones(n))),
    "reduce and scatter": (lambda g, n: g.reduce(ones(n), 1), lambda g, n: g.scatter(ones(n), ones(2 * n), 0)),
    "nothing and something": (lambda g, n: g.all_reduce(ones(0)), lambda g, n: g.all_reduce(ones(n))),
    "barrier": (lambda g, n: g.barrier(), lambda g, n: g.broadcast(ones(n), 1)),
    "reduce_scatter": (
        lambda g, n: g.reduce_scatter(ones(n), ones(2 * n)),
        lambda g, n: g.reduce_scatter(ones(n), ones(2 * n), Op.MIN),
    ),
}
BOTH_WAIT: dict[str, tuple[Make, Make]] = {
    "broadcast from the other": (lambda g, n: g.broadcast(ones(n), 1), lambda g, n: g.broadcast(ones(n), 0)),
    "scatter and broadcast": (lambda g, n: g.scatter(ones(n), None, 1), lambda g, n: g.broadcast(ones(n), 0)),
}
TABLE = NOBODY_WAITS | ONE_WAITS | BOTH_WAIT
SIZES = (8, 40_000, 400_000)  # elements: in a frame, through the stage, to the announced address


def check(pair: tuple[Make, Make], count: int, first: int, shares_memory: bool) -> None:
    def program(group: Group) -> None:
        if group.rank != first:
            time.sleep(0.05)
        pair[group.rank](group, count)
        group.all_reduce(ones(4))  # right at both; a rank that nothing was missing for learns it here

    texts = []
    for result in outcomes(2, program, shared_memory=shares_memory, timeout=3.0):
        assert isinstance(result, CollectiveMismatchError), result
        texts.append(str(result))
    assert all("collective 1" in text for text in texts), texts


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("way", ["shared", "network"])
def test_every_difference_is_named_at_both_ranks(name: str, way: str) -> None:
    one, other = TABLE[name]
    for count in SIZES if way == "shared" else SIZES[:2]:
        for pair in ((one, other), (other, one)) if name in ONE_WAITS else ((one, other),):
            for first in (0, 1):
                check(pair, count, first, way == "shared")
