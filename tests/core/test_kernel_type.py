"""A kernel is compiled once for all integers."""

from __future__ import annotations

import gc
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from numba import types
from numba.core.registry import cpu_target

from openmrc.core import jit
from openmrc.core.jit import entry, kernel
from openmrc.core.rows import Int, Int8, Int32, Table, table


class Level(IntEnum):
    LOW = 1
    HIGH = 3


class Mixed:
    small: Int8
    middle: Int32
    large: Int


class State(NamedTuple):
    mixed: Table[Mixed]


@kernel
def times_thousand_million(number: int, is_negative: bool = False) -> int:
    scaled = number * 1_000_000_000
    return -scaled if is_negative else scaled


@entry
def add_up(state: State) -> int:
    row = state.mixed[0]
    total = times_thousand_million(row.small) + times_thousand_million(row.middle) + times_thousand_million(row.large)
    total += times_thousand_million(Level.HIGH) + times_thousand_million(9)
    return total + times_thousand_million(is_negative=row.small == 1, number=row.small)


def state() -> State:
    made = State(table(Mixed, 1))
    made.mixed[0].small, made.mixed[0].middle, made.mixed[0].large = 1, 100_000, 10
    return made


def test_narrow_integers_and_enumerations_do_not_overflow_in_a_kernel() -> None:
    assert add_up(state()) == add_up.py_func(state()) == (1 + 100_000 + 10 + 3 + 9 - 1) * 1_000_000_000


@pytest.mark.needs("jit")
def test_a_kernel_is_compiled_once_for_all_integers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "cache_dir", lambda *_: tmp_path)  # what is loaded from a cache compiles no kernel
    cast(Any, entry(add_up.py_func))(state())
    kind: Any = cpu_target.typing_context.resolve_value_type(times_thousand_million)
    signatures, _ = kind.get_call_signatures()
    assert {signature.args[0] for signature in signatures} == {types.int64}


@pytest.mark.needs("jit")
def test_the_collector_of_cycles_runs_again_after_compiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "cache_dir", lambda *_: tmp_path)
    cast(Any, entry(add_up.py_func))(state())
    assert gc.isenabled()
