"""Connections whose end tells other ranks that this process has ended: a fork of it must not keep them open.

The workers of a data loader are forks, and notice only after seconds that their process was killed.
"""

import os
import weakref
from typing import Protocol


class Closable(Protocol):
    def close(self) -> None:
        """Close this process's descriptor."""


_connections: weakref.WeakSet[Closable] = weakref.WeakSet()


def close_in_forks(connection: Closable) -> None:
    """Close a connection in every later fork of this process; it stays open here."""
    _connections.add(connection)


def _close_all() -> None:
    for connection in _connections:
        connection.close()
    _connections.clear()


os.register_at_fork(after_in_child=_close_all)
