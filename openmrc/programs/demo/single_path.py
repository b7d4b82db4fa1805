"""The same outages for the kernel's TCP over one plane, which needs nothing compiled."""

import ctypes
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from openmrc.live.host.planes import EndpointSide, loopback_planes
from openmrc.programs.demo.result import Outage, RateSample, Recorder, SinglePath

SO_ATTACH_FILTER = 26  # socket(7); absent from Python's socket module
_NOTHING, _ALL = 0, 0xFFFFFFFF  # bytes of a packet that a filter keeps
_PIECE = 1 << 20  # bytes
_POLL_SECONDS = 0.01  # how late TCP's plane may go down or come up


def set_down(sockets: Sequence[socket.socket], is_down: bool) -> None:
    """Drop all segments that arrive at these sockets, or none any more; OSError if only root may do so here."""
    kept = struct.pack("HBBI", 0x06, 0, 0, _NOTHING if is_down else _ALL)  # classic BPF: BPF_RET | BPF_K
    program = ctypes.create_string_buffer(kept)
    filters = struct.pack("HL", 1, ctypes.addressof(program))  # struct sock_fprog: one instruction
    for each in sockets:  # emulations can attach a filter, but not detach it
        each.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filters)


def transfer(plane: int, outages: Sequence[Outage], seconds: float, show: Callable[[RateSample], None]) -> SinglePath:
    """Send for `seconds` over a plane, with its outages; raise OSError if it cannot be taken down."""
    found = SinglePath(plane=plane)
    ours, theirs = (loopback_planes(plane + 1, side)[plane] for side in (EndpointSide.CLIENT, EndpointSide.SERVER))
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((theirs, 0)))
        sender = stack.enter_context(socket.create_connection(listener.getsockname(), source_address=(ours, 0)))
        receiver = stack.enter_context(listener.accept()[0])
        receiver.settimeout(_POLL_SECONDS)
        set_down((sender, receiver), is_down := False)
        thread = threading.Thread(target=_send, args=(sender,), daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(sender.shutdown, socket.SHUT_RDWR)  # ends a call of `send` that waits
        memory, done = bytearray(_PIECE), 0
        recorder = Recorder(found, show, lambda: [(done, {})])
        while (at := recorder.at) < seconds:
            if is_down != any(each.plane == plane and each.covers(at) for each in outages):
                set_down((sender, receiver), is_down := not is_down)
            with suppress(TimeoutError):
                done += receiver.recv_into(memory)
            recorder.count(done)
    return found


def _send(sender: socket.socket) -> None:
    piece = bytes(_PIECE)
    with suppress(OSError):
        while True:
            sender.sendall(piece)
