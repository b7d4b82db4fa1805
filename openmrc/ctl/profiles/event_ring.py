"""The places of a queue of EV events that cannot overrun, for readers in Python and in C (`mrc_ctl_ev_event`).

A full queue drops its oldest event and counts. The first event that a reader gets next says how many there were before
it that it does not get: drop counts and delivered events add up to those that happened. Whoever owns the queue keeps
the events themselves, at the places that are returned.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from openmrc.core.jit import kernel

Words = NDArray[np.int64]


class RingColumn(IntEnum):
    CAPACITY = 0
    OLDEST = 1  # number of the oldest event that is kept
    NEXT = 2  # number of the next one
    DROPPED = 3  # events before the oldest that no reader was told of
    REPORTED = 4  # what the reader of the event that was last taken is told


def new_ring(capacity: int) -> Words:
    """Return an empty ring for so many events."""
    ring = np.zeros(len(RingColumn), np.int64)
    ring[RingColumn.CAPACITY] = capacity
    return ring


@kernel
def push(ring: Words) -> int:
    """Return the place of a new event; if there is no room it is that of the oldest, which is dropped."""
    if ring[RingColumn.NEXT] - ring[RingColumn.OLDEST] == ring[RingColumn.CAPACITY]:
        ring[RingColumn.OLDEST] += 1
        ring[RingColumn.DROPPED] += 1
    place = int(ring[RingColumn.NEXT] % ring[RingColumn.CAPACITY])
    ring[RingColumn.NEXT] += 1
    return place


@kernel
def lose(ring: Words, count: int) -> None:
    """Count events that were lost before they came here."""
    ring[RingColumn.DROPPED] += count


@kernel
def take(ring: Words) -> int:
    """Return the place of the oldest event and remove it, with `REPORTED` the drops before it; -1: there is none."""
    if ring[RingColumn.NEXT] == ring[RingColumn.OLDEST]:
        return -1
    place = int(ring[RingColumn.OLDEST] % ring[RingColumn.CAPACITY])
    ring[RingColumn.OLDEST] += 1
    ring[RingColumn.REPORTED] = ring[RingColumn.DROPPED]
    ring[RingColumn.DROPPED] = 0
    return place


@kernel
def held(ring: Words) -> int:
    """Return how many events wait."""
    return int(ring[RingColumn.NEXT] - ring[RingColumn.OLDEST])
