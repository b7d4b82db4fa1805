"""The generator: the same compiled and interpreted, never stuck, evenly spread."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from openmrc.core import rng
from openmrc.core.jit import entry

SEEDS = st.integers(-(1 << 40), 1 << 40)


@entry
def drawn(seed: int, stream: int, steps: int, limit: int) -> int:
    state = rng.seeded(seed, stream)
    for _ in range(steps):
        state = rng.following(state)
    return state * limit + rng.below(state, limit)


@settings(deadline=None)
@given(seed=SEEDS, stream=st.integers(0, 1 << 20), steps=st.integers(0, 20), limit=st.integers(1, 1 << 20))
def test_compiled_and_interpreted_draw_the_same(seed: int, stream: int, steps: int, limit: int) -> None:
    assert drawn(seed, stream, steps, limit) == drawn.py_func(seed, stream, steps, limit)


@settings(deadline=None)
@given(seed=SEEDS, stream=st.integers(0, 1 << 20), limit=st.integers(1, 1 << 31))
def test_state_is_never_zero_and_draws_stay_below_the_limit(seed: int, stream: int, limit: int) -> None:
    state = rng.seeded(seed, stream)
    for _ in range(8):
        assert 0 < state < 1 << 32
        assert 0 <= rng.below(state, limit) < limit
        state = rng.following(state)


def test_streams_of_one_seed_differ() -> None:
    assert len({rng.seeded(1, stream) for stream in range(10_000)}) == 10_000


def test_states_of_many_streams_at_once_are_those_of_each() -> None:
    streams = np.arange(-3, 1000)
    many = rng.seeded(7, streams)
    assert many.tolist() == [rng.seeded(7, int(stream)) for stream in streams]
    assert rng.following(many).tolist() == [rng.following(int(state)) for state in many]


def test_draws_are_spread_evenly() -> None:
    state, counts = rng.seeded(7, 0), Counter[int]()
    for _ in range(16_000):
        state = rng.following(state)
        counts[rng.below(state, 16)] += 1
    assert all(850 < counts[value] < 1150 for value in range(16))
