"""A generic door leads compiled and interpreted code to the same variant."""

from typing import NamedTuple

import pytest

from openmrc.core.jit import entry, kernel
from openmrc.core.rows import Int, Table, table
from openmrc.core.variants import generic, optional


class Counter:
    total: Int


class Up(NamedTuple):
    counters: Table[Counter]


class Down(NamedTuple):
    counters: Table[Counter]


@generic
def step(state: Up | Down, by: int) -> int:  # type: ignore[empty-body]
    """Count by one variant's rule."""


@step.variant(Up)
def _up(state: Up, by: int) -> int:
    state.counters[0].total += by
    return 1


@step.variant(Down)
def _down(state: Down, by: int) -> int:
    state.counters[0].total -= by
    return -1


@optional
def note(state: Up | Down) -> int:
    """Say how many notes were taken: of a type without a variant, none."""
    return 0


@note.variant(Up)
def _note(state: Up) -> int:
    return 10


@kernel
def twice(state: Up | Down, by: int) -> int:
    return step(state, by) + step(state, by) + note(state)


@entry
def run(state: Up | Down, by: int) -> int:
    return twice(state, by)


def test_the_first_argument_chooses_the_variant_compiled_and_interpreted() -> None:
    for kind, sign, notes in ((Up, 1, 10), (Down, -1, 0)):
        compiled, interpreted = kind(table(Counter, 1)), kind(table(Counter, 1))
        assert run(compiled, 3) == run.py_func(interpreted, 3) == 2 * sign + notes
        assert compiled.counters[0].total == interpreted.counters[0].total == 6 * sign


def test_a_type_without_a_variant_is_named() -> None:
    class Sideways(NamedTuple):
        counters: Table[Counter]

    with pytest.raises(TypeError, match="step: Sideways has no variant"):
        step(Sideways(table(Counter, 1)), 1)  # type: ignore[arg-type]
