"""Rows of the month: what can fail, the job's state, and where its time goes. Times are s, rates per second."""

from __future__ import annotations

from enum import IntEnum
from numbers import Integral, Real
from typing import TYPE_CHECKING, NamedTuple, get_type_hints

from openmrc.core.rows import Bool, Float, Int, Int8, Int32, Table
from openmrc.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


_EXPECTED = {bool: (bool, "true or false"), int: (Integral, "a whole number"), float: (Real, "a number"),
             str: (str, "a text")}  # fmt: skip


def check_types(described: DataclassInstance) -> None:
    """Refuse fields that are of another type than declared; numbers may be NumPy's. A `ConfigError` names the field."""
    for name, declared in get_type_hints(type(described)).items():
        value = getattr(described, name)
        kind, words = _EXPECTED.get(declared, (object, ""))
        if not isinstance(value, kind) or (isinstance(value, bool) and kind in (Integral, Real)):
            raise ConfigError(f"{name.replace('_', '-')} = {value!r}; {words} is expected")


NONE = -1
BUCKETS = 10  # of Spent


class Effect(IntEnum):
    """What a cause does to the job."""

    SLOW = 0  # the job continues at a lower pace until the part is repaired
    PLANES = 1  # likewise: NICs lose planes, and the job stops when one has lost more than it may
    STOP = 2  # the job stops; hosts are replaced
    STALL = 3  # the job waits for the part, and stops when that takes longer than the transport's retries


class Spent(IntEnum):
    """Where a job's time goes; the buckets add up to the wall clock."""

    USEFUL = 0
    CONGESTION = 1  # the network's inefficiency without a failure
    SLOWER = 2  # failures that slow the job down
    STALLED = 3  # waiting for the network to react or to come back
    NETWORK_DOWN = 4  # stops by the network: detection, diagnosis, restart
    NETWORK_REDONE = 5  # work since the last checkpoint, done again
    HOST_DOWN = 6
    HOST_REDONE = 7
    CHECKPOINTS = 8  # the job waits for its own checkpoints
    PLANNED_DOWN = 9  # evictions


class FailureRow:
    """One kind of failure; its total rate over all parts."""

    rate: Float  # per second, of all parts together
    mean_s: Float  # until it is repaired
    nics: Int32  # that one failure concerns
    hosts: Int32  # that a stop replaces
    planes: Int32  # that each of these NICs loses
    effect: Int8
    is_host: Int8  # 1: not the network's; also its stream of draws
    is_swappable: Bool  # the operator can replace the host instead of waiting for the repair
    step: Float  # length of a step while it lasts, relative to the ideal one
    once_s: Float  # the job stands so long when it begins
    again_s: Float  # and when it ends


class Operator:
    """The policy and the constants of a job; one row."""

    horizon_s: Float
    most_lost: Int  # planes that a NIC may lose before the job stops to replace it
    calm_step: Float  # length of a step without a failure, relative to the ideal one
    detect_s: Float  # until a host's failure stops the job
    patience_s: Float  # the transport's retries
    diagnose_s: Float
    restart_s: Float
    checkpoint_s: Float  # time between two checkpoints
    pause_s: Float  # that the job waits for each
    lag_s: Float  # until a checkpoint can be restored
    spares: Int  # hosts
    next_stop_s: Float  # mean time to the next stop, at which degraded hosts are swapped anyway
    swaps: Bool  # degraded NICs are replaced at every stop
    evicts: Bool  # and at a checkpoint, when it pays
    infant: Float  # failures at the beginning are (1 + infant) times as frequent
    infant_s: Float  # time constant of that


class Lost:
    """Length of a step with this many planes lost at the slowest NIC; and how many NICs have lost that many."""

    step: Float
    count: Int


class NicState:
    """Planes that a NIC has lost."""

    lost: Int8


class Open:
    """A failure that has not been repaired."""

    at: Float  # when it will be
    cause: Int32  # NONE: a host returns to the spares
    part: Int32  # the first NIC
    next_free: Int32


class Due:
    """An entry of the heap of repairs, and the place of a row of `open` in it (`core.heap`)."""

    at: Float
    item: Int32
    slot: Int32


class DrawStream:
    """Random numbers of a job: two generators combined."""

    xorshift: Int
    counter: Int


class JobState:
    """State of one job; one row."""

    now: Float
    heap_base: Int32  # of repairs, in `Month.due`: 0
    heap_count: Int32
    free: Int32  # first free row of `open`, or NONE
    overflow: Int32
    spares: Int
    progress: Float  # useful seconds so far
    saved: Float  # of the last checkpoint that can be restored
    pending: Float  # of the one that is being written
    pending_at: Float  # when it can be restored
    debt: Float  # seconds for which the job waits
    runs_at: Float  # the job is stopped until then
    down: Int32  # Spent: what the stop counts as
    checkpoint_at: Float
    step: Float
    slowest: Int32  # the cause that sets the pace, or NONE


class Total:
    """One cause in one job."""

    count: Int
    stops: Int
    lost_s: Float


class Spending:
    """One bucket of one job."""

    seconds: Float


class Month(NamedTuple):
    """All tables of the jobs that one thread simulates."""

    operator: Table[Operator]
    causes: Table[FailureRow]
    lost: Table[Lost]  # by number of planes
    nics: Table[NicState]
    active: Table[Total]  # by cause: failures not repaired
    open: Table[Open]
    due: Table[Due]
    job: Table[JobState]
    draws: Table[DrawStream]  # of the network's failures, and of the hosts'
    spent: Table[Spending]  # job x Spent
    totals: Table[Total]  # job x cause
