"""What was sent and lost on the paths of a simulation, at the ends of its frames."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.operations.diagnosis.silence import Crossed, rises

FINE = 64  # frames that are all kept; of older ones each `COARSE`th
COARSE = 8


@dataclass(frozen=True)
class _AtFrame:
    number: int
    sent: Ints
    lost: Ints


class FrameCounts:
    """Counts since the run began, of the last `longest` frames."""

    def __init__(self, longest: int, sent: Ints, lost: Ints) -> None:
        self._longest = longest
        self._moments = [_AtFrame(0, sent, lost)]

    @property
    def number(self) -> int:
        """Return the number of the last frame."""
        return self._moments[-1].number

    def add(self, sent: Ints, lost: Ints) -> None:
        """Take in the counts at the end of one more frame."""
        now = self.number + 1
        self._moments.append(_AtFrame(now, sent, lost))
        self._moments = [each for each in self._moments if self._is_kept(now - each.number, each.number)]

    def window(self, length: int, rows: Ints) -> tuple[Ints, Ints]:
        """Return (sent, lost) of some rows in the last `length` frames, or in up to `COARSE` more."""
        return self._between(self._moments[self._first(length)], rows)

    def since_rises(self, length: int, rows: Ints, of: Ints) -> list[Crossed]:
        """Return what crossed these rows since the frames of a window before those `of` them lost something."""
        moments = self._moments[self._first(length) :]
        before = rises([int(each.lost[rows[of]].sum()) for each in moments]) or [0]
        found = [(moments[at], self._between(moments[at], rows)) for at in before]
        return [Crossed(each.number, sent.astype(np.float64), lost) for each, (sent, lost) in found]

    def lost_by_frame(self, length: int, rows: Ints) -> Ints:
        """Return what some rows lost in each frame of a window, a row a frame."""
        moments = self._moments[self._first(length) :]
        return np.diff(np.array([each.lost[rows] for each in moments]), axis=0)

    def _first(self, length: int) -> int:
        least = self.number - length
        return next((at for at in reversed(range(len(self._moments))) if self._moments[at].number <= least), 0)

    def _between(self, then: _AtFrame, rows: Ints) -> tuple[Ints, Ints]:
        now = self._moments[-1]
        return now.sent[rows] - then.sent[rows], now.lost[rows] - then.lost[rows]

    def _is_kept(self, age: int, number: int) -> bool:
        return age <= FINE or (age <= self._longest + COARSE and number % COARSE == 0)
