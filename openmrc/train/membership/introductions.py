"""Connections beside the queue pairs, made while a group meets: for control, and to ranks of this host."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

import msgspec

from openmrc.live.connections.exchange import ControlChannel
from openmrc.train.local.introduction import LocalListener, LocalPair, agree, connect_local, host_identity
from openmrc.train.membership.liveness import ControlListener, Dialler, Liveness


class Report(msgspec.Struct):
    """What a rank publishes when it is ready: the ranks below it that it has connected to."""

    control: list[int] = []
    local: list[int] = []


class Introductions:
    """One rank's listeners, and the connections that it has made to lower ranks."""

    def __init__(self, rank: int, planes: Sequence[str], shares_memory: bool) -> None:
        """Start to listen; `shares_memory`: with ranks of this host."""
        self._rank = rank
        self._control = ControlListener(planes)
        self.port, self.nonce = self._control.port, self._control.nonce
        self.host = host_identity() if shares_memory else ""
        self._local = LocalListener(self.nonce) if self.host else None
        self._dialler = Dialler(rank)
        self._channels: dict[int, ControlChannel] = {}
        self._connections: dict[int, socket.socket] = {}

    def connect(self, other: int, planes: Sequence[str], port: int, nonce: str, host: str) -> None:
        """Connect to a lower rank; the arguments are those of its card."""
        channel = self._dialler.dial(planes, port, nonce)
        if channel is not None:
            self._channels[other] = channel
        connection = connect_local(nonce) if self.host and self.host == host else None
        if connection is not None:
            self._connections[other] = connection

    def report(self) -> Report:
        """Return what to publish."""
        return Report(sorted(self._channels), sorted(self._connections))

    def conclude(self, reports: Mapping[int, Report], deadline: float) -> tuple[Liveness, list[LocalPair]]:
        """Accept the connections of the ranks that report them; return all. All ranks are ready by now."""
        self._channels |= self._control.accept(rank for rank, each in reports.items() if self._rank in each.control)
        pairs: list[LocalPair] = []
        if self._local is not None:
            callers = [rank for rank, each in reports.items() if self._rank in each.local]
            pairs = agree(self._rank, self._connections, callers, self._local, deadline)
        return Liveness(self._channels), pairs

    def stop_listening(self) -> None:
        """Close the listeners; connections stay open."""
        self._control.close()
        if self._local is not None:
            self._local.close()

    def close_connections(self) -> None:
        """Close what was connected: the group did not meet."""
        for channel in self._channels.values():
            channel.close()
        for connection in self._connections.values():
            connection.close()
