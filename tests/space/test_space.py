"""The file of the space: every two values meet in what is drawn, and every dimension is used by who draws."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import pytest

from spec.space import rows, surfaces

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", surfaces())
def test_every_two_values_that_may_meet_do(name: str) -> None:
    surface = surfaces()[name]
    drawn = [vars(row) for row in rows(name, 1)]
    assert all(surface.allows(row) for row in drawn)
    for (one, ours), (other, theirs) in itertools.combinations(surface.dimensions.items(), 2):
        allowed = {each for each in itertools.product(ours, theirs) if surface.allows({one: each[0], other: each[1]})}
        assert allowed - {(row[one], row[other]) for row in drawn} == set(), (one, other)


def test_a_seed_draws_its_own_rows_and_always_the_same() -> None:
    assert rows("wire", 1) == rows("wire", 1) != rows("wire", 2)


def drawers() -> dict[str, ast.Module]:
    """Return the module that draws from each surface."""
    found = {}
    for path in HERE.glob("test_*.py"):
        module = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "drawn":
                found[ast.literal_eval(node.args[0])] = module
    return found


def test_every_dimension_is_used_by_who_draws_it() -> None:
    modules = drawers()
    assert set(modules) == set(surfaces())
    for name, module in modules.items():
        used = {
            node.attr
            for node in ast.walk(module)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "row"
        }
        assert used == set(surfaces()[name].dimensions), name
