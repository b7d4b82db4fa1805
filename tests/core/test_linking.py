"""An entry holds every kernel that it reaches, by whatever way, and keeps what is rare apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, cast

import llvmlite.binding as llvm
import pytest

from openmrc.core import jit
from openmrc.core.jit import entry, kernel, rare_kernel
from openmrc.core.rows import Int, Table, table


class Counter:
    total: Int


class State(NamedTuple):
    counters: Table[Counter]


@rare_kernel
def add_seldom(state: State, by: int) -> None:
    state.counters[0].total += by


@kernel
def add_often(state: State, by: int) -> None:
    if by > 2:
        add_seldom(state, by)
    state.counters[0].total += 1


@kernel
def add_twice(state: State, by: int) -> None:
    add_often(state, by)
    add_often(state, by + 1)


@entry
def add(state: State, by: int) -> int:
    add_seldom(state, by)  # before and after its other callers
    add_twice(state, by)
    add_seldom(state, by)
    return state.counters[0].total


def test_kernels_are_reached_through_each_other_in_any_order() -> None:
    compiled, interpreted = State(table(Counter, 1)), State(table(Counter, 1))
    for by in (1, 2, 3):
        assert add(compiled, by) == add.py_func(interpreted, by)
        assert compiled.counters[0].total == interpreted.counters[0].total


@pytest.mark.needs("jit")
def test_a_rare_kernel_is_called_also_where_inlined_kernels_reach_it() -> None:
    add(State(table(Counter, 1)), 1)
    (overload,) = cast(Any, add).overloads.values()
    code = overload.library._get_module_for_linking()
    defined = [function.name for function in code.functions if not function.is_declaration]
    assert any("add_seldom" in name for name in defined)
    assert not any("add_often" in name or "add_twice" in name for name in defined)


@pytest.mark.needs("jit")
def test_what_the_cache_keeps_of_an_entry_has_every_name_but_no_code_to_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jit, "cache_dir", lambda *_: tmp_path)  # what is loaded from a cache cannot be stored again
    compiled = cast(Any, entry(add.py_func))
    compiled(State(table(Counter, 1)), 1)
    (overload,) = compiled.overloads.values()
    _, _, (machine_code, linkable) = overload.library.serialize_using_object_code()
    stub, code = llvm.parse_bitcode(linkable), overload.library._get_module_for_linking()
    names = [{each.name for each in module.functions if not each.is_declaration} for module in (stub, code)]
    assert names[0] == names[1]
    assert not any(len(list(block.instructions)) > 1 for function in stub.functions for block in function.blocks)
    assert len(machine_code) > 0
