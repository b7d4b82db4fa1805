"""A test stream over the kernel's TCP or MPTCP, across the same cables."""

from __future__ import annotations

import socket
import time

from bench.lab.experiments.pieces import PIECE, Log, write_piece
from openmrc.errors import MrcError

IPPROTO_MPTCP = 262
_END = (1 << 64) - 1
_PATIENCE = 60.0  # s


def _socket(kind: str) -> socket.socket:
    protocol = IPPROTO_MPTCP if kind == "mptcp" else socket.IPPROTO_TCP
    try:
        made = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, protocol)
    except OSError as error:
        raise MrcError(f"{kind}: not supported by this kernel ({error}); see `mrc doctor`") from error
    made.settimeout(_PATIENCE)
    return made


def receive(kind: str, port: int) -> Log:
    """Receive one stream to its end."""
    log = Log(kind)
    with _socket(kind) as listener:  # open until the end: MPTCP joins later connections through it
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("::", port))  # and they arrive at addresses of other planes
        listener.listen()
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(_PATIENCE)
            _take(connection, log)
            connection.sendall(b"!")
    return log


def _take(connection: socket.socket, log: Log) -> None:
    piece = memoryview(bytearray(PIECE))
    while True:
        _fill(connection, piece[:8])
        if int.from_bytes(piece[:8], "little") == _END:
            break
        _fill(connection, piece[8:])
        log.take(piece)
    _fill(connection, piece[:8])
    log.sent = int.from_bytes(piece[:8], "little")


def send(kind: str, address: str, port: int, seconds: float) -> None:
    """Send as fast as the network allows for a time."""
    piece = memoryview(bytearray(PIECE))
    with _socket(kind) as connection:
        connection.connect((address, port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        until, count = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            write_piece(piece, count)
            connection.sendall(piece)
            count += 1
        connection.sendall(_END.to_bytes(8, "little") + count.to_bytes(8, "little"))
        connection.recv(1)


def _fill(connection: socket.socket, memory: memoryview) -> None:
    at = 0
    while at < len(memory):
        got = connection.recv_into(memory[at:])
        if got == 0:
            raise ConnectionError(f"the stream ended {len(memory) - at} bytes early")
        at += got
