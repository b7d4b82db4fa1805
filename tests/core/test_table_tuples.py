"""Compiled code takes tables that travel together by one address, and sees in them what Python sees."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import pytest
from numba import typeof, types

from openmrc.core.jit import entry, kernel, rare_kernel
from openmrc.core.rows import Int, Table, table
from openmrc.core.table_tuples import TableTuple
from openmrc.engine.state.build import TableSizes, build
from openmrc.engine.state.params import Settings
from openmrc.engine.state.tables import Engine

EVS = 5


def engine() -> Engine:
    return build(TableSizes(endpoints=3, ports=1, evs_per_rotation=EVS, sends=4), Settings())


@rare_kernel
def _number_endpoints(engine: Engine, first: int) -> None:
    for index in range(len(engine.endpoints)):
        engine.endpoints[index].random = first + index


@kernel
def _last(engine: Engine) -> int:
    return engine.endpoints[-1].random


@entry
def write_and_read(engine: Engine, first: int) -> int:
    _number_endpoints(engine, first)
    before = _last(engine)
    engine.endpoints[len(engine.endpoints) - 1].random += 1  # what was read of the table itself still holds
    return 1000 * before + _last(engine)


def test_rows_are_written_and_read_through_calls() -> None:
    compiled, interpreted = engine(), engine()
    assert write_and_read(compiled, 7) == write_and_read.py_func(interpreted, 7)
    assert [row.random for row in compiled.endpoints] == [row.random for row in interpreted.endpoints] == [7, 8, 10]


@pytest.mark.needs("jit")
def test_the_engine_is_one_argument_of_compiled_functions() -> None:
    write_and_read(engine(), 1)
    (overload,) = cast(Any, write_and_read).overloads.values()
    code = overload.library._get_module_for_linking()
    (called,) = (each for each in code.functions if "_number_endpoints" in each.name)
    assert len(list(called.arguments)) <= 4, "result, exception, tables, number"


def test_the_type_of_tables_names_their_class_and_depends_on_each() -> None:
    one, other = typeof(engine()), typeof(engine())  # type: ignore[no-untyped-call,unused-ignore]
    assert isinstance(one, TableTuple)
    assert one == other
    assert one.instance_class is Engine
    reversed_tables = engine()._replace(endpoints=cast(Any, engine().endpoints)[::-1])
    assert typeof(reversed_tables) != one  # type: ignore[no-untyped-call,unused-ignore]


class Counter:
    total: Int


class Foreign(NamedTuple):
    counters: Table[Counter]


def test_tuples_of_other_programs_keep_the_type_that_numba_gives_them() -> None:
    for value in (Foreign(table(Counter, 1)), (np.zeros(1), np.zeros(2)), (1, 2)):
        kind = typeof(value)  # type: ignore[no-untyped-call,unused-ignore]
        assert isinstance(kind, types.BaseTuple)
