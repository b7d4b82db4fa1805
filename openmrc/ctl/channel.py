"""Whole messages over a stream socket, each read and write with a deadline."""

import socket
import time

import msgspec

from openmrc.ctl.messages import LENGTH, CtlMessage, frame, length_of, message

CHUNK = 1 << 16  # bytes asked for at once: memory grows with what arrives, not with what a length promises


class Channel:
    """One end of a controller socket. TimeoutError: the time is over; EOFError: the peer has closed."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def send(self, what: msgspec.Struct, seconds: float) -> None:
        """Send a message within this time."""
        self._sock.settimeout(seconds)
        self._sock.sendall(frame(what))

    def receive(self, most: int, idle: float, seconds: float) -> CtlMessage:
        """Return the next message, of at most `most` bytes: it begins within `idle` seconds and takes `seconds`."""
        return message(self.receive_frame(most, idle, seconds))

    def receive_frame(self, most: int, idle: float, seconds: float) -> bytes:
        """Return what follows the length of the next frame."""
        first = self._some(1, time.monotonic() + idle)
        deadline = time.monotonic() + seconds
        length = length_of(first + self._exactly(LENGTH.size - 1, deadline), most)
        return self._exactly(length, deadline)

    def shut(self) -> None:
        """End both directions: whoever waits in another thread returns."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # not connected any more

    def close(self) -> None:
        self._sock.close()

    def _exactly(self, count: int, deadline: float) -> bytes:
        taken = bytearray()
        while len(taken) < count:
            taken += self._some(min(count - len(taken), CHUNK), deadline)
        return bytes(taken)

    def _some(self, most: int, deadline: float) -> bytes:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        taken = self._sock.recv(most)
        if not taken:
            raise EOFError
        return taken
