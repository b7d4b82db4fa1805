"""The application's side of a completion queue's ring."""

import mmap
from collections.abc import Callable

import numpy as np

from openmrc.core.rows import column, dtype_of
from openmrc.engine.state.tables import NONE, CompletionKind, WcStatus
from openmrc.live.attributes import WcOpcode, WorkCompletion
from openmrc.live.datapath.loop import attendance
from openmrc.live.datapath.rows import CompletionRecord, address_of
from openmrc.live.host.runtime import EndpointRuntime

_RECORD = dtype_of(CompletionRecord)
# Cached: creating an enumeration member from its value takes longer than the rest of a completion.
_SEND = int(CompletionKind.SEND)
_STATUS = {int(status): status for status in WcStatus}
_WRITE, _RECEIVED = WcOpcode.RDMA_WRITE, WcOpcode.RECV_RDMA_WITH_IMM


class Records:
    """Reads the completions that the data path publishes to one queue."""

    def __init__(self, runtime: EndpointRuntime, row: int, cqe: int, error_of: Callable[[int, int], str]) -> None:
        """Allocate the ring; `error_of(row, qpn)` describes a queue pair whose request failed."""
        self._runtime = runtime
        self._row = row
        self._error_of = error_of
        self.mask = (1 << (cqe - 1).bit_length()) - 1
        # Pages of its own: of a ring that is drained early, few are ever written.
        memory = mmap.mmap(-1, (self.mask + 1) * _RECORD.itemsize, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.ring = np.frombuffer(memory, _RECORD)
        self._words = self.ring.view(np.int64).reshape(len(self.ring), -1)
        cqs = runtime.datapath.cqs
        entry = cqs[row]
        entry.ring, entry.mask, entry.capacity = address_of(self.ring), self.mask, cqe
        entry.published = entry.taken = entry.events = entry.armed = 0
        entry.overrun = entry.sleeping = False
        entry.descriptor = entry.wakeup = NONE
        # Arrays of fields: `item` takes a tenth of the time of a row's attribute.
        self._published, self._taken = column(cqs, "published"), column(cqs, "taken")
        self._overrun, self._events = column(cqs, "overrun"), column(cqs, "events")
        self._sleeping = column(cqs, "sleeping")

    def ready(self) -> int:
        """Return how many completions can be taken."""
        return int(self._published.item(self._row) - self._taken.item(self._row))

    def is_overrun(self) -> bool:
        """Whether a completion was lost because the ring was full."""
        return bool(self._overrun.item(self._row))

    def events(self) -> int:
        """Return how often the queue was armed and then signalled."""
        return int(self._events.item(self._row))

    def signal_armed(self, descriptor: int) -> None:
        """Set the eventfd that is signalled once armed."""
        self._runtime.datapath.cqs[self._row].descriptor = descriptor

    def signal_sleeping(self, descriptor: int) -> None:
        """Set the eventfd that wakes waiting calls."""
        self._runtime.datapath.cqs[self._row].wakeup = descriptor

    def arm(self, kind: int) -> None:
        """Signal the next completion of this kind; completions published earlier are visible afterwards."""
        self._runtime.check_here()
        attendance.arm(self._runtime.at, self._row, kind)

    def wake_at_next(self) -> None:
        """Wake a waiting call at the next completion; completions published earlier are visible afterwards."""
        self._sleeping[self._row] = 1
        self._synchronise()

    def read(self, n: int) -> list[WorkCompletion]:
        """Return at most `n` completions; they stay in the ring. One reader at a time."""
        count = min(self._synchronise(), n)
        begin = self._taken.item(self._row) & self.mask
        records = self._words[begin : begin + count].tolist()
        if len(records) < count:
            records += self._words[: count - len(records)].tolist()
        return [self._completion(record) for record in records]

    def remove(self, count: int) -> None:
        """Remove the oldest completions from the ring."""
        self._taken[self._row] += count

    def _synchronise(self) -> int:
        """Return the number of readable records, after the mutex has ordered our stores and the data path's."""
        self._runtime.check_here()
        return attendance.available(self._runtime.at, self._row)

    def _completion(self, record: list[int]) -> WorkCompletion:
        """Return a `CompletionRecord`, in the order of its columns, as the application sees it."""
        kind, qp, wr_id, status, length, immediate, has_immediate, solicited, qpn = record
        return WorkCompletion(
            wr_id & 0xFFFFFFFFFFFFFFFF,
            _STATUS[status],
            _WRITE if kind == _SEND else _RECEIVED,
            length,
            immediate & 0xFFFFFFFF if has_immediate else None,
            qpn,
            solicited == 1,
            "" if status == 0 else self._error_of(qp, qpn),
        )
