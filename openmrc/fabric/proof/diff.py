"""Compare installed configurations with the plan: one dump, or a folder of dumps."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.sid_tables import Tables
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.fabric.addressing.walk import Cabling
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.targets import TARGETS, Each, check
from openmrc.fabric.export.view import SwitchView, Views, view
from openmrc.fabric.model.topology import Topology
from openmrc.fabric.readback import formats
from openmrc.fabric.readback.dump import Difference, Sections
from openmrc.fabric.readback.folder import Folder, SwitchReading
from openmrc.fabric.readback.forwarding import Forwarding


def compare(plan: UsidPlan, switch: int, target: str, dump: str, source: str, options: ExportOptions) -> Difference:
    """Compare one dump of one switch with the plan."""
    readers = formats.format_of(target).readers
    seen = view(plan, switch, options)
    difference = Difference(seen.name)
    if formats.is_running(dump) or (target == "linux" and dump.lstrip().startswith(("[", "{"))):
        return compare_running(seen, target, formats.read_running(target, dump, source))
    ending, text = next(iter(TARGETS[target].emit(seen).items()))  # the configuration comes first
    planned, configured = readers[ending](text, "plan"), readers[ending](dump, source)
    formats.compare_files(difference, seen, target, planned, configured)
    difference.unchecked = formats.unchecked(target, configured, planned, {})
    return difference


def compare_running(switch: SwitchView, target: str, running: Sections) -> Difference:
    """Compare what a running system shows with the plan."""
    difference = Difference(switch.name)
    formats.compare_running(difference, switch, target, running)
    difference.unchecked = formats.unchecked(target, {}, {}, running)
    return difference


@dataclass(frozen=True)
class Installed:
    """The installed entries of one switch of a folder."""

    node: int
    difference: Difference
    entries: Ints  # rows of upper 48 bits of the prefix, action, port
    silent: set[int]  # ports whose neighbour is not the planned one
    dead: list[str]  # entries that do not work, and why


def compare_folder(
    plan: UsidPlan, folder: Path, options: ExportOptions, target: str | None = None, each: Each = map
) -> Iterator[Difference]:
    """Compare every switch of the fabric with its files."""
    views, files = _opened(plan, folder, options, target)

    def of_switch(node: int) -> Difference:
        switch = views.of(node)
        return _difference(switch, files, files.read(switch))

    yield from each(of_switch, range(plan.topology.nics, plan.topology.nodes))


def read_folder(
    plan: UsidPlan, folder: Path, options: ExportOptions, target: str | None = None, each: Each = map
) -> Iterator[Installed]:
    """Compare every switch with its files, and read what they install."""
    views, files = _opened(plan, folder, options, target)

    def of_switch(node: int) -> Installed:
        switch = views.of(node)
        reading = files.read(switch)
        found = formats.forwarding(switch, files.target, reading.planned, reading.configured, reading.running)
        return _installed(switch, _difference(switch, files, reading), found)

    yield from each(of_switch, range(plan.topology.nics, plan.topology.nodes))


def read_running(
    plan: UsidPlan, target: str, read: Callable[[SwitchView], Sections], options: ExportOptions, each: Each = map
) -> Iterator[Installed]:
    """Compare every switch with what `read` returns of its running system, and what that installs."""
    views = Views(plan, options)

    def of_switch(node: int) -> Installed:
        switch = views.of(node)
        running = read(switch)
        found = formats.forwarding(switch, target, {}, {}, running)
        return _installed(switch, compare_running(switch, target, running), found)

    yield from each(of_switch, range(plan.topology.nics, plan.topology.nodes))


def not_checked(differences: Sequence[Difference]) -> list[str]:
    """Return what nobody looked at, with the number of switches where it is not all of them."""
    counts = Counter(what for each in differences for what in set(each.unchecked))
    return [
        what if count == len(differences) else f"{what} ({count} of {len(differences)} switches)"
        for what, count in sorted(counts.items())
    ]


def _installed(switch: SwitchView, difference: Difference, found: Forwarding) -> Installed:
    working, whys = found.working()
    return Installed(switch.node, difference, np.array(working, dtype=np.int64).reshape(-1, 3), found.silent, whys)


def _opened(plan: UsidPlan, folder: Path, options: ExportOptions, target: str | None) -> tuple[Views, Folder]:
    files = Folder(folder, plan.topology, target)
    formats.format_of(files.target)
    check(files.target, options)
    if files.strangers:
        raise ConfigError(f"{folder}: {', '.join(files.strangers[:3])}: not switches of this fabric; check FABRIC")
    return Views(plan, options), files


def _difference(switch: SwitchView, files: Folder, reading: SwitchReading) -> Difference:
    difference = Difference(switch.name)
    difference.missing += [f"file {name}" for name in reading.absent]
    if not (reading.configured or reading.running) and not reading.absent:
        difference.missing.append("any file")
    formats.compare_files(difference, switch, files.target, reading.planned, reading.configured)
    difference.unchecked = formats.unchecked(files.target, reading.configured, reading.planned, reading.running)
    if switch.others:
        difference.unchecked.append("uSIDs of no path, `others` of the fabric file")
    difference.unchecked += [f"files SWITCH.{ending}" for ending in reading.unread]
    if reading.running:
        formats.compare_running(difference, switch, files.target, reading.running)
    return difference


def tables_of(topology: Topology, installed: list[Installed]) -> Tables:
    """Return the working entries, without those to ports whose neighbour does not answer."""
    silent = np.array([(each.node, port) for each in installed for port in each.silent], dtype=np.int64).reshape(-1, 2)
    back = topology.link_reverse[Cabling(topology).link(*silent.T)]  # out of the ports that nobody answers
    entries = np.concatenate([each.entries for each in installed])
    switch = np.repeat([each.node for each in installed], [len(each.entries) for each in installed])
    upper, action, port = entries.T
    answered = np.ones(len(entries), dtype=bool)
    for node, number in zip(topology.link_source[back], topology.link_port[back], strict=True):
        answered &= (switch != node) | (port != number)
    every = Tables(
        switch.astype(np.int32), (upper >> 16).astype(np.uint32), (upper & 0xFFFF).astype(np.uint16),
        action.astype(np.int8), port.astype(np.int32),
    )  # fmt: skip
    return every.rows(np.flatnonzero(answered))
