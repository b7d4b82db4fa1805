"""The application API: write into another process's memory over several network planes.

It is modelled on `mrc.h` and libibverbs: a `Context` is a device opened on its planes; it has protection domains,
memory regions, completion queues and queue pairs. Queue pairs do `RDMA_WRITE` and `RDMA_WRITE_WITH_IMM`.

    with Context(planes=["127.0.0.1", "127.0.1.1"]) as context:
        region = context.alloc_pd().reg_mr(bytearray(1 << 20))
        with connect(context, "192.0.2.7", 18515, regions=[region], timeout=10) as peer:
            peer.write(region, peer.remote.regions[0], timeout=5)

`connect` and `Listener` exchange attributes over TCP and take a queue pair from RESET to RTS. Programs with another
way to exchange attributes use `QueuePair.modify`. A `Listener` that other machines can reach has a token, given or
generated, that `connect` must present.

Refused calls raise a `VerbsError` with its `errno`. Waits take a timeout in seconds, infinity included, and end with a
`DeadlineError` that names peer, planes, EVs and the last progress. The result of a posted request is the status of its
completion, not an exception.

All objects may be used from any thread, but not in a forked child. Waiting methods have an `async` counterpart with the
suffix `_async`.
"""

from openmrc.engine.responder.regions import Access
from openmrc.engine.state.machines import EvState, QpState
from openmrc.engine.state.tables import WcStatus
from openmrc.live.attributes import (
    AsyncEvent,
    AsyncEventKind,
    CaptureReport,
    ConnectionOptions,
    ContextAttr,
    DeviceAttr,
    DeviceCap,
    EvFormat,
    EvStatus,
    PeerAddress,
    PlaneCounters,
    QpAttr,
    QpCap,
    QpCounters,
    QpHintAttr,
    QpInitAttr,
    RecvWr,
    SendWr,
    WcOpcode,
    WorkCompletion,
)
from openmrc.live.errors import (
    BusyError,
    CallError,
    ClosedError,
    DeadlineError,
    ExchangeError,
    InvalidArgumentError,
    NoRoomError,
    OverrunError,
    UnusableOfferError,
    VerbsError,
)
from openmrc.live.objects.completion import CompletionChannel, CompletionQueue
from openmrc.live.objects.connecting import Connection, Listener, Remote, connect, connect_async
from openmrc.live.objects.context import Context, query_version
from openmrc.live.objects.exchange import RemoteRegion
from openmrc.live.objects.handshake import NO_TOKEN
from openmrc.live.objects.memory import MemoryRegion, ProtectionDomain, RegionSlice
from openmrc.live.objects.queue_pair import QpHint, QueuePair
from openmrc.live.objects.write_batch import WriteBatch

__all__ = [
    "NO_TOKEN",
    "Access",
    "AsyncEvent",
    "AsyncEventKind",
    "BusyError",
    "CallError",
    "CaptureReport",
    "ClosedError",
    "CompletionChannel",
    "CompletionQueue",
    "Connection",
    "ConnectionOptions",
    "Context",
    "ContextAttr",
    "DeadlineError",
    "DeviceAttr",
    "DeviceCap",
    "EvFormat",
    "EvState",
    "EvStatus",
    "ExchangeError",
    "InvalidArgumentError",
    "Listener",
    "MemoryRegion",
    "NoRoomError",
    "OverrunError",
    "PeerAddress",
    "PlaneCounters",
    "ProtectionDomain",
    "QpAttr",
    "QpCap",
    "QpCounters",
    "QpHint",
    "QpHintAttr",
    "QpInitAttr",
    "QpState",
    "QueuePair",
    "RecvWr",
    "RegionSlice",
    "Remote",
    "RemoteRegion",
    "SendWr",
    "UnusableOfferError",
    "VerbsError",
    "WcOpcode",
    "WcStatus",
    "WorkCompletion",
    "WriteBatch",
    "connect",
    "connect_async",
    "query_version",
]
