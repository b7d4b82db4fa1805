"""Connections whose end tells other ranks that this process has ended: forks (data loaders) must not keep them."""

import os
import weakref
from socket import socket

from openmrc.live.objects.exchange import ControlChannel

_connections: weakref.WeakSet[socket | ControlChannel] = weakref.WeakSet()


def close_in_forks(connection: socket | ControlChannel) -> None:
    """Close a connection in every later fork of this process; it stays open here."""
    _connections.add(connection)


def _close_all() -> None:
    for connection in _connections:
        connection.close()
    _connections.clear()


os.register_at_fork(after_in_child=_close_all)
