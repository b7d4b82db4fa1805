"""The application API: write into another process's memory over several network planes at once.

The nouns are those of `mrc.h`, which are those of verbs: a `Context` is a device opened on its
planes; it has protection domains, memory regions, completion queues and queue pairs. A queue pair
writes - `RDMA_WRITE`, `RDMA_WRITE_WITH_IMM` - and knows nothing else.

    with Context(planes=["127.0.0.1", "127.0.1.1"]) as context:
        region = context.alloc_pd().reg_mr(bytearray(1 << 20))
        with connect(context, "192.0.2.7", 18515, regions=[region], timeout=10) as peer:
            peer.write(region, peer.remote.regions[0], timeout=5)

`connect` and `Listener` do what every program does: exchange attributes over TCP and walk a queue
pair from RESET to RTS. Programs that want it otherwise do that themselves with `QueuePair.modify`.
A `Listener` that other machines can reach has a token, its own or a fresh one, that `connect` must give.

Refused calls raise a `VerbsError` with its `errno`. Waits take a time-out in seconds and end in a
`DeadlineError` that names peer, planes, EVs and the last progress. What the network did to a posted
request is a status in its completion, not an exception.

All objects may be used from any thread. Waiting methods have an `async` twin with the same name and
an `_async` suffix.
"""

from openmrc.engine.regions import Access
from openmrc.engine.states import EvState, QpState
from openmrc.engine.tables import WcStatus
from openmrc.live.api.attributes import (
    AsyncEvent,
    AsyncEventKind,
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
from openmrc.live.api.errors import (
    BusyError,
    CallError,
    ClosedError,
    DeadlineError,
    ExchangeError,
    InvalidArgumentError,
    NoRoomError,
    VerbsError,
)
from openmrc.live.objects.completion import CompletionChannel, CompletionQueue
from openmrc.live.objects.connection import Connection, Listener, Remote, RemoteRegion, connect, connect_async
from openmrc.live.objects.context import Context, query_version
from openmrc.live.objects.handshake import NO_TOKEN
from openmrc.live.objects.memory import MemoryRegion, ProtectionDomain, RegionSlice
from openmrc.live.objects.queue_pair import QpHint, QueuePair

__all__ = [
    "NO_TOKEN",
    "Access",
    "AsyncEvent",
    "AsyncEventKind",
    "BusyError",
    "CallError",
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
    "VerbsError",
    "WcOpcode",
    "WcStatus",
    "WorkCompletion",
    "connect",
    "connect_async",
    "query_version",
]
