"""How ranks of one host (boot, network namespace, user) agree on shared memory while a group meets.

A rank connects to an abstract Unix socket of each lower rank of its host before it reports that it is ready; once all
are, both ends pass their segment, check the other's, and exchange whether both can be used, else the network remains.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import msgspec

from openmrc.errors import MrcError
from openmrc.live.errors import ExchangeError
from openmrc.live.objects.exchange import ControlChannel
from openmrc.train.errors import RendezvousError
from openmrc.train.links.liveness import ControlListener, Dialler, Liveness, Notice, Wait, is_welcome
from openmrc.train.links.local_queue_pair import SEGMENT, AnnouncedMemory, LocalQueuePair
from openmrc.train.links.segment import Bytes, OutgoingSegment, SegmentError, map_incoming
from openmrc.verbs import WorkCompletion

VARIABLE = "MRC_SHARED_MEMORY"
Result = TypeVar("Result")
_HELLO = struct.Struct("<I")  # the rank that passes a segment
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def host_identity() -> str:
    """Return a text that is equal for processes that can share memory; empty if MRC_SHARED_MEMORY=0."""
    if os.environ.get(VARIABLE) == "0":
        return ""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/net')} {os.geteuid()}"
    except OSError:
        return ""


def _name_of(nonce: str) -> bytes:
    return b"\0openmrc/" + nonce.encode()


class LocalListener:
    """The socket on which higher ranks of this host introduce themselves."""

    def __init__(self, nonce: str) -> None:
        """Listen under the nonce of this rank's card."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(_name_of(nonce))
        self._socket.listen(4096)

    def accept(self, expected: Iterable[int], deadline: float) -> list[LocalPair]:
        """Return the pairs with the expected ranks, which have connected; RendezvousError after the deadline."""
        missing, pairs = set(expected), []
        while missing:
            pair = LocalPair(self._accept(deadline), deadline)
            rank = pair.read()
            if rank in missing and pair.is_same_user():
                missing.discard(rank)
                pairs.append(pair)
            else:
                pair.close()
        return pairs

    def _accept(self, deadline: float) -> socket.socket:
        self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            return self._socket.accept()[0]
        except OSError as error:
            raise RendezvousError(f"a rank of this host did not introduce itself: {error}") from error

    def close(self) -> None:
        self._socket.close()


class LocalPair:
    """The connection to one rank of this host while both ends agree."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        """`deadline` (monotonic s) ends all waits by a RendezvousError."""
        self.connection = connection
        self.rank = -1
        self.outgoing: OutgoingSegment | None = None
        self.incoming: Bytes | None = None
        self._deadline = deadline

    def offer(self, own_rank: int) -> None:
        """Pass a segment, if the kernel gives one."""
        with suppress(SegmentError):
            self.outgoing = OutgoingSegment(SEGMENT)
        descriptors = [self.outgoing.descriptor] if self.outgoing is not None else []
        self._guard(lambda: socket.send_fds(self.connection, [_HELLO.pack(own_rank)], descriptors))

    def read(self) -> int:
        """Take the peer's segment, if it can be used; return the peer's rank."""
        data, descriptors, _, _ = self._guard(lambda: socket.recv_fds(self.connection, _HELLO.size, 1))
        if len(data) != _HELLO.size:
            raise RendezvousError("a rank of this host ended its introduction")
        for descriptor in descriptors:
            with suppress(SegmentError):
                self.incoming = map_incoming(descriptor, SEGMENT)
        (self.rank,) = _HELLO.unpack(data)
        return self.rank

    def can_use(self) -> bool:
        """Whether this end has both segments."""
        return self.outgoing is not None and self.incoming is not None

    def say(self) -> None:
        """Tell the peer whether this end can use shared memory."""
        self._guard(lambda: self.connection.sendall(bytes([self.can_use()])))

    def hear(self) -> bool:
        """Return whether both ends can use it."""
        heard: bytes = self._guard(lambda: self.connection.recv(1))
        if not heard:
            raise RendezvousError("a rank of this host ended its introduction")
        return heard == b"\1" and self.can_use()

    def queue_pair(self, memory: AnnouncedMemory, on_completion: Callable[[WorkCompletion], None]) -> LocalQueuePair:
        """Return the queue pair of an agreed pair, which owns the connection and the segment from now on."""
        if self.outgoing is None or self.incoming is None:
            raise ValueError(f"rank {self.rank}: no segments were agreed on")
        return LocalQueuePair(self.rank, self.connection, self.outgoing, self.incoming, memory, on_completion)

    def is_same_user(self) -> bool:
        given = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return bool(_CREDENTIALS.unpack(given)[1] == os.geteuid())

    def close(self) -> None:
        self.connection.close()
        if self.outgoing is not None:
            self.outgoing.close()

    def _guard(self, step: Callable[[], Result]) -> Result:
        self.connection.settimeout(max(self._deadline - time.monotonic(), 0.001))
        try:
            return step()
        except OSError as error:
            raise RendezvousError(f"introduction to a rank of this host: {error}") from error


def connect_local(nonce: str) -> socket.socket | None:
    """Connect to the socket of a rank of this host; None if that is not possible."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(_name_of(nonce))
    except OSError:
        connection.close()
        return None
    return connection


def agree(
    own_rank: int, dialled: dict[int, socket.socket], callers: Iterable[int], listener: LocalListener, deadline: float
) -> list[LocalPair]:
    """Return the pairs that both ends can use. Every rank of the host calls it once all are ready."""
    ours = [LocalPair(connection, deadline) for connection in dialled.values()]
    theirs: list[LocalPair] = []
    try:
        for pair in ours:
            pair.offer(own_rank)
        theirs = listener.accept(callers, deadline)
        for pair in theirs:
            pair.offer(own_rank)
            pair.say()
        for rank, pair in zip(dialled, ours, strict=True):
            if pair.read() != rank:
                raise RendezvousError(f"rank {pair.rank} answered in place of rank {rank}")
        agreed = [pair.hear() for pair in ours]
        for pair in ours:
            pair.say()
        agreed += [pair.hear() for pair in theirs]
    except BaseException:
        for pair in (*ours, *theirs):
            pair.close()
        raise
    for pair, is_agreed in zip((*ours, *theirs), agreed, strict=True):
        if not is_agreed:
            pair.close()
    return [pair for pair, is_agreed in zip((*ours, *theirs), agreed, strict=True) if is_agreed]


class Report(msgspec.Struct):
    """What a rank publishes when it is ready: the ranks below it that it has connected to."""

    control: list[int] = []
    local: list[int] = []


class Introductions:
    """One rank's listeners, and the connections that it has made to lower ranks."""

    def __init__(self, rank: int, size: int, planes: Sequence[str], shares_memory: bool) -> None:
        """Start to listen; `shares_memory`: with ranks of this host."""
        self._rank = rank
        self._control = ControlListener(planes, size - 1 - rank)
        self.port, self.nonce = self._control.port, self._control.nonce
        self.host = host_identity() if shares_memory else ""
        self._local = LocalListener(self.nonce) if self.host else None
        self._dialler = Dialler(rank)
        self._dial_again: dict[int, Callable[[], ControlChannel | None]] = {}  # by rank
        self._channels: dict[int, ControlChannel] = {}
        self._connections: dict[int, socket.socket] = {}

    def connect(self, other: int, planes: Sequence[str], port: int, nonce: str, host: str) -> None:
        """Connect to a lower rank; the arguments are those of its card."""
        channel = self._dialler.dial(planes, port, nonce)
        if channel is not None:
            self._channels[other] = channel
            self._dial_again[other] = lambda: Dialler(self._rank).dial(planes, port, nonce)
        connection = connect_local(nonce) if self.host and self.host == host else None
        if connection is not None:
            self._connections[other] = connection

    def report(self) -> Report:
        return Report(sorted(self._channels), sorted(self._connections))

    def conclude(self, reports: Mapping[int, Report], deadline: float, wait: Wait) -> tuple[Liveness, list[LocalPair]]:
        """Accept the connections of the ranks that report them; return all. All ranks are ready by now."""
        dialled = (rank for rank, each in reports.items() if self._rank in each.control)
        accepted = self._control.accept(dialled, wait)
        for other in list(self._channels):
            wait(partial(self._is_welcome, other), lambda: "a rank that this one dialled did not accept")
        self._channels |= accepted
        pairs: list[LocalPair] = []
        if self._local is not None:
            callers = [rank for rank, each in reports.items() if self._rank in each.local]
            pairs = agree(self._rank, self._connections, callers, self._local, deadline)
        return Liveness(self._channels), pairs

    def _is_welcome(self, other: int) -> bool:
        """Whether a rank has accepted this one, which dials again if it was dropped."""
        try:
            return is_welcome(self._channels[other], other)
        except ExchangeError as error:
            self._channels.pop(other).close()
            channel = self._dial_again[other]()
            if channel is None:
                raise RendezvousError(f"rank {other} dropped this one and cannot be dialled again") from error
            self._channels[other] = channel
            return False

    def stop_listening(self) -> None:
        """Close the listeners; connections stay open."""
        self._control.close()
        if self._local is not None:
            self._local.close()

    def close_connections(self, reason: str) -> None:
        """Close what was connected: the group did not meet. Others may have met, and are told why."""
        for channel in self._channels.values():
            with suppress(MrcError):
                channel.tell(Notice(reason))
            channel.close()
        for connection in self._connections.values():
            connection.close()
