"""Actual locations of devices, as a CSV file that overrides `placement`.

Columns `device,rack,unit`, and `row,position` for racks whose names `placement` does not know; rows count outward from
the middle one, positions along the row. `mrc fabric racks --out` writes a template with these columns.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from openmrc.documents import MOST_DUMP_BYTES, read_text
from openmrc.errors import ConfigError
from openmrc.fabric.cabling.placement import Place

_NEEDED, _OPTIONAL = ("device", "rack", "unit"), ("row", "position")


def read_places(path: Path) -> dict[str, Place]:
    """Read a file of locations, by device; ConfigError names file, line, value and the expected format."""
    rows = csv.DictReader(io.StringIO(read_text(path, MOST_DUMP_BYTES)), strict=True)
    missing = [name for name in _NEEDED if name not in (rows.fieldnames or ())]
    if missing:
        raise ConfigError(
            f"{path}:1: no column {missing[0]!r}; expected {', '.join(_NEEDED)} and {', '.join(_OPTIONAL)}"
        )
    found: dict[str, Place] = {}
    try:
        for row in rows:
            source = f"{path}:{rows.line_num}"
            device = (row["device"] or "").strip()
            if device in found:
                raise ConfigError(f"{source}: {device!r} has a place already, in {found[device].source}")
            found[device] = _place(row, source)
    except csv.Error as error:
        raise ConfigError(f"{path}:{rows.line_num}: not CSV: {error}") from None
    return found


def _place(row: dict[str, str | None], source: str) -> Place:
    spot = [_number(row, name, source) if row.get(name) else None for name in _OPTIONAL]
    rack = (row["rack"] or "").strip()
    if not rack or any(mark in rack for mark in ',"\n'):
        raise ConfigError(f"{source}: rack {rack!r}; expected a name without commas and quotes")
    unit = _number(row, "unit", source)
    return Place(rack, unit, None if None in spot else (spot[0] or 0, spot[1] or 0), source)


def _number(row: dict[str, str | None], name: str, source: str) -> int:
    text = (row[name] or "").strip()
    try:
        number = int(text)
    except ValueError:
        number = 1 << 30
    if abs(number) >= 1 << 20:
        raise ConfigError(f"{source}: {name} {text!r}; expected a whole number")
    return number
