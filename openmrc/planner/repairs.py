"""Failures that are not repaired yet: a heap of repairs by time, and the pace of the slowest NIC."""

from openmrc.core import heap
from openmrc.core.jit import kernel, rare_kernel
from openmrc.planner.rows import NONE, Effect, Month


@kernel
def clear(month: Month) -> None:
    row = month.job[0]
    row.heap_count = 0
    row.overflow = 0
    row.free = 0
    count = len(month.open)
    for slot in range(count):
        month.open[slot].next_free = slot + 1 if slot + 1 < count else NONE
        month.due[slot].slot = heap.NONE
    for nic in range(len(month.nics)):
        month.nics[nic].lost = 0
    for planes in range(len(month.lost)):
        month.lost[planes].count = 0
    month.lost[0].count = len(month.nics)
    for cause in range(len(month.active)):
        month.active[cause].count = 0
    pace(month)


@rare_kernel
def begin(month: Month, cause: int, part: int, until: float) -> None:
    """Record a failure, or with cause NONE a host that returns to the spares."""
    job = month.job[0]
    slot = job.free
    if slot == NONE:
        job.overflow += 1
        return
    row = month.open[slot]
    job.free = row.next_free
    row.at, row.cause, row.part = until, cause, part
    heap.arm(job, month.due, slot, until)
    if cause != NONE:
        _change(month, cause, part, 1)


@rare_kernel
def end_first(month: Month) -> int:
    """Take the earliest repair off the heap; return its cause, or NONE."""
    job = month.job[0]
    slot = heap.take_first(job, month.due)
    row = month.open[slot]
    row.next_free = job.free
    job.free = slot
    if row.cause == NONE:
        job.spares += 1
        return NONE
    _change(month, row.cause, row.part, -1)
    return int(row.cause)


@rare_kernel
def swap(month: Month) -> None:
    """Replace degraded hosts by spares; their repair returns them to the spares."""
    job = month.job[0]
    for index in range(job.heap_count):
        row = month.open[month.due[index].item]
        if row.cause != NONE and month.causes[row.cause].is_swappable and job.spares > 0:
            _change(month, row.cause, row.part, -1)
            job.spares -= 1
            row.cause = NONE


@kernel
def first(month: Month) -> float:
    """Return when the next repair ends, or a time beyond every job."""
    return heap.first_at(month.job[0], month.due)


@kernel
def worst(month: Month) -> int:
    """Return how many planes the slowest NIC has lost."""
    planes = len(month.lost) - 1
    while planes > 0 and month.lost[planes].count == 0:
        planes -= 1
    return planes


@kernel
def pace(month: Month) -> None:
    """Set the length of a step: the slowest of all failures decides, because every step waits for the last NIC."""
    job = month.job[0]
    job.step = month.operator[0].calm_step
    job.slowest = NONE
    for cause in range(len(month.causes)):
        if month.active[cause].count > 0:
            row = month.causes[cause]
            step = month.lost[min(worst(month), len(month.lost) - 1)].step if row.effect == Effect.PLANES else row.step
            if step > job.step:
                job.step = step
                job.slowest = cause


@kernel
def _change(month: Month, cause: int, part: int, by: int) -> None:
    row = month.causes[cause]
    month.active[cause].count += by
    if row.effect == Effect.PLANES:
        for index in range(row.nics):
            nic = month.nics[(part + index) % len(month.nics)]
            month.lost[nic.lost].count -= 1
            nic.lost = min(max(nic.lost + by * row.planes, 0), len(month.lost) - 1)
            month.lost[nic.lost].count += 1
    pace(month)
