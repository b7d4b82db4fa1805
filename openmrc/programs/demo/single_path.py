"""What a single path does: the kernel's TCP over one plane of the demo, with that plane's outages.

Two sockets on the plane's loopback addresses. While the plane is down, a socket filter at both ends drops every segment
that arrives (SO_ATTACH_FILTER, for which no privilege is needed): as with MRC's planes, nothing reports the outage. TCP
notices by its retransmission time-out, which doubles each time (RFC 6298), so it tries again ever more rarely and may
find the plane back long after it is.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from openmrc.base.amounts import gbps
from openmrc.programs.demo.timeline import SAMPLE_SECONDS

SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27  # socket(7); absent from Python's socket module
_RETURN_0 = struct.pack("HBBI", 0x06, 0, 0, 0)  # classic BPF: BPF_RET | BPF_K, keep 0 bytes
PIECE = 1 << 20  # bytes
_POLL_SECONDS = 0.2
_END_SECONDS = 5.0


class SinglePathSample(msgspec.Struct, kw_only=True):
    """A tenth of a second of the TCP transfer."""

    at: float  # s since it began, at the end of the sample
    gbps: float


class SinglePath(msgspec.Struct, kw_only=True):
    """The TCP transfer over one plane."""

    plane: int
    bytes: int = 0
    seconds: float = 0.0
    gbps: float = 0.0
    longest_stall_ms: float = 0.0  # longest time in which the receiver got nothing
    beside_compilation: bool = False  # the engine was being compiled meanwhile, which costs it processor time
    samples: list[SinglePathSample] = msgspec.field(default_factory=list)


class DeadPlane:
    """Drops all segments that arrive at some sockets, until it is revived."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self._sockets = sockets
        self.is_down = False

    def set(self, is_down: bool) -> None:
        """Take the plane down, or bring it back."""
        if is_down == self.is_down:
            return
        program = ctypes.create_string_buffer(_RETURN_0)
        for each in self._sockets:
            if is_down:
                each.setsockopt(
                    socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", 1, ctypes.addressof(program))
                )  # struct sock_fprog: one instruction
            else:
                each.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
        self.is_down = is_down


def transfer(
    result: SinglePath,
    addresses: tuple[str, str],
    outages: Sequence[tuple[float, float | None]],
    seconds: float,
    on_sample: Callable[[SinglePathSample], None],
) -> None:
    """Send for `seconds` from the first address to the second, and fill `result`.

    `outages` are (down, up) in seconds since the begin.
    """
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((addresses[1], 0)))
        sender = stack.enter_context(socket.socket())
        sender.bind((addresses[0], 0))
        sender.connect(listener.getsockname())
        receiver = stack.enter_context(listener.accept()[0])
        _Course(result, sender, receiver, outages).run(seconds, on_sample)


class _Course:
    """The transfer in progress: a thread sends, a thread receives, this one samples and applies the outages."""

    def __init__(
        self,
        result: SinglePath,
        sender: socket.socket,
        receiver: socket.socket,
        outages: Sequence[tuple[float, float | None]],
    ) -> None:
        self._result = result
        self._sender, self._receiver = sender, receiver
        self._outages = outages
        self._plane = DeadPlane((sender, receiver))
        self._is_over = threading.Event()
        self._received = 0  # bytes
        for each in (sender, receiver):
            each.settimeout(_POLL_SECONDS)

    def run(self, seconds: float, on_sample: Callable[[SinglePathSample], None]) -> None:
        threads = [threading.Thread(target=each, daemon=True) for each in (self._send, self._receive)]
        self._began = time.monotonic()
        for thread in threads:
            thread.start()
        try:
            self._watch(seconds, on_sample)
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join(_END_SECONDS)
        self._result.bytes = self._received
        self._result.gbps = round(gbps(self._received, self._result.seconds), 4)

    def _watch(self, seconds: float, on_sample: Callable[[SinglePathSample], None]) -> None:
        last, before = 0.0, 0
        while last < seconds:
            time.sleep(max(0.0, self._next_moment(last) - self._at()))
            at = self._at()
            self._plane.set(any(down <= at and (up is None or at < up) for down, up in self._outages))
            if at - last >= SAMPLE_SECONDS * 0.99:
                received = self._received
                sample = SinglePathSample(at=round(at, 3), gbps=round(gbps(received - before, at - last), 4))
                last, before = at, received
                self._result.samples.append(sample)
                on_sample(sample)
        self._result.seconds = round(last, 3)

    def _next_moment(self, last: float) -> float:
        """Return when the next sample is due, or an outage begins or ends."""
        now = self._at()
        moments = [moment for outage in self._outages for moment in outage if moment is not None and moment > now]
        return min([last + SAMPLE_SECONDS, *moments])

    def _at(self) -> float:
        return time.monotonic() - self._began

    def _send(self) -> None:
        piece = bytes(PIECE)
        while not self._is_over.is_set():
            with contextlib.suppress(TimeoutError):
                self._sender.send(piece)

    def _receive(self) -> None:
        memory, since = bytearray(PIECE), time.monotonic()
        while not self._is_over.is_set():
            with contextlib.suppress(TimeoutError):
                self._received += self._receiver.recv_into(memory)
                now = time.monotonic()
                self._note_stall(now - since)
                since = now
        self._note_stall(time.monotonic() - since)

    def _note_stall(self, seconds: float) -> None:
        self._result.longest_stall_ms = max(self._result.longest_stall_ms, round(seconds * 1e3, 1))
