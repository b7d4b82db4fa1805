"""The job's clock: where its time goes."""

from openmrc.core.jit import kernel
from openmrc.planner.rows import BUCKETS, NONE, Month, Spent


@kernel
def spend(month: Month, job: int, bucket: int, seconds: float) -> None:
    month.spent[job * BUCKETS + bucket].seconds += seconds


@kernel
def blame(month: Month, job: int, cause: int, seconds: float) -> None:
    """Count time that a cause took from a job."""
    month.totals[job * len(month.causes) + cause].lost_s += seconds


@kernel
def advance(month: Month, job: int, until: float) -> None:
    """Let a job run, wait or stay stopped until a time."""
    row = month.job[0]
    span = until - row.now
    row.now = until
    if row.runs_at > until - span:
        down = min(span, row.runs_at - (until - span))
        spend(month, job, row.down, down)
        span -= down
    waits = min(span, row.debt)
    row.debt -= waits
    spend(month, job, Spent.STALLED, waits)
    span -= waits
    calm = month.operator[0].calm_step
    row.progress += span / row.step
    spend(month, job, Spent.USEFUL, span / row.step)
    spend(month, job, Spent.CONGESTION, span * (calm - 1.0) / row.step)
    spend(month, job, Spent.SLOWER, span * (row.step - calm) / row.step)
    if row.slowest != NONE:
        blame(month, job, row.slowest, span * (row.step - calm) / row.step)


@kernel
def save(month: Month, job: int) -> None:
    """Take a checkpoint; the next one waits until this one can be restored, as one is written at a time."""
    row, operator = month.job[0], month.operator[0]
    restore(month)
    row.pending, row.pending_at = row.progress, row.now + operator.pause_s + operator.lag_s
    if operator.lag_s == 0.0 and operator.pause_s == 0.0:
        row.saved = row.progress
    row.runs_at, row.down = row.now + operator.pause_s, Spent.CHECKPOINTS
    row.checkpoint_at = row.now + operator.pause_s + max(operator.checkpoint_s, operator.lag_s)


@kernel
def restore(month: Month) -> None:
    """Let the pending checkpoint count, if it is complete."""
    row = month.job[0]
    if row.pending_at <= row.now:
        row.saved = max(row.saved, row.pending)
