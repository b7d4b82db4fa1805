"""Random numbers that an attacker must guess: QPNs and R_Keys, from the operating system's generator.

A forged packet must name a QPN, a PSN in its window and, to reach memory, an R_Key. Some bits of QPN and R_Key select
the row in the engine; all others are random.
"""

import secrets

import numpy as np

from openmrc.core.rows import column
from openmrc.engine.state.queue_pairs import QPN_MASK
from openmrc.engine.state.tables import Engine

_KEYS = 1 << 32


class QueuePairNumbers:
    """Draws the QPNs of an endpoint that owns its engine."""

    def __init__(self, engine: Engine) -> None:
        self._numbers = column(engine.qps, "qpn")
        self._step = int(engine.endpoints[0].qpn_slot_mask) + 1
        self._choices = (QPN_MASK + 1) // self._step
        drawn = np.array([secrets.randbelow(self._choices) for _ in self._numbers], np.int64)
        self._numbers[:] += drawn * self._step

    def renew(self, row: int) -> None:
        """Give a queue pair in RESET a number other than its current and its previous one."""
        # RESET advanced it by one step; this many more never return to the previous number.
        further = secrets.randbelow(self._choices - 1)
        self._numbers[row] = (self._numbers[row] + further * self._step) & QPN_MASK


class RegionKeys:
    """Draws the R_Keys of memory regions; each selects its own row."""

    def __init__(self, regions: int) -> None:
        """Start with this many free rows."""
        self._regions = regions
        self._free = list(range(regions - 1, -1, -1))

    def draw(self) -> int:
        """Return a random key with a free row, and reserve that row; 0 if all rows are used."""
        if not self._free:
            return 0
        row = self._free.pop()
        key = 0
        while key == 0:  # 0 means no region
            key = secrets.randbelow(_KEYS // self._regions) * self._regions + row
        return key

    def give_back(self, key: int) -> None:
        """Free the row of a key that `draw` returned."""
        self._free.append(key % self._regions)
