"""A barrier that names missing ranks."""

import time

import numpy as np

from openmrc.train.errors import CollectiveError, CollectiveTimeoutError
from openmrc.train.execution.work import Work
from openmrc.train.group import LARGEST_TAG, Group

_TAG = LARGEST_TAG  # torch has none as large
_GRACE = 1.0  # s added to the timeout of other ranks, in which rank 0 reports missing ranks


def monitored(group: Group, timeout: float, wait_all_ranks: bool) -> None:
    """Wait up to `timeout` seconds for all ranks; errors have the wording of Gloo's.

    Rank 0 raises CollectiveTimeoutError, which names the first missing rank, or all of them with `wait_all_ranks`. It
    aborts the group, so that the waiting ranks get the same error.
    """
    deadline = time.monotonic() + timeout
    note = np.zeros(1, np.uint8)
    if group.rank:
        group.send(note, 0, _TAG, async_op=True)
        answer = group.recv(note, 0, _TAG, async_op=True)
        try:
            answer.wait(timeout + _GRACE)
        except CollectiveError as error:
            raise type(error)(
                f"Rank {group.rank} successfully reached monitoredBarrier, but received errors while waiting for "
                f"send/recv from rank 0: {error}"
            ) from error
        return
    if timeout <= 0:
        raise CollectiveTimeoutError(f"Rank 0 timed out in monitoredBarrier after {timeout:g} s")
    others = range(1, group.size)
    arrivals = {rank: group.recv(np.zeros(1, np.uint8), rank, _TAG, async_op=True) for rank in others}
    missing = [rank for rank, work in arrivals.items() if not _is_done(work, deadline)]
    if missing:
        named = ", ".join(map(str, missing)) if wait_all_ranks else str(missing[0])
        ranks = "Ranks" if wait_all_ranks and len(missing) > 1 else "Rank"
        text = f"{ranks} {named} failed to pass monitoredBarrier within {timeout:g} s"
        group.abort(text)
        raise CollectiveTimeoutError(text)
    for work in [group.send(note, rank, _TAG, async_op=True) for rank in others]:
        work.wait(max(deadline - time.monotonic(), 0.001))


def _is_done(work: Work, deadline: float) -> bool:
    try:
        work.wait(max(deadline - time.monotonic(), 0.0))
    except CollectiveTimeoutError:
        return False
    return True
