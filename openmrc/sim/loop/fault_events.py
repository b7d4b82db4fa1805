"""Faults as the loop reads them: four columns, sorted by time.

`sim.scenario.timeline` creates them from a schedule.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike

from openmrc.core.arrays import Ints


class FaultKind(IntEnum):
    """Effect of a fault on its subject; a value of 0 ends it, of LINK_RATE that of the link."""

    LINK_DOWN = 0  # directed link: value 1, loses all queued packets, those in flight, and new ones
    LINK_RATE = 1  # directed link: value is the new rate in bit/s
    LINK_LOSS = 2  # directed link: value in 1e-9, the share of packets lost at random
    LINK_DATA_LOSS = 3  # directed link: value in 1e-9, the share of packets of data lost at random
    LINK_BIT_ERRORS = 4  # directed link: value in 1e-18, the rate of bit errors; a packet with one is lost
    LINK_DELAY = 5  # directed link: value in ps, added to the link's delay
    LINK_JITTER = 6  # directed link: value in ps, upper bound of the random addition to the delay
    LINK_DUPLICATE = 7  # directed link: value in 1e-9, the share of packets that are duplicated
    LINK_REORDER = 8  # directed link: value in 1e-9, the share of packets that are overtaken
    LINK_TRIM = 9  # directed link: value in 1e-9, the share of packets trimmed to their headers
    LINK_MTU = 10  # directed link: value in bytes; longer packets are lost
    PORT_DOWN = 11  # NIC x 64 + port: value 1, the NIC detects that its port is down (its links fail by LINK_DOWN)
    ROUTE_WITHDRAWN = 12  # directed link between switches: value 1, withdrawn from all routing tables
    PORT_WITHDRAWN = 13  # NIC x 64 + port: value 1, withdrawn from all routing tables
    BOND_LEFT = 14  # NIC x 64 + port: value 1, the NIC's bond no longer sends on it


@dataclass(frozen=True)
class Faults:
    """Columns of equal length, sorted by `at`."""

    at: Ints  # ps
    kind: Ints  # FaultKind
    subject: Ints  # meaning depends on the kind
    value: Ints  # meaning depends on the kind


def faults(at: ArrayLike = (), kind: ArrayLike = (), subject: ArrayLike = (), value: ArrayLike = 0) -> Faults:
    """Return the columns in order of time; simultaneous faults keep their order."""
    times = np.atleast_1d(np.asarray(at, dtype=np.int64))
    order = np.argsort(times, kind="stable")
    rest = (np.broadcast_to(np.asarray(part, dtype=np.int64), times.shape) for part in (kind, subject, value))
    return Faults(times[order], *(part[order] for part in rest))
