"""Compare what switches have installed with what was planned: one dump, or a folder of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from openmrc.errors import ConfigError
from openmrc.fabric.export.bulk import each
from openmrc.fabric.export.options import Options
from openmrc.fabric.export.targets import TARGETS, check
from openmrc.fabric.export.view import SwitchView, Views, view
from openmrc.fabric.readback import formats
from openmrc.fabric.readback.dump import Difference
from openmrc.fabric.readback.folder import Folder, Reading
from openmrc.fabric.readback.forwarding import Forwarding
from openmrc.fabric.tables import Tables
from openmrc.fabric.topology import Topology
from openmrc.fabric.usid import UsidPlan

__all__ = ["Difference", "Installed", "compare", "compare_folder", "read_folder", "tables_of"]


def compare(
    plan: UsidPlan, switch: int, target: str, dump: str, source: str, options: Options, next_hop: str | None = None
) -> Difference:
    """Hold one dump of one switch against the plan; `next_hop` stands in for every neighbour's address (a lab's)."""
    found = formats.format_of(target)
    seen = view(plan, switch, options)
    difference = Difference(seen.name)
    if formats.is_running(dump) or (target == "linux" and dump.lstrip().startswith(("[", "{"))):
        formats.compare_running(difference, seen, target, formats.read_running(target, dump, source), next_hop)
        return difference
    ending = next(iter(TARGETS[target].emit(seen)))  # the configuration comes first
    read = found.readers[ending]
    planned = read(TARGETS[target].emit(seen)[ending], "plan")
    formats.compare_files(difference, seen, target, planned, read(dump, source))
    return difference


@dataclass(frozen=True)
class Installed:
    """Hold what one switch of a folder has installed."""

    node: int
    difference: Difference
    forwarding: Forwarding


def compare_folder(plan: UsidPlan, folder: Path, options: Options, target: str | None = None) -> Iterator[Difference]:
    """Compare every switch of the fabric with its files."""
    views, files = _opened(plan, folder, options, target)

    def of_switch(node: int) -> Difference:
        switch = views.of(node)
        return _difference(switch, files, files.read(switch))

    yield from each(of_switch, range(plan.topology.nics, plan.topology.nodes))


def read_folder(plan: UsidPlan, folder: Path, options: Options, target: str | None = None) -> Iterator[Installed]:
    """Compare every switch with its files, and read what they install."""
    views, files = _opened(plan, folder, options, target)

    def of_switch(node: int) -> Installed:
        switch = views.of(node)
        reading = files.read(switch)
        installed = formats.forwarding(switch, files.target, reading.configured, reading.running)
        return Installed(node, _difference(switch, files, reading), installed)

    yield from each(of_switch, range(plan.topology.nics, plan.topology.nodes))


def _opened(plan: UsidPlan, folder: Path, options: Options, target: str | None) -> tuple[Views, Folder]:
    files = Folder(folder, plan.topology, target)
    formats.format_of(files.target)
    check(files.target, options)
    if files.strangers:
        raise ConfigError(f"{folder}: {', '.join(files.strangers[:3])}: no switches of this fabric; is it of another?")
    return Views(plan, options), files


def _difference(switch: SwitchView, files: Folder, reading: Reading) -> Difference:
    difference = Difference(switch.name)
    difference.missing += [f"file {name}" for name in reading.absent]
    if not (reading.configured or reading.running) and not reading.absent:
        difference.missing.append("any file")
    formats.compare_files(difference, switch, files.target, reading.planned, reading.configured)
    if reading.running:
        formats.compare_running(difference, switch, files.target, reading.running)
    return difference


def tables_of(topology: Topology, installed: list[Installed]) -> Tables:
    """Return the entries that work: those towards a port at which nobody answers do not."""
    silent = {(each.node, port) for each in installed for port in each.forwarding.silent}
    cabling = _ends(topology, {each.node for each in installed if each.forwarding.silent}, silent)
    rows = [
        (each.node, upper >> 16, upper & 0xFFFF, int(action), port)
        for each in installed
        for upper, action, port in each.forwarding.entries
        if (each.node, port) not in cabling
    ]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    return Tables(
        columns[0].astype(np.int32), columns[1].astype(np.uint32), columns[2].astype(np.uint16),
        columns[3].astype(np.int8), columns[4].astype(np.int32),
    )  # fmt: skip


def _ends(topology: Topology, nodes: set[int], silent: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """Return the other ends of the cables at silent ports."""
    first, out = topology.outgoing()
    found = set()
    for node in nodes:
        for link in out[first[node] : first[node + 1]].tolist():
            if (node, int(topology.link_port[link])) in silent:
                found.add((int(topology.link_destination[link]), int(topology.link_port[topology.link_reverse[link]])))
    return found
