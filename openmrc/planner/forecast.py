"""Simulate a job many times: `forecast(situation, days, jobs, seed)`.

The same seed gives the same numbers on any number of threads: a job depends on its number alone.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from openmrc.core.arrays import Floats
from openmrc.core.rows import column, table
from openmrc.errors import ConfigError
from openmrc.planner import rows
from openmrc.planner.causes import HOUR, FailureKind, Situation, failure_kinds, lost_planes, most_lost
from openmrc.planner.course import run_jobs
from openmrc.planner.rows import Effect, Month, Spent

MOST_OPEN = 1 << 15  # failures that are not repaired at a time
MOST_JOBS = 100_000  # their mean is then known to a thousandth of their spread
MOST_FAILURES = 1e8  # of one job: more is a mistake in the rates
BATCH = 10  # jobs that a thread takes at a time
NETWORK = (Spent.CONGESTION, Spent.SLOWER, Spent.STALLED, Spent.NETWORK_DOWN, Spent.NETWORK_REDONE, Spent.PLANNED_DOWN)
HOST = (Spent.HOST_DOWN, Spent.HOST_REDONE)


@dataclass(frozen=True)
class Forecast:
    """What jobs lost: shares of the wall clock, one row a job."""

    situation: Situation
    kinds: list[FailureKind]
    days: float
    seed: int
    spent: Floats  # jobs x Spent, s
    counts: Floats  # jobs x kinds
    stops: Floats
    lost: Floats  # jobs x kinds, s

    @property
    def seconds(self) -> float:
        return self.days * 24 * HOUR

    @property
    def goodput(self) -> Floats:
        """Return the useful share of each job's time."""
        share: Floats = self.spent[:, Spent.USEFUL] / self.seconds
        return share

    def share(self, *buckets: Spent) -> float:
        """Return the mean share of the time that went into these buckets."""
        return float(self.spent[:, list(buckets)].sum(axis=1).mean() / self.seconds)

    @property
    def network_loss(self) -> float:
        """Return the share of the time that the network took."""
        return self.share(*NETWORK)

    def by_cause(self) -> list[dict[str, Any]]:
        """Return a row a kind of failure, the costliest first; numbers are means of a job."""
        made = [
            {
                "cause": kind.name,
                "where": kind.where,
                "count": float(self.counts[:, at].mean()),
                "stops": float(self.stops[:, at].mean()),
                "lost_percent": 100 * float(self.lost[:, at].mean()) / self.seconds,
                "step": kind.step,
                "once_s": kind.once_s,
            }
            for at, kind in enumerate(self.kinds)
        ]
        return sorted(made, key=lambda row: -row["lost_percent"])


def forecast(
    situation: Situation, days: float = 30.0, jobs: int = 200, seed: int = 1, threads: int = 1, infant: float = 0.0
) -> Forecast:
    """Simulate `jobs` jobs of `days`; `infant`: how much more often parts fail at the beginning, fading in a week."""
    if not 0 < days <= 3660:
        raise ConfigError(f"days = {days:g}; more than 0 and at most 3660 is allowed")
    if not 1 <= jobs <= MOST_JOBS:
        raise ConfigError(f"jobs = {jobs}; 1 to {MOST_JOBS} is allowed")
    if not 0 <= infant <= 100:
        raise ConfigError(f"infant = {infant:g}; 0 to 100 is allowed")
    kinds = failure_kinds(situation)
    expected = sum(kind.per_hour for kind in kinds) * days * 24 * (1 + infant)
    if expected > MOST_FAILURES:
        worst = max(kinds, key=lambda kind: kind.per_hour)
        raise ConfigError(
            f"{expected:,.0f} failures in a job are more than {MOST_FAILURES:,.0f}; check the rates of the parts, "
            f"first that of {worst.name}: {worst.per_hour:,.0f} an hour"
        )

    def batch(first: int) -> Month:
        count = min(BATCH, jobs - first)
        month = tables(situation, kinds, days, count, infant)
        if run_jobs(month, seed, first, count):
            raise ConfigError(f"more than {MOST_OPEN:,} failures at a time; check rates and repair times")
        return month

    pool = ThreadPoolExecutor(threads)
    try:
        months = list(pool.map(batch, range(0, jobs, BATCH)))
    finally:
        pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C, batches that run end, and no other begins

    def joined(name: str, field: str, width: int) -> Floats:
        parts = [column(getattr(month, name), field).reshape(-1, width) for month in months]
        return np.concatenate(parts).astype(np.float64)

    width = len(kinds)
    return Forecast(
        situation, kinds, days, seed, joined("spent", "seconds", len(Spent)), joined("totals", "count", width),
        joined("totals", "stops", width), joined("totals", "lost_s", width),
    )  # fmt: skip


def tables(situation: Situation, kinds: list[FailureKind], days: float, jobs: int, infant: float) -> Month:
    lost = lost_planes(situation) if situation.design.planes > 1 else [situation.calm_step]
    month = Month(
        operator=table(rows.Operator, 1), causes=table(rows.FailureRow, len(kinds)), lost=table(rows.Lost, len(lost)),
        nics=table(rows.NicState, situation.design.nics), active=table(rows.Total, len(kinds)),
        open=table(rows.Open, MOST_OPEN), due=table(rows.Due, MOST_OPEN), job=table(rows.JobState, 1),
        draws=table(rows.DrawStream, 2),
        spent=table(rows.Spending, jobs * len(Spent)), totals=table(rows.Total, jobs * len(kinds)),
    )  # fmt: skip
    column(month.lost, "step")[:] = lost
    _fill_causes(month, kinds)
    _fill_operator(month, situation, days, infant)
    stops = sum(kind.per_hour for kind in kinds if kind.effect == Effect.STOP)
    month.operator[0].next_stop_s = HOUR / stops if stops else days * 24 * HOUR
    return month


def _fill_causes(month: Month, kinds: list[FailureKind]) -> None:
    for row, kind in zip(month.causes, kinds, strict=True):
        row.rate, row.is_host = kind.per_hour / HOUR, kind.where == "host"
        for name in ("mean_s", "effect", "step", "nics", "hosts", "planes", "is_swappable", "once_s", "again_s"):
            setattr(row, name, getattr(kind, name))


def _fill_operator(month: Month, situation: Situation, days: float, infant: float) -> None:
    row, policy = month.operator[0], situation.policy
    row.horizon_s = days * 24 * HOUR
    row.most_lost = most_lost(situation)
    row.calm_step = situation.calm_step
    for name in ("detect_s", "patience_s", "diagnose_s", "restart_s", "checkpoint_s", "pause_s", "lag_s"):
        setattr(row, name, getattr(policy, name))
    row.spares = round(policy.spares * situation.design.nics / situation.nics_per_host)
    row.swaps, row.evicts = policy.swap, policy.evict
    row.infant, row.infant_s = infant, 7 * 24 * HOUR
