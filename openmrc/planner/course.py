"""The event simulation of a job: failures come, parts are repaired, the job runs, waits, stops, restarts.

    failure -> SLOW, PLANES   the pace of the slowest NIC, until the repair
            -> STALL          wait, or stop after the transport's retries
            -> STOP           back to the last checkpoint, hosts replaced by spares
    stop    -> patience or detection, diagnosis, restart; a failure meanwhile begins it anew
    resume  -> degraded NICs were swapped, if the policy says so; checkpoints again

Every draw comes from the job's own streams, so that a job is the same whichever thread simulates it.
"""

import math

from openmrc.core import rng
from openmrc.core.jit import entry, kernel, rare_kernel
from openmrc.planner import repairs
from openmrc.planner.rows import NONE, Effect, Month, Spent
from openmrc.planner.spending import advance, blame, restore, save, spend

_MASK = (1 << 32) - 1
_SCALE = 1.0 / (1 << 32)


@kernel
def seed_draws(month: Month, number: int, job: int) -> None:
    """Seed both streams of a job."""
    for stream in range(len(month.draws)):
        row = month.draws[stream]
        row.xorshift = rng.seeded(number, 4 * job + 2 * stream)
        row.counter = rng.seeded(number, 4 * job + 2 * stream + 1)


@kernel
def uniform(month: Month, host: int) -> float:
    """Return the next number of the network's stream, or of the hosts' (1), in (0, 1)."""
    row = month.draws[host]
    row.xorshift = rng.following(row.xorshift)
    row.counter = (row.counter * 1664525 + 1013904223) & _MASK
    return (((row.xorshift + row.counter) & _MASK) + 0.5) * _SCALE


@kernel
def exponential(u: float, mean: float) -> float:
    return -mean * math.log(u)


@entry
def run_jobs(month: Month, seed: int, first: int, count: int) -> int:
    """Simulate jobs `first` to `first + count`; return how many failures did not fit into the tables."""
    overflow = 0
    for job in range(count):
        _run(month, seed, first + job, job)
        overflow += month.job[0].overflow
    return overflow


@kernel
def _run(month: Month, seed: int, number: int, job: int) -> None:
    row, operator = month.job[0], month.operator[0]
    _begin(month, seed, number)
    rates = _rate(month, 0), _rate(month, 1)
    network_at, host_at = _next(month, 0, rates[0]), _next(month, 1, rates[1])
    while True:
        at = min(min(network_at, host_at), min(repairs.first(month), max(row.checkpoint_at, row.runs_at)))
        if at >= operator.horizon_s:
            break
        advance(month, job, at)
        if at == network_at:
            _fail(month, job, _drawn(month, 0, rates[0]))
            network_at = _next(month, 0, rates[0])
        elif at == host_at:
            _fail(month, job, _drawn(month, 1, rates[1]))
            host_at = _next(month, 1, rates[1])
        elif at == repairs.first(month):
            _repair(month, job)
        else:
            _checkpoint(month, job)
    advance(month, job, operator.horizon_s)


@rare_kernel
def _begin(month: Month, seed: int, number: int) -> None:
    row, operator = month.job[0], month.operator[0]
    row.now = row.progress = row.saved = row.pending = row.debt = 0.0
    row.pending_at = row.runs_at = 0.0
    row.down = Spent.NETWORK_DOWN
    row.checkpoint_at = operator.checkpoint_s
    row.spares = operator.spares
    seed_draws(month, seed, number)
    repairs.clear(month)


@kernel
def _rate(month: Month, host: int) -> float:
    total = 0.0
    for cause in range(len(month.causes)):
        if month.causes[cause].is_host == host:
            total += month.causes[cause].rate
    return total


@kernel
def _next(month: Month, host: int, rate: float) -> float:
    """Return when the next failure of the network or of the hosts comes; early ones by thinning the largest rate."""
    row, operator = month.job[0], month.operator[0]
    at = row.now
    if rate <= 0.0:
        return 1e300
    while True:
        u = uniform(month, host)
        at += exponential(u, 1.0 / (rate * (1.0 + operator.infant)))
        if operator.infant == 0.0:
            return at
        keep = uniform(month, host)
        if keep * (1.0 + operator.infant) <= 1.0 + operator.infant * math.exp(-at / operator.infant_s):
            return at


@kernel
def _drawn(month: Month, host: int, rate: float) -> int:
    """Return which of the causes it is."""
    left = uniform(month, host) * rate
    last = 0
    for cause in range(len(month.causes)):
        if month.causes[cause].is_host == host and month.causes[cause].rate > 0.0:
            last = cause
            left -= month.causes[cause].rate
            if left <= 0.0:
                return cause
    return last


@rare_kernel
def _fail(month: Month, job: int, cause: int) -> None:
    kind = month.causes[cause]
    u, v = uniform(month, kind.is_host), uniform(month, kind.is_host)
    part = int(u * len(month.nics)) // kind.nics * kind.nics if kind.nics > 0 else 0
    seconds = exponential(v, kind.mean_s)
    total = month.totals[job * len(month.causes) + cause]
    total.count += 1
    match kind.effect:
        case Effect.STOP:
            _stop(month, job, cause, seconds)
        case Effect.STALL:
            _stall(month, job, cause, seconds)
        case _:
            _slow_down(month, job, cause, part, seconds)


@kernel
def _slow_down(month: Month, job: int, cause: int, part: int, seconds: float) -> None:
    """Let the job go on beside a failure; stop it if a NIC has lost too many planes."""
    row, kind = month.job[0], month.causes[cause]
    lost = month.nics[part].lost if kind.effect == Effect.PLANES else 0
    if kind.effect == Effect.PLANES and lost + kind.planes > month.operator[0].most_lost:
        _stop(month, job, cause, seconds)
        return
    _owe(month, job, cause, kind.once_s)
    repairs.begin(month, cause, part, row.now + seconds)


@kernel
def _owe(month: Month, job: int, cause: int, seconds: float) -> None:
    """Let the job stand for a time; nothing is lost by it while the job is stopped anyway."""
    row = month.job[0]
    if row.runs_at <= row.now or row.down == Spent.CHECKPOINTS:
        row.debt += seconds
        blame(month, job, cause, seconds)


@kernel
def _stall(month: Month, job: int, cause: int, seconds: float) -> None:
    """Wait for a part; stop if it takes longer than the transport tries."""
    if seconds > month.operator[0].patience_s:
        _stop(month, job, cause, seconds)
        return
    _owe(month, job, cause, seconds + month.causes[cause].again_s)


@rare_kernel
def _stop(month: Month, job: int, cause: int, seconds: float) -> None:
    """Stop the job: back to the last checkpoint, and a restart with other hosts."""
    row, operator, kind = month.job[0], month.operator[0], month.causes[cause]
    host = kind.is_host
    notices = operator.detect_s if host else operator.patience_s
    redone = _roll_back(month, job, Spent.HOST_REDONE if host else Spent.NETWORK_REDONE)
    waited = _take_spares(month, job, cause, seconds)
    if operator.swaps:
        repairs.swap(month)
    total = month.totals[job * len(month.causes) + cause]
    total.stops += 1
    down = notices + operator.diagnose_s + operator.restart_s
    extends = max(0.0, row.now + down + waited - max(row.runs_at, row.now))
    total.lost_s += redone + min(extends, operator.horizon_s - row.now)
    row.runs_at = max(row.runs_at, row.now + down + waited)
    row.down = Spent.HOST_DOWN if host else Spent.NETWORK_DOWN
    row.debt = 0.0
    row.checkpoint_at = row.runs_at + operator.checkpoint_s


@kernel
def _roll_back(month: Month, job: int, bucket: int) -> float:
    """Return to the last checkpoint; return the useful time (s) that is done again."""
    row = month.job[0]
    restore(month)
    redone = row.progress - row.saved
    row.progress = row.pending = row.saved
    spend(month, job, Spent.USEFUL, -redone)
    spend(month, job, bucket, redone)
    return redone


@kernel
def _take_spares(month: Month, job: int, cause: int, seconds: float) -> float:
    """Take the spares that a failure needs; return the time (s) to wait for what is missing.

    Hosts behind a switch that is back before they could be replaced are waited for.
    """
    row, kind = month.job[0], month.causes[cause]
    if kind.hosts <= row.spares:
        row.spares -= kind.hosts
        for _ in range(kind.hosts):
            repairs.begin(month, NONE, 0, row.now + seconds)
        return 0.0
    if kind.hosts > 1:
        wait = seconds
    else:
        wait = min(seconds, max(0.0, repairs.first(month) - row.now))
    return wait


@rare_kernel
def _repair(month: Month, job: int) -> None:
    cause = repairs.end_first(month)
    if cause != NONE:
        _owe(month, job, cause, month.causes[cause].again_s)


@rare_kernel
def _checkpoint(month: Month, job: int) -> None:
    """Take a checkpoint; replace degraded hosts if what they would cost is more than a restart."""
    row, operator = month.job[0], month.operator[0]
    if row.runs_at > row.now or row.debt > 0.0:
        row.checkpoint_at = max(row.runs_at, row.now + row.debt) + 1.0
        return
    save(month, job)
    if not operator.evicts or row.slowest == NONE or row.spares == 0:
        return
    kind = month.causes[row.slowest]
    would_lose = min(kind.mean_s, operator.next_stop_s) * (row.step - operator.calm_step) / row.step
    if kind.is_swappable and would_lose > operator.restart_s:
        cause = int(row.slowest)
        row.saved = row.pending = row.progress
        repairs.swap(month)
        row.runs_at, row.down = row.runs_at + operator.restart_s, Spent.PLANNED_DOWN
        row.checkpoint_at = row.runs_at + operator.checkpoint_s
        blame(month, job, cause, operator.restart_s)
