"""Bringing a queue pair up with a peer: attributes over TCP, then RESET, INIT, RTR, RTS on both sides."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from openmrc.engine.regions import Access
from openmrc.engine.states import QpState
from openmrc.live.api.attributes import ConnectionOptions, PeerAddress, QpCap, QpInitAttr, WorkCompletion
from openmrc.live.api.errors import ExchangeError, InvalidArgumentError
from openmrc.live.objects.context import Context
from openmrc.live.objects.exchange import Channel, Offer, RegionOffer, Server, check_offers, dial
from openmrc.live.objects.memory import MemoryRegion, ProtectionDomain, RegionSlice
from openmrc.live.objects.queue_pair import QueuePair

Message = TypeVar("Message")
DEFAULT_PORT = 18515  # as perftest and the OCP example


@dataclass(frozen=True)
class RemoteRegion:
    """Memory of the peer that we may write."""

    addr: int
    r_key: int
    length: int

    def __getitem__(self, part: slice) -> RemoteRegion:
        """Return a part, as sequences are sliced; only steps of 1."""
        start, stop, step = part.indices(self.length)
        if step != 1:
            raise InvalidArgumentError(f"slice: step {step} is not 1")
        return RemoteRegion(self.addr + start, self.r_key, max(stop - start, 0))


@dataclass(frozen=True)
class Remote:
    """Who is at the other end, as it told us."""

    name: str  # host and process
    address: PeerAddress
    qpn: int
    regions: tuple[RemoteRegion, ...]
    note: Any  # whatever its program said: anything JSON can say


class Connection:
    """A queue pair in RTS, its completion queues, and the TCP channel to the same peer."""

    def __init__(self, context: Context, pd: ProtectionDomain, options: ConnectionOptions, channel: Channel) -> None:
        """`connect` and `Listener.accept` are the ways to get one."""
        self.context = context
        self.options = options
        self.send_cq = context.create_cq(options.max_send_wr + 1)
        self.recv_cq = context.create_cq(options.max_recv_wr + 1)
        self.qp = context.create_qp(
            pd,
            QpInitAttr(
                send_cq=self.send_cq,
                recv_cq=self.recv_cq,
                max_send_wr=options.max_send_wr,
                max_recv_wr=options.max_recv_wr,
                sq_sig_all=options.sq_sig_all,
            ),
        )
        self.channel = channel
        self.remote: Remote

    def __repr__(self) -> str:
        peer = self.remote.name if hasattr(self, "remote") else self.channel.peer
        return f"<Connection to {peer}, {self.qp!r}>"

    def write(
        self,
        local: MemoryRegion | RegionSlice,
        remote: RemoteRegion,
        *,
        immediate: int | None = None,
        timeout: float,
    ) -> WorkCompletion:
        """Write `local` to the start of `remote` and wait until it is there. For one at a time; more: `qp.post_send`.

        Raises InvalidArgumentError if `remote` is too small, ExchangeError if the write fails, DeadlineError if it is
        not done after `timeout` seconds.
        """
        _check_fits(local, remote)
        self.qp.post_write(local, remote.addr, remote.r_key, immediate=immediate)
        return self._good(self.send_cq.wait(timeout, 1)[0])

    async def write_async(
        self,
        local: MemoryRegion | RegionSlice,
        remote: RemoteRegion,
        *,
        immediate: int | None = None,
        timeout: float,
    ) -> WorkCompletion:
        """Write as `write` does, letting the event loop run."""
        _check_fits(local, remote)
        self.qp.post_write(local, remote.addr, remote.r_key, immediate=immediate)
        return self._good((await self.send_cq.wait_async(timeout, 1))[0])

    def tell(self, message: Any) -> None:
        """Send something that JSON can say (also a msgspec Struct) over the TCP channel."""
        self.channel.tell(message)

    def hear(self, kind: type[Message] | Any = Any, *, timeout: float) -> Message:
        """Return the peer's next message, checked against `kind`; DeadlineError after `timeout` seconds."""
        message: Message = self.channel.hear(kind, timeout=timeout)
        return message

    def barrier(self, timeout: float) -> None:
        """Wait until the peer has called it too."""
        self.tell("barrier")
        if self.hear(str, timeout=timeout) != "barrier":
            raise ExchangeError(f"{self.remote.name}: said something else than that it is at the barrier")

    def describe(self) -> str:
        """Return one line: peer, state, paths, last progress."""
        return self.qp.describe()

    def close(self) -> None:
        """Give back queue pair, completion queues and channel; what the peer still sends is ignored."""
        self.qp.destroy()
        for cq in (self.send_cq, self.recv_cq):
            cq.destroy()
        self.channel.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _good(self, completion: WorkCompletion) -> WorkCompletion:
        if not completion.ok:
            raise ExchangeError(f"write failed: {completion.status.name}; {completion.error}")
        return completion


def _check_fits(local: MemoryRegion | RegionSlice, remote: RemoteRegion) -> None:
    if local.length > remote.length:
        raise InvalidArgumentError(f"remote: {remote.length} bytes, too small for a write of {local.length}")


def connect(
    context: Context,
    host: str,
    port: int = DEFAULT_PORT,
    *,
    regions: Sequence[MemoryRegion] = (),
    pd: ProtectionDomain | None = None,
    options: ConnectionOptions | None = None,
    note: Any = None,
    remote_planes: Sequence[str] = (),
    timeout: float = 10.0,
) -> Connection:
    """Meet the `Listener` at host and port and return a connection ready to write.

    `regions` are what the peer may write, in the order in which it will see them; they, or `pd`,
    say which protection domain the queue pair is in. `remote_planes` are the peer's addresses as they
    look from here, where that is not what it says itself. Tries until `timeout` while nobody listens.
    """
    deadline = time.monotonic() + timeout
    channel = dial(host, port, deadline)
    asked = _Asked(regions, pd, options or ConnectionOptions(), note, tuple(remote_planes))
    return _establish(context, channel, asked, deadline)


async def connect_async(context: Context, host: str, port: int = DEFAULT_PORT, **options: Any) -> Connection:
    """Connect as `connect` does, in a thread, letting the event loop run."""
    return await asyncio.to_thread(connect, context, host, port, **options)


class Listener:
    """Waits on a TCP port for peers that call `connect`."""

    def __init__(self, context: Context, host: str = "", port: int = DEFAULT_PORT) -> None:
        """Listen on `host` (empty: all addresses); port 0 lets the kernel choose, see `port`."""
        self.context = context
        self._server = Server(host, port)
        self.port = self._server.port

    def __repr__(self) -> str:
        return f"<Listener on TCP port {self.port}>"

    def accept(
        self,
        *,
        regions: Sequence[MemoryRegion] = (),
        pd: ProtectionDomain | None = None,
        options: ConnectionOptions | None = None,
        note: Any = None,
        remote_planes: Sequence[str] = (),
        timeout: float,
    ) -> Connection:
        """Wait for a peer and return a connection ready to write; arguments as of `connect`."""
        deadline = time.monotonic() + timeout
        channel = self._server.accept(deadline)
        asked = _Asked(regions, pd, options or ConnectionOptions(), note, tuple(remote_planes))
        return _establish(self.context, channel, asked, deadline)

    def fileno(self) -> int:
        """Return the listening socket's descriptor: readable when a peer is there."""
        return self._server.fileno()

    async def accept_async(self, **options: Any) -> Connection:
        """Accept as `accept` does, in a thread, letting the event loop run."""
        return await asyncio.to_thread(self.accept, **options)

    def close(self) -> None:
        """Stop listening; connections that were accepted stay."""
        self._server.close()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@dataclass(frozen=True)
class _Asked:
    """What the program wants of a connection."""

    regions: Sequence[MemoryRegion]
    pd: ProtectionDomain | None
    options: ConnectionOptions
    note: Any
    remote_planes: tuple[str, ...]


def _establish(context: Context, channel: Channel, asked: _Asked, deadline: float) -> Connection:
    connection = None
    try:
        domain = asked.pd or (asked.regions[0].pd if asked.regions else context.alloc_pd())
        connection = Connection(context, domain, asked.options, channel)
        ours = _offer(connection, asked.regions, asked.note)
        channel.tell(ours)
        theirs = channel.hear(Offer, timeout=deadline - time.monotonic())
        check_offers(ours, theirs, channel.peer)
        connection.remote = _remote(theirs, asked.remote_planes)
        _raise_to_rts(connection.qp, connection.remote, ours, theirs, asked.options)
        # Nobody writes before both can receive.
        channel.tell("ready")
        if channel.hear(str, timeout=deadline - time.monotonic()) != "ready":
            raise ExchangeError(f"{channel.peer}: did not become ready")
        return connection
    except BaseException:
        if connection is not None:
            connection.close()
        channel.close()
        raise


def _offer(connection: Connection, regions: Sequence[MemoryRegion], note: Any) -> Offer:
    device, options = connection.context.query_device(), connection.options
    return Offer(
        planes=list(device.planes),
        source_ports=[list(ports) for ports in connection.context.address.source_ports],
        ev_format=device.ev_format.name,
        path_mtu=options.path_mtu,
        mpr=options.mpr,
        max_wimm=min(options.max_wimm, options.max_recv_wr),
        dynamic_mpr=options.dynamic_mpr,
        qpn=connection.qp.qpn,
        psn=connection.context.nic.first_psn(connection.qp),
        regions=[RegionOffer(addr=region.addr, r_key=region.r_key, length=region.length) for region in regions],
        note=note,
    )


def _remote(offer: Offer, planes: tuple[str, ...]) -> Remote:
    address = PeerAddress(
        planes=planes or tuple(offer.planes), source_ports=tuple(tuple(ports) for ports in offer.source_ports)
    )
    regions = tuple(RemoteRegion(region.addr, region.r_key, region.length) for region in offer.regions)
    return Remote(offer.name, address, offer.qpn, regions, offer.note)


def _raise_to_rts(qp: QueuePair, remote: Remote, ours: Offer, theirs: Offer, options: ConnectionOptions) -> None:
    hint = qp.context.create_qp_hint(options.hint)
    qp.modify(state=QpState.INIT, access_flags=Access.REMOTE_WRITE, hint=hint)
    qp.modify(
        state=QpState.RTR,
        remote=remote.address,
        dest_qpn=theirs.qpn,
        rq_psn=theirs.psn,
        path_mtu=ours.path_mtu,
        max_wimm_dest=ours.max_wimm,
        mpr=ours.mpr,
        mpr_dest=theirs.mpr,
        cap=QpCap.DYNAMIC_MPR if ours.dynamic_mpr and theirs.dynamic_mpr else QpCap(0),
    )
    qp.modify(
        state=QpState.RTS,
        sq_psn=ours.psn,
        max_wimm=min(theirs.max_wimm, options.max_wimm),
        mpr=ours.mpr,
        timeout=options.timeout,
        linear_count=options.linear_count,
        exponential_count=options.exponential_count,
    )
