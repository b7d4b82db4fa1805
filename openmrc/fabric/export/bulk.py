"""A whole fabric's files, written by as many processes as the machine has processors.

The processes are forks, so the plan and its tables are made once. What they write are files of a folder; an archive has
one writer.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from openmrc.fabric.export import hosts
from openmrc.fabric.export.archive import ARCHIVES, write
from openmrc.fabric.export.options import Options
from openmrc.fabric.export.targets import check, export, files_of
from openmrc.fabric.export.view import Views
from openmrc.fabric.usid import UsidPlan

_CHUNK = 32  # switches a process takes at a time
_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
_Files = Callable[[int], Iterator[tuple[str, str]]]
_shared: list[Callable[[Any], Any]] = []  # what forked processes find: the work of the call that is under way


def write_all(
    plan: UsidPlan, target: str, options: Options, out: Path, nodes: Sequence[int] | None = None
) -> Iterator[list[int]]:
    """Write a target's files to the folder or archive `out`; yield the bytes of each file, some switches at a time."""
    check(target, options)
    if target == "containerlab" or out.suffix in ARCHIVES:
        yield from ([size] for size in write(export(plan, target, options, nodes), out))
        return
    files = _hosts(plan, options) if target == "hosts" else _switches(plan, target, options)
    every = hosts.every(plan) if target == "hosts" else range(plan.topology.nics, plan.topology.nodes)
    yield from each(lambda node: list(write(files(node), out)), nodes if nodes is not None else every)


def _switches(plan: UsidPlan, target: str, options: Options) -> _Files:
    views = Views(plan, options)
    return lambda switch: files_of(views.of(switch), target)


def _hosts(plan: UsidPlan, options: Options) -> _Files:
    return lambda host: hosts.files_of(plan, host, options)


def each(work: Callable[[_Item], _Found], items: Sequence[_Item]) -> Iterator[_Found]:
    """Do work on every item, in order; many items are shared among processes, which inherit `work` by forking."""
    workers = min(multiprocessing.cpu_count(), len(items) // (2 * _CHUNK))
    if workers < 2 or _shared:
        yield from map(work, items)
        return
    _shared.append(work)
    gc.freeze()  # what is shared is not to be searched, and so copied, by every process
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), gc.disable)
    try:
        yield from pool.map(_do, items, chunksize=_CHUNK)
    finally:
        pool.shutdown(cancel_futures=True)
        _shared.clear()
        gc.unfreeze()


def _do(item: Any) -> Any:
    (work,) = _shared
    return work(item)
