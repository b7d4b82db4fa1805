"""Text in columns: names beside values, and rows under a head."""

from __future__ import annotations

from collections.abc import Sequence


def name_columns(facts: Sequence[tuple[str, str]]) -> list[str]:
    """Return a line for each name and its value."""
    width = max(len(name) for name, _ in facts)
    return [f"  {name:{width}}  {value}" for name, value in facts]


def row_columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return a line for each row, the first of which is the head; all rows have as many cells."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  " + "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def counted(number: int, one: str, many: str) -> str:
    """Return a number with its noun, such as `1 path` or `1,024 paths`."""
    return f"{number:,} {one if number == 1 else many}"
