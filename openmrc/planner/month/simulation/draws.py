"""Random numbers of a job: two short generators combined, so that two jobs never share a sequence.

A 32-bit xorshift and a linear congruential generator of the same width, added: the period is near 2**64. The same seed
and job give the same numbers on any number of threads. The network's failures and the hosts' have streams of their own,
so that two networks meet the same host failures.
"""

from __future__ import annotations

import math

from openmrc.core import rng
from openmrc.core.jit import kernel
from openmrc.planner.month.simulation.rows import JobState, Month

_MASK = (1 << 32) - 1
_SCALE = 1.0 / (1 << 32)


@kernel
def seed(month: Month, number: int, job: int) -> None:
    """Seed both streams of a job."""
    row = month.job[0]
    row.xorshift = rng.seeded(number, 4 * job)
    row.counter = rng.seeded(number, 4 * job + 1)
    row.host_xorshift = rng.seeded(number, 4 * job + 2)
    row.host_counter = rng.seeded(number, 4 * job + 3)


@kernel
def uniform(row: JobState) -> float:
    """Return the next number of the network's stream, in (0, 1)."""
    row.xorshift = rng.following(row.xorshift)
    row.counter = (row.counter * 1664525 + 1013904223) & _MASK
    return (((row.xorshift + row.counter) & _MASK) + 0.5) * _SCALE


@kernel
def host_uniform(row: JobState) -> float:
    """Return the next number of the hosts' stream, in (0, 1)."""
    row.host_xorshift = rng.following(row.host_xorshift)
    row.host_counter = (row.host_counter * 1664525 + 1013904223) & _MASK
    return (((row.host_xorshift + row.host_counter) & _MASK) + 0.5) * _SCALE


@kernel
def exponential(u: float, mean: float) -> float:
    """Return an exponential of this mean from a uniform number."""
    return -mean * math.log(u)
