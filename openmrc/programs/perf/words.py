"""The messages between the two ends of `mrc perf`."""

from enum import Enum
from typing import Annotated

import msgspec
from msgspec import Meta

from openmrc.programs.endpoint.shares import PlaneShare

LARGEST_SIZE = 1 << 30  # bytes of one write
MOST_QUEUE_PAIRS = 64
Size = Annotated[int, Meta(ge=1, le=LARGEST_SIZE)]
Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
Seconds = Annotated[float, Meta(ge=0)]


class Test(Enum):
    BANDWIDTH = "RDMA_Write_BW"
    LATENCY = "RDMA_Write_Lat"


class PerfPlan(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The client's plan; sent with the first queue pair's attributes."""

    test: Test = Test.BANDWIDTH
    sizes: Annotated[list[Size], Meta(min_length=1, max_length=64)]  # bytes of one write, one run each
    iterations: Count = 5000  # per queue pair; 0: for `duration`
    duration: Seconds = 0.0  # s; 0: for `iterations`; infinite: until interrupted
    warmup: Count = 0  # iterations
    depth: Annotated[int, Meta(ge=1, le=256)] = 128  # writes outstanding per queue pair
    per_completion: Annotated[int, Meta(ge=0, le=256)] = 0  # writes; 0: chosen by their size and the rate
    queue_pairs: Annotated[int, Meta(ge=1, le=MOST_QUEUE_PAIRS)] = 1
    both_ways: bool = False
    immediate: bool = False
    faults: str | None = None  # a schedule, as text, for both ends


class Start(msgspec.Struct, tag="start", forbid_unknown_fields=True):
    """Client: a run of writes of this size follows."""

    size: Size
    iterations: Count
    duration: Seconds


class Ready(msgspec.Struct, tag="ready", forbid_unknown_fields=True):
    """Server: its receives are posted."""


class Tick(msgspec.Struct, tag="tick", forbid_unknown_fields=True):
    """Either: a keepalive with the bytes sent so far."""

    bytes: Count


class Taken(msgspec.Struct, tag="taken", forbid_unknown_fields=True):
    """Either: the number of a queue pair's immediates received so far, each replaced by a new receive."""

    lane: Count
    count: Count


class Done(msgspec.Struct, tag="done", forbid_unknown_fields=True):
    """Either: all of our writes have completed."""

    iterations: Count
    bytes: Count
    seconds: Seconds
    peak_bps: Annotated[float, Meta(ge=0)]  # 0: a timed run
    late: Count = 0  # writes that completed when the time of a timed run was over, and do not count


class Carried(msgspec.Struct, tag="carried", forbid_unknown_fields=True):
    """Server: per-plane counters of a run."""

    planes: list[PlaneShare]


class Bye(msgspec.Struct, tag="bye", forbid_unknown_fields=True):
    """Client: no run follows."""


Words = Start | Ready | Tick | Taken | Done | Carried | Bye
