"""A whole fabric's files, node by node; the caller may supply a `map` that shares nodes among processes.

The plan's tables are made once, before the first node. A folder's files can be written by many; an archive has one
writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.fabric.export.archive import ARCHIVES, write
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.systems import hosts
from openmrc.fabric.export.targets import check, export, files_of
from openmrc.fabric.export.view import Views

_Files = Callable[[int], Iterator[tuple[str, str]]]


class Each(Protocol):
    """Applies work to every item, in order, as `map` does."""

    def __call__(self, work: Callable[[int], Any], items: Sequence[int], /) -> Iterator[Any]: ...


def write_all(
    plan: UsidPlan, target: str, options: ExportOptions, out: Path, nodes: Sequence[int] | None = None, each: Each = map
) -> Iterator[list[int]]:
    """Write a target's files to the folder or archive `out`; yield the bytes of each file, some switches at a time."""
    check(target, options)
    if target == "containerlab" or out.suffix in ARCHIVES:
        yield from ([size] for size in write(export(plan, target, options, nodes), out))
        return
    files = _hosts(plan, options) if target == "hosts" else _switches(plan, target, options)
    every = nodes if nodes is not None else every_node(plan, target)
    yield from each(lambda node: list(write(files(node), out)), every)


def every_node(plan: UsidPlan, target: str) -> range:
    """Return the switches of a fabric, or the numbers of its hosts."""
    return hosts.every(plan) if target == "hosts" else range(plan.topology.nics, plan.topology.nodes)


def _switches(plan: UsidPlan, target: str, options: ExportOptions) -> _Files:
    views = Views(plan, options)
    return lambda switch: files_of(views.of(switch), target)


def _hosts(plan: UsidPlan, options: ExportOptions) -> _Files:
    return hosts.ExportedHosts(plan, options).files_of
