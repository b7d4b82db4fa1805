"""The same outages for the kernel's TCP over one plane, which needs nothing compiled."""

import ctypes
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from openmrc.programs.demo.result import Outage, RateSample, Recorder, SinglePath

SO_ATTACH_FILTER = 26  # socket(7); absent from Python's socket module
_NOTHING, _ALL = 0, 0xFFFFFFFF  # bytes of a packet that a filter keeps
_PIECE = 1 << 20  # bytes
_POLL_SECONDS = 0.01  # how late TCP's plane may go down or come up


class DeadPlane:
    """Drops all segments that arrive at some sockets, until it is revived."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        """Raise OSError if this user may not attach filters to sockets here: some kernels let only root."""
        self._sockets = sockets
        self._is_down = True
        self.set(False)

    def set(self, is_down: bool) -> None:
        """Take the plane down, or bring it back."""
        if is_down == self._is_down:
            return
        kept = struct.pack("HBBI", 0x06, 0, 0, _NOTHING if is_down else _ALL)  # classic BPF: BPF_RET | BPF_K
        program = ctypes.create_string_buffer(kept)
        filters = struct.pack("HL", 1, ctypes.addressof(program))  # struct sock_fprog: one instruction
        for each in self._sockets:  # emulations can attach a filter, but not detach it
            each.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filters)
        self._is_down = is_down


def transfer(
    found: SinglePath,
    ends: Sequence[str],
    outages: Sequence[Outage],
    seconds: float,
    show: Callable[[RateSample], None],
) -> None:
    """Send for `seconds` from the first address to the second, with the outages, and fill `found`.

    Raise OSError if the plane cannot be taken down.
    """
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((ends[1], 0)))
        sender = stack.enter_context(socket.create_connection(listener.getsockname(), source_address=(ends[0], 0)))
        receiver = stack.enter_context(listener.accept()[0])
        receiver.settimeout(_POLL_SECONDS)
        plane = DeadPlane((sender, receiver))
        thread = threading.Thread(target=_send, args=(sender,), daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(sender.shutdown, socket.SHUT_RDWR)  # ends a call of `send` that waits
        memory, done = bytearray(_PIECE), 0
        recorder = Recorder(found, show, lambda: [done], lambda: [{}])
        while (at := recorder.at) < seconds:
            plane.set(any(each.covers(at) for each in outages))
            with suppress(TimeoutError):
                done += receiver.recv_into(memory)
            recorder.count(done)


def _send(sender: socket.socket) -> None:
    piece = bytes(_PIECE)
    with suppress(OSError):
        while True:
            sender.sendall(piece)
