"""Compare installed configurations with the plan: one dump, or a folder of dumps."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

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

T = TypeVar("T")


def compare(plan: UsidPlan, switch: int, target: str, dump: str, source: str, options: ExportOptions) -> Difference:
    """Compare one dump of one switch with the plan."""
    readers, seen = formats.format_of(target).readers, view(plan, switch, options)
    if formats.is_running(dump) or (target == "linux" and dump.lstrip().startswith(("[", "{"))):
        return compare_running(seen, target, formats.read_running(target, dump, source))
    ending, text = next(iter(TARGETS[target].emit(seen).items()))  # the configuration comes first
    return _difference(seen, target, SwitchReading(readers[ending](text, "plan"), readers[ending](dump, source), {}))


def compare_running(switch: SwitchView, target: str, running: Sections) -> Difference:
    """Compare what a running system shows with the plan."""
    return _difference(switch, target, SwitchReading({}, {}, running))


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
    return _of_folder(plan, folder, options, target, each, _difference)


def read_folder(
    plan: UsidPlan, folder: Path, options: ExportOptions, target: str | None = None, each: Each = map
) -> Iterator[Installed]:
    """Compare every switch with its files, and read what they install."""
    return _of_folder(plan, folder, options, target, each, _installed)


def read_running(
    plan: UsidPlan, target: str, read: Callable[[SwitchView], Sections], options: ExportOptions
) -> Iterator[Installed]:
    """Compare every switch with what `read` returns of its running system, and what that installs."""
    for switch in map(Views(plan, options).of, range(plan.topology.nics, plan.topology.nodes)):
        yield _installed(switch, target, SwitchReading({}, {}, read(switch)))


def _of_folder(
    plan: UsidPlan,
    folder: Path,
    options: ExportOptions,
    target: str | None,
    each: Each,
    of_reading: Callable[[SwitchView, str, SwitchReading], T],
) -> Iterator[T]:
    files = Folder(folder, plan.topology, target)
    formats.format_of(files.target)
    check(files.target, options)
    if files.strangers:
        raise ConfigError(f"{folder}: {', '.join(files.strangers[:3])}: not switches of this fabric; check FABRIC")
    views = Views(plan, options)

    def of_switch(node: int) -> T:
        switch = views.of(node)
        return of_reading(switch, files.target, files.read(switch))

    return each(of_switch, range(plan.topology.nics, plan.topology.nodes))


def not_checked(differences: Sequence[Difference]) -> list[str]:
    """Return what nobody looked at, with the number of switches where it is not all of them."""
    counts = Counter(what for each in differences for what in set(each.unchecked))
    return [
        what if count == len(differences) else f"{what} ({count} of {len(differences)} switches)"
        for what, count in sorted(counts.items())
    ]


def _installed(switch: SwitchView, target: str, reading: SwitchReading) -> Installed:
    found = formats.forwarding(switch, target, reading.planned, reading.configured, reading.running)
    (working, whys), difference = found.working(), _difference(switch, target, reading)
    return Installed(switch.node, difference, np.array(working, dtype=np.int64).reshape(-1, 3), found.silent, whys)


def _difference(switch: SwitchView, target: str, reading: SwitchReading) -> Difference:
    difference = Difference(switch.name, missing=reading.absent)
    formats.compare_files(difference, switch, target, reading.planned, reading.configured)
    difference.unchecked = formats.unchecked(target, reading.configured, reading.planned, reading.running)
    if switch.others:
        difference.unchecked.append("uSIDs of no path, `others` of the fabric file")
    difference.unchecked += [f"files SWITCH.{ending}" for ending in reading.unread]
    if reading.running:
        formats.compare_running(difference, switch, target, reading.running)
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
        switch.astype(np.int32),
        (upper >> 16).astype(np.uint32),
        (upper & 0xFFFF).astype(np.uint16),
        action.astype(np.int8),
        port.astype(np.int32),
    )
    return every.rows(np.flatnonzero(answered))
