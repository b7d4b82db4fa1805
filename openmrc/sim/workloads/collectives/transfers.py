"""Plans of collectives as messages of hosts: the same plans that live ranks execute."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from openmrc.collectives.plan import Transfers, dependencies
from openmrc.sim.workloads.plan import Ids, WorkloadGraph


def carry_out(
    made: WorkloadGraph, members: Ids, part: Transfers, waves: Sequence[int], size: int, start: int = 0
) -> Ids:
    """Add a collective among each row of `members`, whose column r is rank r; return the ids, a row per group.

    Messages have `size` bytes. They are numbered by wave (`waves` are numbers of transfers), within one by group.
    """
    ids = np.empty((len(members), len(part.source)), np.int64)
    first = 0
    for width in waves:
        wave = slice(first, first + width)
        source, target = members[:, part.source[wave]], members[:, part.target[wave]]
        ids[:, wave] = made.messages(source.ravel(), target.ravel(), size, start).reshape(source.shape)
        first += width
    earlier, later = dependencies(part)
    made.follow(ids[:, earlier].ravel(), ids[:, later].ravel())
    return ids
