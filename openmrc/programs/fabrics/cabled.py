"""`mrc fabric cabled`: compare cabling with the plan, from LLDP dumps."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from openmrc.base.documents import MOST_DUMP_BYTES, read_text
from openmrc.errors import ConfigError, UsageError
from openmrc.fabric.cables.cabled import check_cabling
from openmrc.fabric.cables.lldp import read_neighbours
from openmrc.programs.fabrics.files import FabricFile, answer, load_topology
from openmrc.programs.outcome import Json


def cabled(
    file: FabricFile,
    lldp: Annotated[
        list[Path], typer.Option("--lldp", help="Folder of NODE.json files, or one such file; may be repeated.")
    ],
    as_json: Json = False,
) -> None:
    """Compare LLDP dumps of lldpctl, SONiC or NVUE with the plan; exit 1 if a cable is wrong, swapped or missing."""
    dumps = {path.stem: read_neighbours(read_text(path, MOST_DUMP_BYTES), str(path)) for path in _dumps(lldp)}
    report = check_cabling(load_topology(file), dumps)
    result = {"cables": report.cables, "right": report.right, **report.counts(), "unchecked": report.unchecked}
    answer({"clean": report.is_clean, **result, "findings": msgspec.to_builtins(report.findings)}, as_json)
    if not report.is_clean:
        raise typer.Exit(1)


def _dumps(paths: list[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise ConfigError(f"--lldp: {path}: contains no NODE.json, such as p0-t0-00.json of `lldpctl -f json`")
        found += inside
    name, count = max(Counter(path.stem for path in found).items(), key=lambda each: each[1])
    if count > 1:
        raise UsageError(f"--lldp: {count} dumps of {name!r}; give one")
    return found
