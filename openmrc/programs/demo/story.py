"""The steps of `mrc demo`: the same outages for one path of TCP, and for MRC over all planes.

First the kernel's TCP sends over one plane, with that plane's outages: it needs nothing compiled, so the engine is
compiled meanwhile where it is not yet. Then MRC writes from memory to memory between two processes over all planes.
"""

import contextlib
import ctypes
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from openmrc.base.amounts import gbps
from openmrc.base.faults import Schedule
from openmrc.errors import MrcError
from openmrc.live.host.planes import EndpointSide, loopback_planes
from openmrc.programs.demo import memory_transfer
from openmrc.programs.demo.memory_transfer import TIMEOUT, MemorySender
from openmrc.programs.demo.result import (
    SAMPLE_SECONDS,
    SEED,
    DemoResult,
    Outage,
    RateSample,
    SinglePath,
    SinglePathSample,
    outages_of,
    story_faults,
    unused_planes,
)
from openmrc.programs.demo.view import View
from openmrc.programs.endpoint.opening import EndpointOptions, connection_options, open_endpoint
from openmrc.programs.endpoint.second_process import SecondProcess
from openmrc.programs.endpoint.shares import ev_counts
from openmrc.verbs import Connection, Context

SO_ATTACH_FILTER = 26  # socket(7); absent from Python's socket module
_NOTHING, _ALL = 0, 0xFFFFFFFF  # bytes of a packet that a filter keeps
PIECE = 1 << 20  # bytes
_POLL_SECONDS = 0.2
_END_SECONDS = 5.0


class DeadPlane:
    """Drops all segments that arrive at some sockets, until it is revived."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self._sockets = sockets
        self.is_down = False

    def set(self, is_down: bool) -> None:
        """Take the plane down, or bring it back."""
        if is_down == self.is_down:
            return
        kept = struct.pack("HBBI", 0x06, 0, 0, _NOTHING if is_down else _ALL)  # classic BPF: BPF_RET | BPF_K
        program = ctypes.create_string_buffer(kept)
        filters = struct.pack("HL", 1, ctypes.addressof(program))  # struct sock_fprog: one instruction
        for each in self._sockets:  # emulations can attach a filter, but not detach it
            each.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filters)
        self.is_down = is_down


def can_take_down() -> bool:
    """Return whether this user may attach filters to sockets here: some kernels let only root."""
    with socket.socket() as tried:
        try:
            DeadPlane([tried]).set(True)
        except OSError:  # EPERM, or a sandbox without filters
            return False
    return True


def transfer(
    result: SinglePath,
    addresses: tuple[str, str],
    outages: Sequence[Outage],
    seconds: float,
    on_sample: Callable[[SinglePathSample], None],
) -> None:
    """Send for `seconds` from the first address to the second, with the outages, and fill `result`."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((addresses[1], 0)))
        sender = stack.enter_context(socket.socket())
        sender.bind((addresses[0], 0))
        sender.connect(listener.getsockname())
        sender.settimeout(_POLL_SECONDS)
        receiver = stack.enter_context(listener.accept()[0])
        is_over = threading.Event()
        thread = threading.Thread(target=_send, args=(sender, is_over), daemon=True)
        thread.start()
        stack.callback(thread.join, _END_SECONDS)
        stack.callback(is_over.set)
        _receive(result, receiver, DeadPlane((sender, receiver)), outages, seconds, on_sample)


def _send(sender: socket.socket, is_over: threading.Event) -> None:
    piece = bytes(PIECE)
    while not is_over.is_set():
        with contextlib.suppress(TimeoutError):
            sender.send(piece)


def _receive(
    result: SinglePath,
    receiver: socket.socket,
    plane: DeadPlane,
    outages: Sequence[Outage],
    seconds: float,
    on_sample: Callable[[SinglePathSample], None],
) -> None:
    """Receive, apply the outages when they begin and end, and sample."""
    memory, began = bytearray(PIECE), time.monotonic()
    at = heard = last = 0.0  # s since the begin: now, when something arrived, of the last sample
    before = 0  # bytes at the last sample
    while last < seconds:
        moments = [moment for each in outages for moment in (each.down, each.up) if moment is not None and moment > at]
        receiver.settimeout(max(min([last + SAMPLE_SECONDS, *moments]) - at, 0.001))
        try:
            arrived = receiver.recv_into(memory)
        except TimeoutError:
            arrived = 0
        at = time.monotonic() - began
        result.longest_stall_ms = max(result.longest_stall_ms, round((at - heard) * 1e3, 1))
        if arrived:
            heard = at
            result.bytes += arrived
        plane.set(any(each.covers(at) for each in outages))
        if at - last >= SAMPLE_SECONDS * 0.99:
            sample = SinglePathSample(at=round(at, 3), gbps=round(gbps(result.bytes - before, at - last), 4))
            last, before = at, result.bytes
            result.samples.append(sample)
            on_sample(sample)
    result.seconds, result.gbps = round(last, 3), round(gbps(result.bytes, last), 4)


SECONDS = 8.0  # of each transfer
RETURN_SECONDS = 5.0  # s until planes must be in use again after the last byte


@dataclass(frozen=True)
class DemoOptions:
    out: Path
    seconds: float = SECONDS  # of each transfer
    size: int | None = None  # bytes to send by MRC; None: as many as fit into the seconds
    planes: int = 4
    faults: str | None = None  # a schedule as text; None: the default schedule
    seed: int = SEED
    tcp: bool = True  # begin with TCP over one plane
    timeout: float = TIMEOUT  # s without progress until failure


class Sampler:
    """A thread that samples the counters periodically."""

    def __init__(self, context: Context, sender: MemorySender, on_sample: Callable[[RateSample], None]) -> None:
        self.samples: list[RateSample] = []
        self._context = context
        self._sender = sender
        self._on_sample = on_sample
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def begin(self, connection: Connection) -> None:
        """Start sampling; zero is now."""
        self._connection = connection
        self._began = self._last = time.perf_counter()
        self._counters = self._context.plane_counters()
        self._bytes = self._sender.done
        self._thread.start()

    def end(self) -> None:
        """Take a last sample and stop."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(5.0)

    def _run(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self._take()
        self._take()  # a short run has only this one

    def _take(self) -> None:
        now, counters, done = time.perf_counter(), self._context.plane_counters(), self._sender.done
        span, pairs = now - self._last, list(zip(counters, self._counters, strict=True))
        sample = RateSample(
            at=round(now - self._began, 3),
            done=done,
            gbps=round(gbps(done - self._bytes, span), 4),
            planes=[round(gbps(new.sent_bytes - old.sent_bytes, span), 4) for new, old in pairs],
            evs=ev_counts([self._connection.qp]),
            retransmitted=sum(new.retransmitted - old.retransmitted for new, old in pairs),
        )
        self._last, self._counters, self._bytes = now, counters, done
        self.samples.append(sample)
        self._on_sample(sample)


class Story:
    def __init__(self, options: DemoOptions, view: View) -> None:
        self.options = options
        self._view = view
        faults = options.faults or story_faults(options.seconds, options.planes)
        self._schedule = Schedule.parse(faults, "--impair")
        outages = outages_of(self._schedule, options.planes)
        self.result = DemoResult(ok=False, seed=options.seed, faults=faults, outages=outages)

    def run_single_path(self, beside_compilation: bool) -> None:
        """Send by TCP over the plane that goes down first, with its outages; nothing if no plane goes down."""
        if not self.result.outages or not self.options.tcp:
            return
        if not can_take_down():
            self._view.print_line("no TCP to compare with: this kernel lets only root take its plane down")
            return
        plane, seconds = self.result.outages[0].plane, self.options.seconds
        found = self.result.single_path = SinglePath(plane=plane, beside_compilation=beside_compilation)
        client, server = (
            loopback_planes(plane + 1, side)[plane] for side in (EndpointSide.CLIENT, EndpointSide.SERVER)
        )
        outages = [each for each in self.result.outages if each.plane == plane]
        meanwhile = "; the engine is compiled meanwhile" if beside_compilation else ""
        self._view.print_line(f"a single path: TCP over plane {plane}, for {seconds:g} s{meanwhile}")
        for each in outages:
            up = f", up at {each.up:g} s" if each.up else ""
            self._view.print_line(f"  plane {plane} goes down at {each.down:g} s{up}")
        transfer(found, (client, server), outages, seconds, self._view.on_tcp)

    def run(self) -> None:
        """Send over all planes by MRC; the result says whether the memories are equal. MrcError if the run fails."""
        asked = self.options
        endpoint = EndpointOptions(tuple(loopback_planes(asked.planes, EndpointSide.CLIENT)))
        arguments = [str(asked.planes), self.result.faults]
        with open_endpoint(endpoint) as context, SecondProcess(arguments, memory_transfer.__name__) as receiver:
            self._view.print_line(context.describe())
            options = replace(connection_options(context, 0), user_timeout=asked.timeout)
            sender = MemorySender(
                context, asked.seed, asked.seconds, self._schedule, options, asked.size, asked.timeout
            )
            sampler = Sampler(context, sender, self._view.on_sample)
            self._view.begin(self.result.outages, asked.planes)
            try:
                sender.run(receiver.port, receiver.token, sampler.begin, self._await_planes)
            except MrcError as error:
                self.result.error = str(error)
            finally:
                sampler.end()
        self._judge(sender, sampler.samples)

    def _await_planes(self, connection: Connection) -> None:
        """Wait, for a few seconds at most, until every plane that came back up is in use."""
        deadline = time.monotonic() + RETURN_SECONDS
        while time.monotonic() < deadline and unused_planes(ev_counts([connection.qp]), self.result.outages):
            time.sleep(SAMPLE_SECONDS)

    def _judge(self, sender: MemorySender, samples: list[RateSample]) -> None:
        result, found = self.result, sender.verdict
        result.bytes, result.seconds, result.gbps = sender.done, round(sender.took, 3), gbps(sender.done, sender.took)
        result.planes, result.samples = sender.planes, samples
        result.retransmitted_packets = sum(plane.retransmitted for plane in sender.planes)
        result.measure_returns()
        if found is not None:
            result.sha256, result.longest_stall_ms = found.sha256, round(found.longest_stall_ms, 3)
            result.error = difference(found.wrong, found.sha256, sender.expected)
            result.ok = result.error is None
        if result.ok:
            result.check_planes()


def difference(wrong: int, found: str, expected: str) -> str | None:
    """Return how the receiver's memory differs from what was sent; None if it does not."""
    if wrong:
        return f"{wrong} pieces arrived with another CRC-32"
    return None if found == expected else f"the receiver's memory has SHA-256 {found}, expected {expected}"
