"""The systems a fabric can be exported to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from openmrc.errors import ConfigError
from openmrc.fabric.export import containerlab, cumulus, eos, frr, linux, sonic
from openmrc.fabric.export.installed import Installed
from openmrc.fabric.export.view import (
    Options,
    PortName,
    SwitchView,
    cumulus_port,
    eos_port,
    linux_port,
    sonic_port,
    view,
)
from openmrc.fabric.tables import build_tables
from openmrc.fabric.usid import UsidPlan


@dataclass(frozen=True)
class Target:
    """Hold how to write a switch's files, and to read back what it installed where that is known."""

    emit: Callable[[SwitchView], dict[str, str]]
    port_name: PortName
    read: Callable[[str, str], list[Installed]] | None = None


TARGETS = {
    "sonic": Target(sonic.emit, sonic_port, sonic.read),
    "frr": Target(frr.emit, linux_port, frr.read),
    "cumulus": Target(cumulus.emit, cumulus_port),
    "linux": Target(linux.emit, linux_port, linux.read),
    "eos": Target(eos.emit, eos_port),
}


def export(
    plan: UsidPlan, target: str, options: Options, switches: list[int] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield (file name, text) of all switches, or of some."""
    if target == "containerlab":
        yield from containerlab.emit_all(plan).items()
        return
    if target not in TARGETS:
        raise ConfigError(f"cannot export to {target!r}; {', '.join([*TARGETS, 'containerlab'])} are known")
    _check(options)
    views = _all_views(plan, options) if switches is None else (view(plan, each, options) for each in switches)
    for switch in views:
        for ending, text in TARGETS[target].emit(switch).items():
            yield f"{switch.name}.{ending}", text


def files_of(target: str) -> int:
    """Return how many files a switch has; containerlab has one for all."""
    return 3 if target == "linux" else 1


def _all_views(plan: UsidPlan, options: Options) -> Iterator[SwitchView]:
    """View every switch; the tables are sorted once, or each view would search them all."""
    tables = build_tables(plan)
    order = np.argsort(tables.switch, kind="stable")
    nodes = np.arange(plan.topology.nics, plan.topology.nodes + 1)
    first = np.searchsorted(tables.switch[order], nodes)
    for at, switch in enumerate(nodes[:-1]):
        yield view(plan, int(switch), options, tables.rows(order[first[at] : first[at + 1]]))


def _check(options: Options) -> None:
    if options.breakout < 1 or options.lanes % options.breakout:
        works = ", ".join(str(parts) for parts in range(1, options.lanes + 1) if options.lanes % parts == 0)
        raise ConfigError(f"{options.lanes} lanes do not divide into {options.breakout} ports; {works} would work")
    if options.image not in ("current", "old"):
        raise ConfigError(f"image {options.image!r}; current or old")
