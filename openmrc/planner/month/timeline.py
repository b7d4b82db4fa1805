"""One job, event by event, and its worst day."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from openmrc.core.rows import column
from openmrc.errors import ConfigError
from openmrc.planner.month.causes import HOUR, Situation, failure_kinds
from openmrc.planner.month.course import run_jobs
from openmrc.planner.month.forecast import tables
from openmrc.planner.month.rows import BUCKETS, NONE, Happening, Spent

DAY = 24 * HOUR
MOST_MOMENTS = 1 << 20
_WORDS = {
    Happening.FAILED: "fails",
    Happening.REPAIRED: "is repaired",
    Happening.STOPPED: "stops the job",
    Happening.STALLED: "is waited for",
    Happening.SWAPPED: "is swapped out",
    Happening.EVICTED: "is evicted at a checkpoint",
    Happening.WAITED: "finds no spare",
}


@dataclass(frozen=True)
class Timeline:
    """The moments of a job, and the useful share of each of its days."""

    job: int
    moments: list[dict[str, Any]]
    days: list[float]

    @property
    def worst_day(self) -> int:
        """Return the number of the day with the smallest useful share, from 0."""
        return int(np.argmin(self.days))

    def of_day(self, day: int) -> list[dict[str, Any]]:
        """Return the moments of a day that cost something."""
        quiet = (_WORDS[Happening.FAILED], _WORDS[Happening.REPAIRED])
        return [
            each for each in self.moments if day * 24 <= each["hour"] < (day + 1) * 24 and each["what"] not in quiet
        ]


def timeline(situation: Situation, days: float, seed: int, job: int = 0, infant: float = 0.0) -> Timeline:
    """Return the timeline of one of the jobs that `forecast` simulates with the same seed."""
    kinds = failure_kinds(situation)
    whole = max(1, int(days))
    useful = []
    for day in range(1, whole + 1):
        month = tables(situation, kinds, day, 1, infant)
        run_jobs(month, seed, job, 1)
        useful.append(float(column(month.spent, "seconds")[Spent.USEFUL]))
    month = tables(situation, kinds, days, 1, infant, MOST_MOMENTS)
    run_jobs(month, seed, job, 1)
    if month.job[0].moments >= MOST_MOMENTS:
        raise ConfigError(f"a timeline has more than {MOST_MOMENTS:,} moments; ask for fewer days")
    assert len(month.spent) == BUCKETS
    names = [kind.name for kind in kinds]
    moments = [
        {"hour": row.at / HOUR, "cause": names[row.cause] if row.cause != NONE else "",
         "what": _WORDS[Happening(row.what)], "seconds": row.seconds, "nic": row.part}
        for row in (month.moments[at] for at in range(month.job[0].moments))
    ]  # fmt: skip
    return Timeline(job, moments, (np.diff(useful, prepend=0.0) / DAY).tolist())
