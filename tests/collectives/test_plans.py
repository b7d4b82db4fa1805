"""Every plan is carried out in memory, by the rules that its columns state, and must give what the collective says."""

from typing import Any

import numpy as np
import pytest

from openmrc.collectives import direct, ring, tree
from openmrc.collectives.choice import Collective, CollectiveAlgorithm, choose, plan_for
from openmrc.collectives.plan import NOTHING, CollectivePlan, Space, dependencies, rotated

RANKS = [2, 3, 4, 5, 8, 13]
FAMILIES = pytest.mark.parametrize("family", [ring, tree, direct])
EVERY_SIZE = pytest.mark.parametrize("ranks", RANKS)


def carried_out(plan: CollectivePlan, inputs: Any, outputs: Any = None, seed: Any = 0) -> Any:
    """Carry a plan out in a random order that its dependencies allow; return OUTPUT and SCRATCH as (rank, block)."""
    memory = {Space.INPUT: inputs, Space.OUTPUT: dict(outputs or {}), Space.SCRATCH: {}}
    part, rng = plan.transfers, np.random.default_rng(seed)
    earlier, later = dependencies(part)
    waits = np.bincount(later, minlength=plan.count)
    done = np.zeros(plan.count, bool)
    sent = {}

    def is_next(row: Any) -> Any:
        # Between two ranks, and into one block, transfers come in order.
        same_pair = (part.source == part.source[row]) & (part.target == part.target[row])
        same_block = (part.target == part.target[row]) & (part.write == part.write[row]) & (part.reduces == 1)
        rivals = same_pair | (same_block & (part.write_space == part.write_space[row]) & bool(part.reduces[row]))
        return not (rivals & ~done)[:row].any()

    for _ in range(plan.count):
        ready = [row for row in np.flatnonzero((waits == 0) & ~done) if is_next(row)]
        assert ready, "transfers wait for each other in a circle"
        row = int(rng.choice(ready))
        value = memory[part.read_space[row]][part.source[row], part.read[row]]
        place, key = memory[part.write_space[row]], (int(part.target[row]), int(part.write[row]))
        if part.reduces[row]:
            own = place.get(key) if (key, int(part.write_space[row])) in sent else inputs[key]
            value = own + value
            sent[key, int(part.write_space[row])] = True
        place[key] = value
        done[row] = True
        np.subtract.at(waits, later[earlier == row], 1)
    return memory[Space.OUTPUT], memory[Space.SCRATCH]


def numbered(ranks: Any, blocks: Any) -> Any:
    return {(rank, block): 1000**0 * 2.0**rank * (block + 1) for rank in range(ranks) for block in range(blocks)}


@EVERY_SIZE
@FAMILIES
def test_an_all_reduce_leaves_every_sum_at_every_rank(family: Any, ranks: Any) -> None:
    plan = family.all_reduce(ranks)
    for seed in range(3):
        output, _ = carried_out(plan, numbered(ranks, plan.blocks), seed=seed)
        for block in range(plan.blocks):
            assert {output[rank, block] for rank in range(ranks)} == {(2.0**ranks - 1) * (block + 1)}


@EVERY_SIZE
@pytest.mark.parametrize("family", [ring, direct])
def test_a_reduce_scatter_leaves_sum_r_at_rank_r(family: Any, ranks: Any) -> None:
    output, _ = carried_out(family.reduce_scatter(ranks), numbered(ranks, ranks))
    assert output == {(rank, rank): (2.0**ranks - 1) * (rank + 1) for rank in range(ranks)}


@EVERY_SIZE
@pytest.mark.parametrize("family", [ring, direct])
def test_an_all_gather_spreads_the_blocks_of_all(family: Any, ranks: Any) -> None:
    output, _ = carried_out(family.all_gather(ranks), {}, {(rank, rank): rank for rank in range(ranks)})
    assert output == {(rank, block): block for rank in range(ranks) for block in range(ranks)}


@EVERY_SIZE
@FAMILIES
def test_a_broadcast_and_a_reduce_work_from_every_root(family: Any, ranks: Any) -> None:
    for root in (0, ranks - 1):
        output, _ = carried_out(rotated(family.broadcast(ranks), root), {}, {(root, 0): 7})
        assert output == {(rank, 0): 7 for rank in range(ranks)}
        output, _ = carried_out(rotated(family.reduce(ranks), root), numbered(ranks, 1))
        assert output == {(root, 0): 2.0**ranks - 1}


@EVERY_SIZE
def test_an_all_to_all_transposes(ranks: Any) -> None:
    given = {(rank, block): (rank, block) for rank in range(ranks) for block in range(ranks)}
    output, _ = carried_out(direct.all_to_all(ranks), given)
    assert output == {(r, b): (b, r) for r in range(ranks) for b in range(ranks) if r != b}


@EVERY_SIZE
def test_gather_and_scatter_meet_at_the_root(ranks: Any) -> None:
    root = ranks // 2
    output, _ = carried_out(direct.gather(ranks, root), {(rank, 0): rank for rank in range(ranks)})
    assert output == {(root, rank): rank for rank in range(ranks) if rank != root}
    output, _ = carried_out(direct.scatter(ranks, root), {(root, block): block for block in range(ranks)})
    assert output == {(rank, 0): rank for rank in range(ranks) if rank != root}


@EVERY_SIZE
def test_a_ring_sends_as_little_as_any_all_reduce_can(ranks: Any) -> None:
    plan = ring.all_reduce(ranks)
    assert np.bincount(plan.transfers.source).tolist() == [2 * (ranks - 1)] * ranks  # blocks of 1/n of the data
    assert ring.all_reduce(ranks, 1).count == ranks


@pytest.mark.parametrize("collective", [Collective.BROADCAST, Collective.REDUCE])
@pytest.mark.parametrize(
    ("ranks", "size", "algorithm"),
    [
        (4, 1 << 20, CollectiveAlgorithm.DIRECT),  # three messages instead of a ring's twelve
        (8, (1 << 20) - 1, CollectiveAlgorithm.DIRECT),
        (8, 1 << 20, CollectiveAlgorithm.RING),  # the root would send 7 MiB
        (2, 4 << 20, CollectiveAlgorithm.DIRECT),
        (9, 1 << 19, CollectiveAlgorithm.TREE),
    ],
)
def test_a_root_exchanges_with_few_directly_what_is_little_in_all(
    collective: Any, ranks: int, size: int, algorithm: CollectiveAlgorithm
) -> None:
    assert choose(collective, ranks, size, 8000) == algorithm


@EVERY_SIZE
@pytest.mark.parametrize("collective", [each for each in Collective if each != Collective.BARRIER])
def test_every_choice_has_a_plan_in_which_sums_complete_once(collective: Any, ranks: Any) -> None:
    for size in (0, 8, 10_000, 1 << 26):
        algorithm = choose(collective, ranks, size, 8000)
        part = plan_for(collective, algorithm, ranks, ranks - 1).transfers
        ends = part.target[part.completes == 1] * 100 + part.write[part.completes == 1]
        assert len(set(ends)) == len(ends)
        assert (part.after < np.arange(len(part.after))).all() or algorithm == CollectiveAlgorithm.TREE
        assert not ((part.after != NOTHING) & (part.read_space == Space.INPUT)).any()
