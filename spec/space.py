"""Draw from the space of what users may combine: rows of space.toml in which every two values meet."""

from __future__ import annotations

import functools
import itertools
import os
import random
import tomllib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SPACE = Path(__file__).parent / "space.toml"
Pair = tuple[tuple[str, Any], tuple[str, Any]]
VARIABLE = "SPACE_SEED"  # of the drawing; by default the day


@dataclass(frozen=True)
class Surface:
    """What users meet, its dimensions with their values, and values that cannot meet."""

    name: str
    oracle: str
    dimensions: dict[str, list[Any]]
    never: list[dict[str, list[Any]]]

    def allows(self, row: dict[str, Any]) -> bool:
        """Return whether a row, or the part of it that is there, may be tried."""
        return not any(all(name in row and row[name] in values for name, values in each.items()) for each in self.never)


@functools.cache
def surfaces() -> dict[str, Surface]:
    """Return every surface by name."""
    with SPACE.open("rb") as file:
        found = tomllib.load(file)
    return {
        name: Surface(name, each["oracle"], each["dimensions"], each.get("never", [])) for name, each in found.items()
    }


def seed_of_the_day() -> int:
    """Return the seed that the environment names, or the day as 20261231."""
    return int(os.environ.get(VARIABLE) or f"{datetime.now(UTC):%Y%m%d}")


def rows(name: str, seed: int) -> list[SimpleNamespace]:
    """Return rows of a surface in an order of their own for each seed; every two values that may meet do, in one.

    A row begins with two values that have not met, and takes of each other dimension a value that meets most new ones.
    """
    surface, order = surfaces()[name], random.Random(f"{name} {seed}")
    missing = _pairs(surface)
    order.shuffle(missing)
    wanted, found = set(missing), []
    for pair in missing:
        if pair in wanted:
            row = _filled(surface, dict(pair), wanted, order)
            wanted -= set(itertools.combinations(row.items(), 2))
            found.append(SimpleNamespace(**row))
    return found


def _pairs(surface: Surface) -> list[Pair]:
    """Return every two values of two dimensions that may meet, the dimensions in their order."""
    values = [[(name, value) for value in each] for name, each in surface.dimensions.items()]
    pairs = [pair for ours, theirs in itertools.combinations(values, 2) for pair in itertools.product(ours, theirs)]
    return [pair for pair in pairs if surface.allows(dict(pair))]


def _filled(surface: Surface, row: dict[str, Any], wanted: set[Pair], order: random.Random) -> dict[str, Any]:
    """Return a row that begins with two values; ValueError if nothing else goes with them."""
    names = list(surface.dimensions)
    for name in order.sample([each for each in names if each not in row], len(names) - len(row)):
        values = [value for value in surface.dimensions[name] if surface.allows({**row, name: value})]
        if not values:
            raise ValueError(f"{surface.name}: no {name} goes with {row}")

        gains = {
            value: sum(_in_order(names, (name, value), other) in wanted for other in row.items()) for value in values
        }
        row[name] = max(order.sample(values, len(values)), key=gains.__getitem__)
    return {name: row[name] for name in names}


def _in_order(names: list[str], one: tuple[str, Any], other: tuple[str, Any]) -> Pair:
    return (one, other) if names.index(one[0]) < names.index(other[0]) else (other, one)
