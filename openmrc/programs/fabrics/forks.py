"""Process many items in parallel, in as many processes as the machine has processors.

The workers are forks of this process and inherit its data without a copy: a plan of 131,072 NICs and its tables exist
once.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

_CHUNK = 32  # items per process and turn
_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
_shared: list[Callable[[Any], Any]] = []  # the work of the current call, inherited by the forked workers


def fork_each(work: Callable[[_Item], _Found], items: Sequence[_Item]) -> Iterator[_Found]:
    """Apply work to every item and yield the results in order; few items are processed in this process."""
    workers = min(multiprocessing.cpu_count(), len(items) // (2 * _CHUNK))
    if workers < 2 or _shared:
        yield from map(work, items)
        return
    _shared.append(work)
    gc.freeze()  # garbage collection in the workers would copy the shared pages
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
