"""A generic door leads compiled and interpreted code to the same variant."""

from typing import NamedTuple

from openmrc.core.jit import entry, generic, kernel
from openmrc.core.rows import Int, Table, table


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


@kernel
def twice(state: Up | Down, by: int) -> int:
    return step(state, by) + step(state, by)


@entry
def run(state: Up | Down, by: int) -> int:
    return twice(state, by)


def test_the_first_argument_chooses_the_variant_compiled_and_interpreted() -> None:
    for kind, sign in ((Up, 1), (Down, -1)):
        compiled, interpreted = kind(table(Counter, 1)), kind(table(Counter, 1))
        assert run(compiled, 3) == run.py_func(interpreted, 3) == 2 * sign
        assert compiled.counters[0].total == interpreted.counters[0].total == 6 * sign
