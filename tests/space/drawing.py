"""Tests that are drawn from spec/space.toml: a few in the fast tier, as many as every pair needs in the other."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from spec.space import rows, seed_of_the_day


def drawn(
    surface: str, few: int, quick: Callable[[SimpleNamespace], bool] = lambda row: True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Parametrise a test with rows of a surface, as `row`; only the first `few` that are `quick` run in `make test`."""
    seed = seed_of_the_day()
    found = sorted(rows(surface, seed), key=lambda row: not quick(row))
    parameters = [
        pytest.param(row, id=f"{seed}-{number}", marks=[] if number < few else pytest.mark.exhaustive)
        for number, row in enumerate(found)
    ]
    return pytest.mark.parametrize("row", parameters)
