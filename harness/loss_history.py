"""Losses of the last minutes by time, and what was sent: the windows of one plane of the model."""

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.operations.diagnosis.localise import Floats
from openmrc.units import PS_PER_MS

WINDOWS_MS = (4, 16, 64, 256, 1024, 4096, 16384, 65536)


class LossHistory:
    """What the rows of a plane lost when, read as windows of time.

    `rate` is the packets a millisecond that each row sends.
    """

    def __init__(self, rate: Floats) -> None:
        self.rate = rate
        self._lost: list[tuple[Ints, Ints]] = []  # (ps, row) of lost packets, a pair of columns a report, in order
        self._extra: list[tuple[int, int, Ints, Floats]] = []  # from ps, until ps, rows, packets a ms above `rate`

    def add(self, at: Ints, rows: Ints) -> None:
        """Record the times (ps) and rows of lost packets, after those of earlier calls; forget what is too old."""
        self._lost.append((at, rows))
        oldest = int(at.max()) - WINDOWS_MS[-1] * PS_PER_MS
        while self._lost[0][0].max() < oldest:
            self._lost.pop(0)

    def change_rate(self, at: int, until: int, rows: Ints, more: Floats) -> None:
        """Record that rows send `more` additional packets a millisecond for a time (ps); negative: fewer."""
        self._extra.append((at, until, rows, more))

    def window(self, now: int, length_ms: int) -> tuple[Floats, Ints]:
        """Return (sent, lost) of every row in the last milliseconds."""
        begin = max(0, now - length_ms * PS_PER_MS)
        sent = self.rate * ((now - begin) / PS_PER_MS)
        for start, until, rows, more in self._extra:
            overlap = min(now, until) - max(begin, start)
            if overlap > 0:
                sent[rows] += more * (overlap / PS_PER_MS)
        recent = [rows[at > begin] for at, rows in self._lost if at.max() > begin]
        lost = np.bincount(np.concatenate([np.zeros(0, np.int64), *recent]), minlength=len(self.rate))
        return np.maximum(sent, lost), lost.astype(np.int64)
