"""How long do the papers of 131,072 NICs on 8 planes take: all cables, what to order, and the proof of its growth?

    python bench/fabric/papers.py

From the YAML files to the last byte written; the smaller fabric has three quarters of the machines.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import msgspec

from openmrc.fabric.addressing.usid import UsidPlan, usid_plan
from openmrc.fabric.cabling.assemblies import assemble
from openmrc.fabric.cabling.assemblies import csv_blocks as assembled_blocks
from openmrc.fabric.cabling.cables import csv_blocks, list_cables
from openmrc.fabric.cabling.grow import grow
from openmrc.fabric.cabling.materials import bill
from openmrc.fabric.model.build import build
from openmrc.fabric.model.fabric_file import load, save
from openmrc.fabric.model.parts import load_parts

FABRIC = Path(__file__).parents[2] / "scenarios" / "fabrics" / "paper-131072.yaml"
MARK_S = 10.0


def measure_cables(folder: Path) -> None:
    """Write all cables as CSV."""
    began = time.perf_counter()
    cables = list_cables(build(load(FABRIC)))
    with (folder / "cables.csv").open("w") as stream:
        size = sum(stream.write(block) for block in csv_blocks(cables, "sonic", assemble(cables).names_by_cable()))
    report(f"cables: {len(cables):,} cables, {size / 1e6:.0f} MB", began)


def measure_order(folder: Path) -> None:
    """Write all assemblies as CSV, and the bill."""
    began = time.perf_counter()
    cables = list_cables(build(load(FABRIC)))
    found = assemble(cables)
    with (folder / "assemblies.csv").open("w") as stream:
        size = sum(stream.write(block) for block in assembled_blocks(found))
    lines = len(bill(cables, load_parts()))
    report(f"order: {len(found):,} assemblies, {size / 1e6:.0f} MB, a bill of {lines} lines", began)


def measure_growth(folder: Path) -> None:
    """Compare the fabric with one of three quarters of its machines."""
    whole = load(FABRIC)
    assert whole.hosts is not None
    fewer = msgspec.structs.replace(whole.hosts, count=whole.hosts.count * 3 // 4)
    save(msgspec.structs.replace(whole, hosts=fewer), folder / "old.yaml", "three quarters")
    began = time.perf_counter()
    found = grow(plan(folder / "old.yaml"), plan(FABRIC))
    added = f"{found.nics:,} NICs and {sum(found.cables.values()):,} cables added"
    report(f"grow: {added}, {sum(found.changes.values())} changes", began)


def plan(path: Path) -> UsidPlan:
    return usid_plan(build(load(path)))


def report(what: str, began: float) -> None:
    took = time.perf_counter() - began
    print(f"{what}: {took:.1f} s, {took / MARK_S:.2f} of the mark of {MARK_S:g} s")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        measure_cables(Path(name))
        measure_order(Path(name))
        measure_growth(Path(name))
