"""The curves of the paper's figures, read from its drawings (bench/paper/curves; each file says how exactly)."""

from __future__ import annotations

import csv
from pathlib import Path

FOLDER = Path(__file__).parent / "curves"
Points = list[tuple[float, float]]


def rows(name: str) -> tuple[list[str], list[list[str]]]:
    """Return the names of a file's columns, and its rows."""
    with (FOLDER / f"{name}.csv").open(encoding="utf-8") as file:
        names, *found = csv.reader(line for line in file if not line.startswith("#"))
    return names, found


def named(name: str) -> dict[str, Points]:
    """Return the curves of a file by their names; then come x and y."""
    curves: dict[str, Points] = {}
    for curve, x, y, *_ in rows(name)[1]:
        curves.setdefault(curve, []).append((float(x), float(y)))
    return curves


def points(name: str) -> dict[tuple[str, ...], Points]:
    """Return the curves of a file by their first columns; then comes x, then `gbps`."""
    names, found = rows(name)
    at = names.index("gbps")
    curves: dict[tuple[str, ...], Points] = {}
    for row in found:
        curves.setdefault(tuple(row[: at - 1]), []).append((float(row[at - 1]), float(row[at])))
    return curves
