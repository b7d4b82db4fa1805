"""The bandwidth test: many outstanding writes, in one direction or both.

Both ends run the same loop; one that does not send only takes immediates and waits for the peer's Done. With
immediates, the sender never has more writes outstanding than the receiver has posted receives, as it reports over TCP.
All queue pairs share a completion queue, as in perftest: to ask each of 64 for its own took a third of the time. A
timed run counts what has completed when its time is over; what is then outstanding is waited for, not counted.
A completion stands for as many writes as take `MODERATED` at the rate of the run (decision 29).
"""

import enum
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from openmrc.programs.endpoint.conversation import Conversation
from openmrc.programs.perf.words import Done, Taken, Tick
from openmrc.verbs import CompletionQueue, Connection, MemoryRegion, SendWr, WcOpcode

RECEIVES = 512  # receives posted on each queue pair in a test with immediates
MOST_GROUPED = 32  # writes per completion, unless asked for
MODERATED = 0.002  # s of the run that one completion stands for, at most about
LARGE = 64 << 10  # bytes; writes from this size on are reported one by one until the rate is known
PEAK_SPAN = 0.010  # s, shortest span of a peak rate
TICK = 1.0  # s
LEAST_INTERVAL = 0.05  # s; the rest of a run is reported too, unless it is shorter


class Senders(enum.Flag):
    """Which ends of a connection write in a run."""

    THIS = enum.auto()
    PEER = enum.auto()
    BOTH = THIS | PEER


@dataclass(eq=False)
class Lane:
    """One queue pair's writes of one run."""

    number: int
    connection: Connection
    local: MemoryRegion
    size: int
    depth: int
    immediate: bool
    goal: int  # writes; a large number in a timed run
    asked_group: int = 0  # writes per completion; 0: chosen
    posted: int = 0
    completed: int = 0
    granted: int = RECEIVES  # writes with immediate for which the peer has posted receives
    taken: int = 0  # immediates received from the peer
    reported: int = 0  # of these, reported to the peer
    qpn: int = field(init=False)  # of its completions
    group: int = field(init=False)  # writes per completion
    most_grouped: int = field(init=False)  # what `group` may become

    def __post_init__(self) -> None:
        self.qpn = self.connection.qp.qpn
        self.most_grouped = min(self.asked_group, self.depth) or max(1, min(self.depth // 4, MOST_GROUPED))
        self.group = 1 if self.size >= LARGE and not self.asked_group else self.most_grouped
        remote = self.connection.remote.regions[0]
        request: dict[str, Any] = {
            "local": self.local[: self.size],
            "remote_addr": remote.addr,
            "r_key": remote.r_key,
            "immediate": 0 if self.immediate else None,
        }
        self._silent = SendWr(**request, signaled=False)
        self._signaled = [SendWr(**request, wr_id=count) for count in range(self.most_grouped + 1)]

    def moderate(self, bytes_per_second: float) -> None:
        """Choose how many of the following writes one completion stands for, if nobody asked for a number."""
        if not self.asked_group:
            self.group = max(1, min(int(bytes_per_second * MODERATED / self.size), self.most_grouped))

    def fill(self) -> None:
        """Post as many groups as fit."""
        while self.posted < self.goal:
            most = min(self.group, self.goal - self.posted)
            if self.posted + most - self.completed > self.depth:
                return
            if self.immediate and self.posted + most > self.granted:
                return
            self.connection.qp.post_send([*([self._silent] * (most - 1)), self._signaled[most]])
            self.posted += most


@dataclass(frozen=True)
class Interval:
    """Progress of about a second."""

    start: float  # s since the run began
    end: float
    bytes: int


class Peak:
    """The highest rate over spans of at least `PEAK_SPAN`."""

    def __init__(self) -> None:
        self.bps = 0.0
        self._since = time.perf_counter()
        self._bytes = 0

    def add(self, now: float, size: int) -> None:
        """Record that this many bytes completed."""
        self._bytes += size
        if now - self._since >= PEAK_SPAN:
            self.bps = max(self.bps, self._bytes * 8 / (now - self._since))
            self._since, self._bytes = now, 0


class PerfStream:
    """One run: this end's writes, and the peer's as far as they affect us."""

    def __init__(
        self,
        conversation: Conversation,
        cq: CompletionQueue,
        lanes: Sequence[Lane],
        *,
        senders: Senders,
        duration: float,
        stop: threading.Event,
        on_interval: Callable[[Interval], None] | None = None,
    ) -> None:
        self._conversation = conversation
        self._cq = cq
        self._lanes = lanes
        self._lane_of = {lane.qpn: lane for lane in lanes}
        self._waiting = set(lanes)  # lanes that may have room for writes
        self._senders = senders
        self._duration = duration
        self._stop = stop
        self._on_interval = on_interval
        self._bytes = 0
        self._noted = 0  # bytes at the end of the last interval
        self._counted: Done | None = None  # result of a timed run whose time is over
        self.done: Done | None = None
        self.peer_done: Done | None = None

    def run(self) -> None:
        """Return when this end's writes have completed and the peer has reported the same."""
        self._began = self._interval_began = self._progress_at = time.perf_counter()
        self._peak = Peak()
        if Senders.THIS not in self._senders:
            self.done = Done(0, 0, 0.0, 0.0)
        while True:
            if self.done is None:
                self._post()
            if self.done is not None and self._peer_is_done():
                return
            self._turn()

    def _peer_is_done(self) -> bool:
        """Whether the peer is done, and all its writes with immediate have been received."""
        if Senders.PEER not in self._senders:
            return True
        if self.peer_done is None:
            return False
        immediate = any(lane.immediate for lane in self._lanes)
        expected = self.peer_done.iterations + self.peer_done.late
        return not immediate or sum(lane.taken for lane in self._lanes) >= expected

    def _awaits_messages(self) -> bool:
        """Whether the peer's next message belongs to this run: the next run begins once both sides have sent Done."""
        return self.done is None or self.peer_done is None

    def _turn(self) -> None:
        left = max(self._interval_began + TICK - time.perf_counter(), 0.0)
        found = self._conversation.wait(self._cq, left, 256, or_message=self._awaits_messages())
        now = time.perf_counter()
        written, arrived = Counter[int](), Counter[int]()
        for each in found:
            if each.opcode is WcOpcode.RDMA_WRITE:
                written[each.qp_num] += each.wr_id
            else:
                arrived[each.qp_num] += 1
        for qpn in written.keys() | arrived.keys():
            self._account(self._lane_of[qpn], written[qpn], arrived[qpn], now)
        while self._awaits_messages() and self._conversation.has_message():
            self._process_message(now)
        if now - self._interval_began >= TICK:
            self._tick(now)
        if now - self._progress_at > self._conversation.timeout:
            raise self._conversation.stalled()

    def _post(self) -> None:
        is_over = self._duration and time.perf_counter() - self._began >= self._duration
        if self._counted is None and (is_over or self._stop.is_set()):
            self._counted = self._result()
            for lane in self._lanes:
                lane.goal = lane.posted
        for lane in self._waiting:
            lane.fill()
        self._waiting.clear()
        if all(lane.completed >= lane.goal for lane in self._lanes):
            self._finish()

    def _account(self, lane: Lane, written: int, arrived: int, now: float) -> None:
        if written:
            lane.completed += written
            self._progress_at = now
            self._waiting.add(lane)
            if self._counted is None:
                self._bytes += written * lane.size
                lane.moderate(self._bytes / (now - self._began))
                self._peak.add(now, written * lane.size)
        if arrived:
            lane.connection.qp.post_recv(arrived)
            lane.taken += arrived
            self._progress_at = now
            if lane.taken - lane.reported >= RECEIVES // 4:
                lane.reported = lane.taken
                self._conversation.tell(Taken(lane.number, lane.taken))

    def _process_message(self, now: float) -> None:
        message = self._conversation.hear(object)
        self._progress_at = now
        if isinstance(message, Taken) and message.lane < len(self._lanes):
            self._lanes[message.lane].granted = message.count + RECEIVES
            self._waiting.add(self._lanes[message.lane])
        elif isinstance(message, Done):
            self.peer_done = message
        elif not isinstance(message, Tick):
            raise self._conversation.lost(f"sent {type(message).__name__} in the middle of a run")

    def _tick(self, now: float) -> None:
        if self.done is None:
            self._conversation.tell(Tick(self._bytes))
        self._note(now)

    def _note(self, now: float) -> None:
        """Report the current interval; once this end is done, do nothing."""
        if self._on_interval is not None and Senders.THIS in self._senders and self.done is None:
            span = Interval(self._interval_began - self._began, now - self._began, self._bytes - self._noted)
            self._on_interval(span)
        self._interval_began, self._noted = now, self._bytes

    def _result(self) -> Done:
        """Return what has completed so far; a timed run has no peak, as in perftest."""
        now = time.perf_counter()
        seconds = now - self._began
        average = self._bytes * 8 / seconds if seconds else 0.0
        if now - self._interval_began >= LEAST_INTERVAL:
            self._note(now)
        iterations = sum(lane.completed for lane in self._lanes)
        return Done(iterations, self._bytes, seconds, 0.0 if self._duration else max(self._peak.bps, average))

    def _finish(self) -> None:
        counted = self._counted or self._result()
        late = sum(lane.completed for lane in self._lanes) - counted.iterations
        self.done = structs.replace(counted, late=late)
        self._conversation.tell(self.done)
