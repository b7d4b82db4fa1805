"""The context: a software NIC opened on its planes, and the objects created from it."""

import asyncio
import collections
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from openmrc.base.faults import Schedule
from openmrc.engine.state.params import Settings
from openmrc.live.attributes import (
    AsyncEvent,
    CaptureReport,
    ContextAttr,
    DeviceAttr,
    PeerAddress,
    PlaneCounters,
    QpHintAttr,
    QpInitAttr,
)
from openmrc.live.ctl import report
from openmrc.live.errors import ClosedError, DeadlineError, InvalidArgumentError, descriptors_for
from openmrc.live.host.sockets import CarrierOf
from openmrc.live.objects.completion import CompletionChannel, CompletionQueue, Notifier
from openmrc.live.objects.memory import ProtectionDomain
from openmrc.live.objects.nic import Nic
from openmrc.live.objects.queue_pair import QpHint, QueuePair
from openmrc.live.waiting import deadline_after, is_over, seconds_until

API_VERSION = (1, 0, 1)  # of mrc.h
EVENTS_KEPT = 4096
LAST_SUPPORTED_VERSION = (0, 0, 0)


def query_version() -> dict[str, int]:
    """Return the versions as mrc_query_version does: major << 24 | minor << 16 | subminor."""
    current, last = (major << 24 | minor << 16 | sub for major, minor, sub in (API_VERSION, LAST_SUPPORTED_VERSION))
    return {"api": current, "last_supported": last, "vendor": 1 << 24, "last_vendor": 0}


class Context:
    """A device opened on 1 to 16 planes (mrc_context); owns threads, which `close` stops.

    A context belongs to the process that opened it: in a forked child every call raises ClosedError.
    """

    def __init__(
        self,
        planes: Sequence[str] = (),
        attr: ContextAttr | None = None,
        *,
        settings: Settings | None = None,
        faults: Schedule | str | None = None,
        capture: str | Path | None = None,
        carrier_of: CarrierOf | None = None,
    ) -> None:
        """Open sockets on `planes`: local addresses, ["192.0.2.1", "127.0.0.1:9001"]; empty: those of the interfaces.

        `settings` replaces the engine's tuning for sockets, `faults` is a schedule of impairments of arriving
        packets, `capture` a pcapng file for all packets. With the SRV6 format, `carrier_of(address, plane, ev)`
        returns the address that leads to a peer's address on a path.
        """
        if isinstance(planes, str):
            raise InvalidArgumentError(f"planes: {planes!r} is a string; give a list of addresses, [{planes!r}]")
        schedule = Schedule.parse(faults) if isinstance(faults, str) else faults
        self._domains = 0
        self._events: collections.deque[AsyncEvent] = collections.deque(maxlen=EVENTS_KEPT)
        self._notifier = Notifier("context")
        with descriptors_for("context"):
            self.nic = Nic(self, tuple(planes), attr or ContextAttr(), settings, schedule, capture, carrier_of)
        try:
            self.nic.start()
        except BaseException:
            self.nic.close()
            raise

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "open"
        return f"<Context {state} on {', '.join(self.nic.device.planes)}>"

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called, or the thread has died."""
        return self.nic.is_closed

    @property
    def address(self) -> PeerAddress:
        """The addresses that peers need to reach this context."""
        return self.nic.address

    @property
    def control_socket(self) -> Path | None:
        """The file of its controller socket (`openmrc.ctl`); None if none was asked for."""
        server = self.nic.controlled.server
        return server.path if server is not None else None

    def describe(self) -> str:
        """Return one line: the planes, their addresses and the features of the sockets."""
        return self.nic.sockets.describe()

    def progress(self) -> str:
        """Return one line for errors: each queue pair's peer, state, paths and last progress."""
        return self.nic.progress()

    def query_device(self) -> DeviceAttr:
        """Return the limits of this context."""
        return self.nic.device

    def alloc_pd(self) -> ProtectionDomain:
        """Create a protection domain."""
        self._domains += 1
        return ProtectionDomain(self, self._domains)

    def create_comp_channel(self) -> CompletionChannel:
        """Create a completion channel."""
        return CompletionChannel(self)

    def create_cq(
        self, cqe: int = 4096, cq_context: Any = None, channel: CompletionChannel | None = None
    ) -> CompletionQueue:
        """Create a completion queue for `cqe` completions; EINVAL if that is not in 1..`max_cqe` of the device.

        A queue as large as the send and receive queues of its queue pairs together cannot overrun.
        """
        return CompletionQueue(self, cqe, cq_context, channel)

    def create_qp_hint(self, attr: QpHintAttr | None = None) -> QpHint:
        """Create a hint that queue pairs can share."""
        return QpHint(self, attr or QpHintAttr())

    def create_qp(self, pd: ProtectionDomain, init: QpInitAttr) -> QueuePair:
        """Create a queue pair in RESET; ENOMEM if the context's `max_qp` are in use."""
        return QueuePair(pd, init)

    def get_async_event(self, timeout: float) -> AsyncEvent:
        """Wait for an asynchronous event; acknowledge each by `ack_async_event`. DeadlineError after `timeout` s."""
        deadline = deadline_after(timeout)
        while not self._events:
            self._check_wait(deadline, timeout)
            self._notifier.wait(seconds_until(deadline))
        return self._taken_event()

    async def get_async_event_async(self, timeout: float) -> AsyncEvent:
        """Wait as `get_async_event` does, letting the event loop run."""
        deadline = deadline_after(timeout)
        while not self._events:
            self._check_wait(deadline, timeout)
            await self._notifier.wait_async(seconds_until(deadline))
        return self._taken_event()

    def poll_async_events(self) -> list[AsyncEvent]:
        """Return all pending asynchronous events without waiting; they count as acknowledged."""
        taken = [self._events.popleft() for _ in range(len(self._events))]
        self._notifier.clear()
        return taken

    def ack_async_event(self, event: AsyncEvent) -> None:
        """Acknowledge one event, as programs of libibverbs do; nothing waits for it."""

    def plane_counters(self) -> list[PlaneCounters]:
        """Return the counters of each plane."""
        return report.plane_counters(self.nic.runtime)

    def capture_report(self) -> CaptureReport | None:
        """Return the completeness of the capture file; None without one. Final once the context is closed."""
        return self.nic.recording.report() if self.nic.recording is not None else None

    def set_plane(self, plane: int, up: bool) -> None:
        """Set a local port up or down; Port Status Updates inform the peers."""
        self.nic.set_plane(plane, up)

    def impair(self, faults: Schedule | str, *, replace: bool = False) -> None:
        """Impair arriving packets from now on: the times of the schedule count from this call.

        A schedule changes what it names and adds to those before. With `replace` it takes their place; an empty one
        always does: `impair("")` ends all impairments, and steps that are still to come.
        """
        schedule = Schedule.parse(faults) if isinstance(faults, str) else faults
        self.nic.impair(schedule, replace_all=replace or not schedule.steps)

    def close(self) -> None:
        """Stop the threads, close sockets and capture; always returns. Waiting calls raise ClosedError."""
        self.nic.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def report(self, event: AsyncEvent) -> None:
        """Append an asynchronous event; the oldest is dropped if nobody reads them."""
        self._events.append(event)
        self._notifier.signal()

    def wake(self) -> None:
        """Wake calls that wait for events."""
        self._notifier.signal()

    def _check_wait(self, deadline: float, timeout: float) -> None:
        if self.is_closed:
            raise ClosedError("context: closed while waiting for an event")
        if is_over(deadline):
            raise DeadlineError(f"no asynchronous event within {timeout:g} s; {self.progress()}")

    def _taken_event(self) -> AsyncEvent:
        self._notifier.clear()
        event = self._events.popleft()
        if self._events:
            self._notifier.signal()
        return event
