"""Work on many items in as many processes as the machine has processors.

The processes are forks of this one, so what the work refers to is there already and is not sent: a plan of 131,072 NICs
and its tables are made once.
"""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

_CHUNK = 32  # items a process takes at a time
_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
_shared: list[Callable[[Any], Any]] = []  # what forked processes find: the work of the call that is under way


def fork_each(work: Callable[[_Item], _Found], items: Sequence[_Item]) -> Iterator[_Found]:
    """Do work on every item and yield what it returns, in order; few items are done in this process, as by `map`."""
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
