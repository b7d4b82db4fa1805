"""A clock that is set back: every time moves with it, and what is no time stays."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from harness.engine_pair import NetworkConditions, Pair
from openmrc.core.rebase import instants_of, set_back
from openmrc.core.rows import INSTANT, Instant, Int, Table, table
from openmrc.engine.state.clock import WRAPS
from openmrc.engine.state.params import Settings
from openmrc.units import NEVER, PS_PER_S


class Job:
    length: Int  # ps, but a duration
    due: Instant
    several: Annotated[NDArray[np.int64], (np.int64, (3,)), INSTANT]


class Tables(NamedTuple):
    jobs: Table[Job]
    words: NDArray[np.int64]


def test_times_move_and_all_else_stays() -> None:
    tables = Tables(table(Job, 1), np.full(2, 500))
    job = tables.jobs[0]
    job.length, job.due, job.several[:] = 500, 500, (0, NEVER, 500)
    set_back(tables, 400)
    assert (job.length, job.due, job.several.tolist(), tables.words.tolist()) == (500, 100, [0, NEVER, 100], [500, 500])
    set_back(tables, 400)
    assert (job.due, job.several[2]) == (1, 1)  # long ago, but still times
    assert instants_of(Job) == ["due", "several"]


def talk(seed: int, back: int) -> Pair:
    """Let two endpoints talk over a bad network; set both clocks back by `back` ps in the middle."""
    conditions = NetworkConditions(loss=0.05, mark=0.1, trim=0.05, jitter_us=20.0)
    pair = Pair(conditions, seed, settings=Settings(link_gbps=100.0, base_rtt_us=12.0, trimming=bool(seed % 2)))
    pair.now = PS_PER_S
    for half in range(2):
        for number in range(8):
            pair.receive(number)
            pair.write(number, 0, 20_000, 0, immediate=number)
        pair.run((pair.now + PS_PER_S // 10_000) / 1e6)  # in the middle of the writes
        if half == 0:
            set_back(pair.engine, back)
            pair.now -= back
            pair.diary = [(at - back, who, opcode, psn) for at, who, opcode, psn in pair.diary]
            pair.flying = [(at - back, order, to, row, body) for at, order, to, row, body in pair.flying]
    pair.run((pair.now + PS_PER_S) / 1e6)
    return pair


@pytest.mark.needs("jit")  # a second of a bad network
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(2, 6))])
def test_two_endpoints_do_the_same_whenever_their_clock_is_set_back(seed: int) -> None:
    usual, moved = talk(seed, 0), talk(seed, -3 * WRAPS)
    assert len(usual.diary) > 200
    assert [(at + 3 * WRAPS, *what) for at, *what in usual.diary] == moved.diary
    assert usual.completions
    assert [(c.wr_id, c.status) for c in usual.completions] == [(c.wr_id, c.status) for c in moved.completions]
