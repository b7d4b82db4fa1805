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

from openmrc.base.amounts import gbps
from openmrc.programs.demo.result import SAMPLE_SECONDS, Outage, SinglePath, SinglePathSample

SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27  # socket(7); absent from Python's socket module
_RETURN_0 = struct.pack("HBBI", 0x06, 0, 0, 0)  # classic BPF: BPF_RET | BPF_K, keep 0 bytes
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
        program = ctypes.create_string_buffer(_RETURN_0)
        filters = struct.pack("HL", 1, ctypes.addressof(program))  # struct sock_fprog: one instruction
        for each in self._sockets:
            if is_down:
                each.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filters)
            else:
                each.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
        self.is_down = is_down


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
