"""The two ends of `mrc perf`: setup, one run per size, and the collected results."""

import mmap
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import msgspec

from openmrc.base.amounts import gbps
from openmrc.base.faults import Schedule
from openmrc.errors import PeerError
from openmrc.programs.endpoint.conversation import Conversation, Note, check_note
from openmrc.programs.endpoint.listening import ESTABLISH_SECONDS, Refusals, next_peer, turn_away
from openmrc.programs.endpoint.shares import Meter, ev_counts
from openmrc.programs.perf.pingpong import POSTED_AHEAD, PingPong, distribution
from openmrc.programs.perf.report import Findings, PerfRun, Second
from openmrc.programs.perf.stream import RECEIVES, Interval, Lane, PerfStream, Senders
from openmrc.programs.perf.words import (
    LARGEST_SIZE,
    MOST_QUEUE_PAIRS,
    Bye,
    Carried,
    Done,
    PerfPlan,
    Ready,
    Start,
    Taken,
    Test,
    Tick,
    Words,
)
from openmrc.verbs import NO_TOKEN, Connection, ConnectionOptions, Context, Listener, MemoryRegion, connect

CLIENT, SERVER, FURTHER = "perf client", "perf server", "perf queue pair"
WITHOUT_END = 1 << 62
MOST_OUTSTANDING = 128 << 20  # bytes in flight in a timed run, which waits for them when its time is over


@dataclass(frozen=True)
class SessionOptions:
    """Options of one end besides the plan."""

    port: int
    timeout: float  # s without progress
    remote: tuple[str, ...] = ()
    token: str = NO_TOKEN  # the server's
    on_second: Callable[[Second], None] | None = None
    on_run: Callable[[PerfRun], None] | None = None
    on_start: Callable[[], None] | None = None
    stop: threading.Event = field(default_factory=threading.Event)  # set: finish the run early


class Session:
    """Steps that both ends share."""

    def __init__(self, context: Context, asked: ConnectionOptions, options: SessionOptions, findings: Findings) -> None:
        self.context = context
        self.asked = asked
        self.options = options
        self.findings = findings
        self.connections: list[Connection] = []
        self.conversation: Conversation
        self.pd = context.alloc_pd()
        self.cq = context.create_cq(MOST_QUEUE_PAIRS * (asked.max_send_wr + asked.max_recv_wr))
        self.meter = Meter(context)
        findings.describe(context)

    @property
    def plan(self) -> PerfPlan:
        return self.findings.plan

    def begin(self) -> None:
        """Post receives and apply impairments; before Ready and the first Start."""
        receives = POSTED_AHEAD if self.plan.test == Test.LATENCY else RECEIVES if self.plan.immediate else 0
        for each in self.connections:
            each.qp.post_recv(receives)
        self.findings.details.peer = self.conversation.peer
        self.findings.mtu = self.connections[0].qp.query()[0].path_mtu or 0
        self.meter = Meter(self.context)
        if self.plan.faults is not None:
            self.context.impair(Schedule.parse(self.plan.faults, "--impair of the client"))
        if self.options.on_start is not None:
            self.options.on_start()

    def stream(self, region: MemoryRegion, start: Start, senders: Senders, warm: bool) -> PerfStream:
        """Return a run of writes, ready to begin."""
        lanes = [
            Lane(
                number,
                each,
                region,
                start.size,
                self._depth(start),
                self.plan.immediate,
                start.iterations if not start.duration else WITHOUT_END,
                self.plan.per_completion,
            )
            for number, each in enumerate(self.connections)
        ]
        self._second_meter = Meter(self.context)
        return PerfStream(
            self.conversation,
            self.cq,
            lanes,
            senders=senders,
            duration=start.duration,
            stop=self.options.stop,
            on_interval=None if warm else lambda interval: self._on_interval(start.size, interval),
        )

    def _depth(self, start: Start) -> int:
        """Return the number of outstanding writes: few large ones, since a timed run waits for their completion."""
        if not start.duration:
            return self.plan.depth
        return min(self.plan.depth, max(1, MOST_OUTSTANDING // start.size // self.plan.queue_pairs))

    def note_end(self) -> None:
        pairs = [each.qp for each in self.connections]
        if pairs:
            self.findings.details.planes = self.meter.shares(pairs)
            self.findings.count([pair.counters() for pair in pairs])

    def _on_interval(self, size: int, interval: Interval) -> None:
        span = interval.end - interval.start
        planes = self._second_meter.shares()
        self._second_meter = Meter(self.context)
        second = Second(
            size=size,
            start=round(interval.start, 3),
            end=round(interval.end, 3),
            gbps=round(gbps(interval.bytes, span), 4),
            retransmitted=sum(plane.retransmitted for plane in planes),
            plane_gbps=[round(gbps(plane.sent_bytes + plane.received_bytes, span), 4) for plane in planes],
            evs=ev_counts([each.qp for each in self.connections]),
        )
        self.findings.details.intervals.append(second)
        if self.options.on_second is not None:
            self.options.on_second(second)


class Client(Session):
    """The end that chooses what is measured."""

    def run(self, host: str) -> None:
        """Connect to the server and do every run of the plan."""
        with ExitStack() as stack:
            region = stack.enter_context(self.pd.reg_mr(mmap.mmap(-1, max(self.plan.sizes))))
            self._meet(host, region, stack)
            try:
                with self.conversation.reporting():
                    self._run_all(region)
            finally:
                self.note_end()

    def _meet(self, host: str, region: MemoryRegion, stack: ExitStack) -> None:
        for number in range(self.plan.queue_pairs):
            connection = connect(
                self.context,
                host,
                self.options.port,
                regions=[region],
                options=self.asked,
                cq=self.cq,
                note=Note(FURTHER if number else CLIENT, plan=None if number else msgspec.to_builtins(self.plan)),
                timeout=ESTABLISH_SECONDS,
                remote_planes=self.options.remote,
                token=self.options.token,
            )
            self.connections.append(stack.enter_context(connection))
            check_note(connection.remote.note, SERVER, connection.channel.peer)
            connection.remote.region(max(self.plan.sizes))
        self.conversation = Conversation(self.connections[0], Words, self.options.timeout)

    def _run_all(self, region: MemoryRegion) -> None:
        self.begin()
        for size in self.plan.sizes:
            if self.plan.warmup:
                self._run(region, Start(size, self.plan.warmup, 0.0), warm=True)
            run = self._run(region, Start(size, self.plan.iterations, self.plan.duration), warm=False)
            self.findings.runs.append(run)
            if self.options.on_run is not None:
                self.options.on_run(run)
        self.conversation.tell(Bye())

    def _run(self, region: MemoryRegion, start: Start, warm: bool) -> PerfRun:
        self.conversation.tell(start)
        self.conversation.hear(Ready)
        if self.plan.test == Test.LATENCY:
            run = self._ping(region, start)
        else:
            stream = self.stream(region, start, Senders.BOTH if self.plan.both_ways else Senders.THIS, warm)
            stream.run()
            run = PerfRun(start.size, stream.done or Done(0, 0, 0.0, 0.0), stream.peer_done)
        self.findings.details.peer_planes = self._carried().planes
        return run

    def _carried(self) -> Carried:
        """Return the server's counters; grants may come before: it still receives after its own writes are done."""
        while True:
            message: Any = self.conversation.hear((Carried, Taken))
            if isinstance(message, Carried):
                return message

    def _ping(self, region: MemoryRegion, start: Start) -> PerfRun:
        begun = time.perf_counter()
        times = PingPong(self.conversation, region, start.size).serve(start.iterations, start.duration)
        seconds = time.perf_counter() - begun
        done = Done(len(times), len(times) * start.size, seconds, 0.0)
        return PerfRun(start.size, done, times=distribution(times))


class PerfServer(Session):
    """The end that follows the client's plan."""

    def run(self, listener: Listener, wait: float, refusals: Refusals) -> None:
        """Wait for a client, at most `wait` seconds, and do every run it asks for."""
        with ExitStack() as stack:
            region = stack.enter_context(self.pd.reg_mr(mmap.mmap(-1, LARGEST_SIZE)))
            try:
                self._meet(listener, region, stack, wait, refusals)
                with self.conversation.reporting():
                    self._run_all(region)
            finally:
                self.note_end()

    def _meet(
        self, listener: Listener, region: MemoryRegion, stack: ExitStack, wait: float, refusals: Refusals
    ) -> None:
        def accept(seconds: float) -> Connection:
            return listener.accept(
                regions=[region],
                options=self.asked,
                cq=self.cq,
                note=Note(SERVER),
                timeout=seconds,
                remote_planes=self.options.remote,
            )

        while not self.connections:
            first, note = next_peer(accept, CLIENT, wait, refusals)
            try:
                self.findings.plan = checked(note.plan, first.channel.peer)
            except PeerError as error:
                refusals(str(error))
                turn_away(first, str(error))
                continue
            self.connections.append(stack.enter_context(first))
        self.conversation = Conversation(first, Words, self.options.timeout)
        with self.conversation.reporting():
            while len(self.connections) < self.plan.queue_pairs:
                further, _ = next_peer(accept, FURTHER, ESTABLISH_SECONDS, refusals)
                if further.remote.name == first.remote.name:
                    self.connections.append(stack.enter_context(further))
                else:
                    turn_away(further, f"busy with {first.remote.name}")

    def _run_all(self, region: MemoryRegion) -> None:
        self.begin()
        while True:
            # Keepalives and grants of a client that still received when its own writes were done.
            message: Any = self.conversation.hear((Start, Bye, Tick, Taken))
            if isinstance(message, Bye):
                return
            if isinstance(message, Start):
                self._run(region, message)

    def _run(self, region: MemoryRegion, start: Start) -> None:
        meter = Meter(self.context)
        self.conversation.tell(Ready())
        if self.plan.test == Test.LATENCY:
            PingPong(self.conversation, region, start.size).answer()
        else:
            stream = self.stream(region, start, Senders.BOTH if self.plan.both_ways else Senders.PEER, warm=False)
            stream.run()
            run = PerfRun(start.size, stream.done or Done(0, 0, 0.0, 0.0), stream.peer_done)
            self.findings.runs.append(run)
            if self.options.on_run is not None:
                self.options.on_run(run)
        self.conversation.tell(Carried(meter.shares([each.qp for each in self.connections])))


def checked(attributes: object, peer: str) -> PerfPlan:
    """Return the client's plan; PeerError if it is invalid."""
    try:
        return msgspec.convert(attributes, PerfPlan)
    except msgspec.ValidationError as error:
        raise PeerError(f"{peer}: invalid plan: {error}") from error


def sizes_from(least: int, most: int, factor: int) -> list[int]:
    """Return the sizes of a sweep: from `least` by factors up to `most`."""
    found = [least]
    while found[-1] * factor <= most:
        found.append(found[-1] * factor)
    return found
