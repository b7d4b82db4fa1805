"""Groups whose ranks share memory, all of them or some: the same results as over the network."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from openmrc.train.errors import CollectiveError, RankLostError
from openmrc.train.group import Group
from openmrc.train.reduction import Op
from tests.train.ranks import outcomes, run

pytestmark = pytest.mark.needs("jit")
LENGTHS = (1, 1_000, 1_017, 40_000, 700_001)


def uses_everything(group: Group) -> list[bytes]:
    """Return the bits of the results of all collectives over several lengths."""
    results: list[Any] = []
    size, rank = group.size, group.rank
    rng = np.random.default_rng(rank)
    for length in LENGTHS:
        given = rng.random(length).astype(np.float32)
        results.append(group.all_reduce(given.copy(), Op.AVG).result())
        reduced = group.reduce(given.copy(), 1).result()
        results.append(reduced if rank == 1 else given)
        results.append(group.broadcast(given.copy(), 2).result())
        results.append(group.all_gather(np.empty(size * length, np.float32), given).result())
        results.append(group.reduce_scatter(np.empty(length, np.float32), np.resize(given, size * length)).result())
        results.append(group.all_to_all(np.empty(size * length, np.float32), np.resize(given, size * length)).result())
        gathered = [np.empty(length, np.float32) for _ in range(size)]
        group.gather(given, gathered if rank == 0 else None, 0)
        results += gathered if rank == 0 else []
        results.append(group.scatter(np.empty(length, np.float32), gathered if rank == 0 else None, 0).result())
        out = np.empty(length, np.float32)
        sent = group.send(given, (rank + 1) % size, 3, async_op=True)
        group.recv(out, (rank - 1) % size, 3)
        sent.wait()
        results.append(out)
    group.barrier()
    return [each.tobytes() for each in results]


@pytest.mark.parametrize("shares", [[True, True, True], [True, False, True]], ids=["all", "some"])
def test_results_are_those_of_the_network(shares: list[bool]) -> None:
    assert run(3, uses_everything, shared_memory=shares) == run(3, uses_everything)


def test_the_recording_names_the_ranks_of_this_host() -> None:
    ranks = run(3, lambda group: group.recorder.recording().local_ranks, shared_memory=[True, False, True])
    assert ranks == [[2], [], [0]]


def test_an_abort_and_a_departure_reach_the_others() -> None:
    def aborts(group: Group) -> None:
        if group.rank == 0:
            group.abort("enough")
        group.all_reduce(np.ones(10_000))

    for result in outcomes(3, aborts, shared_memory=True):
        assert isinstance(result, CollectiveError)
        assert "enough" in str(result)

    def leaves(group: Group) -> None:
        if group.rank != 1:
            group.all_reduce(np.ones(10_000))

    begun = time.monotonic()
    results = outcomes(3, leaves, shared_memory=True)
    assert all(isinstance(results[rank], RankLostError) for rank in (0, 2))
    assert time.monotonic() - begun < 6
