"""Connect a queue pair to a peer: exchange attributes over TCP, then RESET, INIT, RTR, RTS on both sides.

A peer's addresses are validated: addresses of another connected peer are refused, and so are loopback addresses from
another machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from openmrc.engine.responder.regions import Access
from openmrc.engine.state.machines import QpState
from openmrc.live.attributes import ConnectionOptions, PeerAddress, QpAttr, QpCap, QpInitAttr, WorkCompletion
from openmrc.live.errors import (
    BusyError,
    ClosedError,
    DeadlineError,
    ExchangeError,
    InvalidArgumentError,
    NoRoomError,
    UnusableOfferError,
)
from openmrc.live.host.addresses import PlaneAddress
from openmrc.live.objects.completion import CompletionQueue
from openmrc.live.objects.context import Context
from openmrc.live.objects.exchange import (
    ControlChannel,
    InvalidOfferError,
    Offer,
    Refusal,
    RemoteRegion,
    TermsMismatchError,
    check_offers,
    decode_offer,
    dial,
    printable,
)
from openmrc.live.objects.handshake import NO_TOKEN, fresh_token, token_bytes
from openmrc.live.objects.memory import MemoryRegion, ProtectionDomain, RegionSlice
from openmrc.live.objects.queue_pair import QueuePair
from openmrc.live.objects.server import LOOPBACK, GreetedPeer, RendezvousServer

Message = TypeVar("Message")
DEFAULT_PORT = 18515  # as in perftest and the OCP example
READY_SECONDS = 5.0  # s for a peer that has greeted to become ready


@dataclass(frozen=True)
class Remote:
    """The peer's description of itself."""

    name: str  # host and process
    address: PeerAddress
    qpn: int
    regions: tuple[RemoteRegion, ...]
    note: Any  # data of its program: any JSON value

    def region(self, least: int = 1) -> RemoteRegion:
        """Return its first region; ExchangeError if it offers none, or less than `least` bytes."""
        if not self.regions or self.regions[0].length < least:
            offered = f"{self.regions[0].length} bytes" if self.regions else "no memory"
            raise ExchangeError(f"{self.name}: offers {offered}, {least} bytes are needed")
        return self.regions[0]


class Connection:
    """A queue pair in RTS, its completion queues, and the TCP channel to the same peer."""

    def __init__(
        self,
        context: Context,
        pd: ProtectionDomain,
        options: ConnectionOptions,
        channel: ControlChannel,
        cq: CompletionQueue | None,
    ) -> None:
        """Use `connect` or `Listener.accept` instead."""
        self.context = context
        self.options = options
        self._shares_cq = cq is not None
        self.send_cq = cq or context.create_cq(options.max_send_wr + 1)
        self.recv_cq = cq or context.create_cq(options.max_recv_wr + 1)
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
        self, local: MemoryRegion | RegionSlice, remote: RemoteRegion, *, immediate: int | None = None, timeout: float
    ) -> WorkCompletion:
        """Write `local` to the start of `remote` and wait for its completion. Threads may write at once.

        Raises InvalidArgumentError if `remote` is too small, ExchangeError if the write fails, DeadlineError if it does
        not complete within `timeout` seconds: it is still under way then, reads `local`, and completes unnoticed.
        """
        _check_fits(local, remote)
        with self.send_cq.claim() as claim:
            self.qp.post_write(local, remote.addr, remote.r_key, wr_id=claim.wr_id, immediate=immediate)
            return self._good(claim.wait(timeout))

    async def write_async(
        self, local: MemoryRegion | RegionSlice, remote: RemoteRegion, *, immediate: int | None = None, timeout: float
    ) -> WorkCompletion:
        """Write as `write` does, letting the event loop run. A cancelled write is still under way."""
        _check_fits(local, remote)
        with self.send_cq.claim() as claim:
            self.qp.post_write(local, remote.addr, remote.r_key, wr_id=claim.wr_id, immediate=immediate)
            return self._good(await claim.wait_async(timeout))

    def tell(self, message: Any) -> None:
        """Send a message over the TCP channel: any JSON value, or a msgspec Struct."""
        self.channel.tell(message)

    def hear(self, kind: type[Message] | Any = Any, *, timeout: float) -> Message:
        """Return the peer's next message, checked against `kind`; DeadlineError after `timeout` seconds."""
        message: Message = self.channel.hear(kind, timeout=timeout)
        return message

    def barrier(self, timeout: float) -> None:
        """Wait until the peer has called it too."""
        self.tell("barrier")
        if self.hear(str, timeout=timeout) != "barrier":
            raise ExchangeError(f"{self.remote.name}: sent another message while this side is at a barrier")

    def describe(self) -> str:
        """Return one line: peer, state, paths, last progress."""
        return self.qp.describe()

    def close(self) -> None:
        """Destroy queue pair, completion queues of its own, and channel; later packets of the peer are ignored."""
        self.qp.destroy()
        for cq in () if self._shares_cq else (self.send_cq, self.recv_cq):
            cq.destroy()
        self.channel.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
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
    cq: CompletionQueue | None = None,
    note: Any = None,
    remote_planes: Sequence[str] = (),
    token: str = NO_TOKEN,
    timeout: float = 10.0,
) -> Connection:
    """Connect to the `Listener` at host and port and return a connection ready to write.

    `regions` are offered to the peer for writing, in this order; they, or `pd`, select the protection domain of the
    queue pair. `cq` is the completion queue of its writes and receives; None: two of its own. `remote_planes` are the
    peer's addresses as seen from here, behind an address translation. `token` is the listener's: both sides prove that
    they hold it before either offers memory. Retries until `timeout` (s) while
    nobody listens.
    """
    deadline = time.monotonic() + timeout
    channel = dial(host, port, deadline, token)
    asked = _Asked(regions, pd, options or ConnectionOptions(), cq, note, tuple(remote_planes))
    return _establish(context, channel, asked, deadline, None)


async def connect_async(context: Context, host: str, port: int = DEFAULT_PORT, **options: Any) -> Connection:
    """Connect as `connect` does, in a thread, letting the event loop run."""
    return await asyncio.to_thread(connect, context, host, port, **options)


class Listener:
    """Waits on a TCP port for peers that call `connect`."""

    def __init__(
        self,
        context: Context,
        host: str | Sequence[str] | None = None,
        port: int = DEFAULT_PORT,
        *,
        token: str | None = None,
        on_refusal: Callable[[str], None] | None = None,
    ) -> None:
        """Listen on `host`, or several; None: loopback and the context's planes, "": all addresses of this machine.

        Port 0 lets the kernel choose, see `port`. Peers must present `token`. None: no token where only this
        machine can connect, otherwise a generated one, see `token`. "" accepts any peer. `on_refusal` is called, in
        another thread, with the reason why a peer that greeted was rejected.
        """
        self.context = context
        hosts = _default_hosts(context) if host is None else (host,) if isinstance(host, str) else tuple(host)
        self._server = RendezvousServer(hosts, port, on_refusal)
        self.port = self._server.port
        self.hosts = self._server.hosts
        if token is None:
            token = NO_TOKEN if self.is_loopback else fresh_token()
        self.token = token
        try:
            self._server.start(token_bytes(token))
        except BaseException:
            self._server.close()
            raise

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return self._server.is_loopback

    def __repr__(self) -> str:
        return f"<Listener on TCP port {self.port}>"

    def accept(
        self,
        *,
        regions: Sequence[MemoryRegion] = (),
        pd: ProtectionDomain | None = None,
        options: ConnectionOptions | None = None,
        cq: CompletionQueue | None = None,
        note: Any = None,
        remote_planes: Sequence[str] = (),
        timeout: float,
    ) -> Connection:
        """Wait for a peer and return a connection ready to write; arguments as of `connect`.

        A peer that disconnects, stalls or violates the protocol is rejected, and the wait continues until `timeout`.
        ExchangeError: the terms of the peer do not match; the peer was informed.
        """
        deadline = time.monotonic() + timeout
        asked = _Asked(regions, pd, options or ConnectionOptions(), cq, note, tuple(remote_planes))
        while True:
            arrival = self._server.accept(deadline)
            try:
                within = min(deadline, time.monotonic() + READY_SECONDS)
                return _establish(self.context, arrival.channel, asked, within, arrival)
            except TermsMismatchError:
                raise
            except (ExchangeError, DeadlineError) as error:
                self._server.note_refusal(str(error))

    def fileno(self) -> int:
        """Return a descriptor that is readable while a peer that has greeted waits to be accepted."""
        return self._server.fileno()

    async def accept_async(self, **options: Any) -> Connection:
        """Accept as `accept` does, in a thread, letting the event loop run."""
        return await asyncio.to_thread(self.accept, **options)

    def close(self) -> None:
        """Stop listening; accepted connections stay open."""
        self._server.close()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class _Asked:
    """The requested terms of a connection."""

    regions: Sequence[MemoryRegion]
    pd: ProtectionDomain | None
    options: ConnectionOptions
    cq: CompletionQueue | None
    note: Any
    remote_planes: tuple[str, ...]


def _default_hosts(context: Context) -> tuple[str, ...]:
    """Return loopback and the addresses of the planes, each once."""
    planes = (str(address.socket_name()[0]) for address in context.nic.sockets.addresses)
    return tuple(dict.fromkeys((*LOOPBACK, *planes)))


def _establish(
    context: Context, channel: ControlChannel, asked: _Asked, deadline: float, arrival: GreetedPeer | None
) -> Connection:
    """Exchange offers and bring the queue pair up; `arrival` contains the peer's offer already."""
    connection = None
    try:
        theirs = decode_offer(arrival.offer, channel.peer) if arrival is not None else None
        domain = asked.pd or (asked.regions[0].pd if asked.regions else context.alloc_pd())
        connection = Connection(context, domain, asked.options, channel, asked.cq)
        ours = _offer(connection, asked.regions, asked.note)
        channel.tell(ours)
        theirs = theirs or channel.hear_offer(timeout=deadline - time.monotonic())
        check_offers(ours, theirs, channel.peer)
        _check_origin(context, theirs, channel)
        connection.remote = _remote(theirs, asked.remote_planes)
        _raise_to_rts(connection.qp, connection.remote, ours, theirs, asked.options)
        # Neither side writes before both can receive.
        channel.tell("ready")
        if channel.hear(str, timeout=deadline - time.monotonic()) != "ready":
            raise ExchangeError(f"{channel.peer}: did not become ready")
        return connection
    except BaseException as error:
        _refuse(channel, error)
        if connection is not None:
            connection.close()
        channel.close()
        raise


def _refuse(channel: ControlChannel, error: BaseException) -> None:
    """Send the peer the reason of the refusal, if this side decided it."""
    if isinstance(error, InvalidOfferError | UnusableOfferError | NoRoomError):
        with contextlib.suppress(ExchangeError, ClosedError):
            channel.tell(Refusal(str(error)))


def _check_origin(context: Context, theirs: Offer, channel: ControlChannel) -> None:
    """Refuse loopback addresses from another machine: packets to them would reach programs on this one."""
    if channel.is_local:
        return
    for plane, text in enumerate(theirs.planes):
        ours = context.nic.sockets.addresses[plane]
        if PlaneAddress.parse(text).ip.is_loopback and not ours.ip.is_loopback:
            raise UnusableOfferError(
                f"{channel.peer}: plane {plane}: loopback address {text} from another machine; local address {ours}"
            )


def _offer(connection: Connection, regions: Sequence[MemoryRegion], note: Any) -> Offer:
    device, options = connection.context.query_device(), connection.options
    return Offer(
        planes=list(device.planes),
        source_ports=[list(ports) for ports in connection.context.address.source_ports],
        ev_format=device.ev_format.name,
        path_mtu=options.path_mtu or device.max_mtu,
        mpr=options.mpr,
        max_wimm=min(options.max_wimm, options.max_recv_wr),
        dynamic_mpr=options.dynamic_mpr,
        qpn=connection.qp.qpn,
        psn=secrets.randbits(24),
        regions=[RemoteRegion(region.addr, region.r_key, region.length) for region in regions],
        note=note,
    )


def _remote(offer: Offer, planes: tuple[str, ...]) -> Remote:
    # Behind a translation of addresses, ports change too. Its own addresses under another spelling are no translation.
    is_translated = bool(planes) and [*map(PlaneAddress.parse, planes)] != [*map(PlaneAddress.parse, offer.planes)]
    address = PeerAddress(
        planes=planes if is_translated else tuple(offer.planes),
        source_ports=tuple(tuple(ports) for ports in offer.source_ports),
        any_source_port=is_translated,
    )
    return Remote(offer.name, address, offer.qpn, tuple(offer.regions), offer.note)


def _raise_to_rts(qp: QueuePair, remote: Remote, ours: Offer, theirs: Offer, options: ConnectionOptions) -> None:
    hint = qp.context.create_qp_hint(options.hint)
    qp.modify(state=QpState.INIT, access_flags=Access.REMOTE_WRITE, hint=hint)
    rtr = QpAttr(
        state=QpState.RTR,
        remote=remote.address,
        dest_qpn=theirs.qpn,
        rq_psn=theirs.psn,
        path_mtu=min(ours.path_mtu, theirs.path_mtu),
        max_wimm_dest=ours.max_wimm,
        mpr=ours.mpr,
        mpr_dest=theirs.mpr,
        cap=QpCap.DYNAMIC_MPR if ours.dynamic_mpr and theirs.dynamic_mpr else QpCap(0),
    )
    try:
        qp.modify(rtr)
    except (BusyError, InvalidArgumentError, NoRoomError) as error:
        raise UnusableOfferError(f"{remote.name}: {printable(str(error))}") from error
    qp.modify(
        state=QpState.RTS,
        sq_psn=ours.psn,
        max_wimm=min(theirs.max_wimm, options.max_wimm),
        mpr=ours.mpr,
        timeout=options.timeout,
        linear_count=options.linear_count,
        exponential_count=options.exponential_count,
        user_timeout=options.user_timeout,
    )
