"""Divide hosts into groups of equal size, one per collective."""

from __future__ import annotations

from typing import Literal

import numpy as np

from openmrc.errors import ConfigError
from openmrc.sim.workloads.plan import Ids

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
