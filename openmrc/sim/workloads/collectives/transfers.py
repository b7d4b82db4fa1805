"""Plans of collectives as messages of hosts: the same plans that live ranks execute."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from openmrc.collectives.plan import Transfers, dependencies
from openmrc.errors import ConfigError
from openmrc.sim.workloads.plan import Ids, WorkloadGraph

Placement = Literal["contiguous", "strided", "random"]


def groups(hosts: int, size: int, placement: Placement, seed: int) -> Ids:
    """Return a row of hosts per group; size 0 is one group of all.

    Contiguous groups are neighbours; strided groups take every (hosts / size)-th host, which spreads them over
    the whole fabric; random groups are drawn at random.
    """
    size = size or hosts
    if not 2 <= size <= hosts or hosts % size:
        raise ConfigError(f"workload: group: {size} must be at least 2 and divide {hosts}, the number of hosts")
    everyone = np.arange(hosts, dtype=np.int64)
    if placement == "random":
        everyone = np.random.default_rng(seed).permutation(everyone)
    if placement == "strided":
        return everyone.reshape(size, hosts // size).T.copy()
    return everyone.reshape(hosts // size, size)


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
