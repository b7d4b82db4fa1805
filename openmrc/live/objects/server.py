"""The listening end of the out-of-band exchange: one thread greets many peers concurrently.

A connection has `GREETING_SECONDS`; beyond `most` of them the address with the most loses its oldest one, so a flood
from one address does not lock out others. No input of a stranger stops the server.
"""

import atexit
import collections
import errno
import logging
import os
import select
import selectors
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from openmrc.errors import ConfigError
from openmrc.live.errors import ClosedError, DeadlineError, ExchangeError
from openmrc.live.objects.exchange import ControlChannel
from openmrc.live.objects.handshake import GREETING_SECONDS, LARGEST_OFFER, Handshake, Role
from openmrc.live.waiting import is_over, seconds_until

log = logging.getLogger(__name__)
ANYWHERE = ""  # a host: all addresses of this machine, IPv6 and IPv4
LOOPBACK = ("127.0.0.1", "::1")
MOST = 64  # limit of connections in the greeting, and of greeted ones that wait for `accept`
BUFFER = 1 << 16  # bytes of a socket's receive buffer
STOP_SECONDS = 5.0
_PORTS_TRIED = 16
_REST_SECONDS = 0.05  # s to pause when the process has no descriptor left


@dataclass(frozen=True)
class GreetedPeer:
    """A peer that has greeted."""

    channel: ControlChannel
    offer: bytes  # not decoded yet
    host: str


class _Guest:
    """A connection that is being greeted."""

    def __init__(self, sock: socket.socket, token: bytes) -> None:
        name = sock.getpeername()
        self.host = str(name[0])
        self.peer = f"{self.host}:{name[1]}"
        self.sock = sock
        self.until = time.monotonic() + GREETING_SECONDS
        self.handshake = Handshake(Role.LISTENER, token)
        self.unsent = b""

    def take(self) -> None:
        """Process received bytes; ExchangeError, OSError: the connection failed."""
        part = self.sock.recv(LARGEST_OFFER)
        if not part:
            raise ExchangeError("closed the TCP channel")
        try:
            self.handshake.feed(part)
        finally:
            self.send()

    def send(self) -> None:
        """Send the handshake's output; it is small and fits an empty socket buffer."""
        self.unsent += self.handshake.outgoing()
        if self.unsent:
            self.unsent = self.unsent[self.sock.send(self.unsent) :]


class RendezvousServer:
    """Listening TCP sockets on one port of several addresses."""

    def __init__(
        self, hosts: Sequence[str], port: int, on_refusal: Callable[[str], None] | None = None, most: int = MOST
    ) -> None:
        """Open the sockets; port 0 lets the kernel choose. ConfigError names the address that cannot be used.

        `on_refusal` is called with the reason why a peer that greeted was rejected, in the server's thread or in one
        that accepts. What it raises is logged. At most `most` connections are in the greeting, and as many wait then.
        """
        self._sockets = _listen(hosts, port)
        self._token = b""
        self._on_refusal = on_refusal
        self._most = most
        self.port: int = self._sockets[0].getsockname()[1]
        self.hosts = tuple(str(sock.getsockname()[0]) for sock in self._sockets)
        self.last_refusal = ""
        self._guests: dict[int, _Guest] = {}  # by descriptor, oldest first
        self._arrivals: collections.deque[GreetedPeer] = collections.deque()
        self._arrived = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stop = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._is_closed = False
        self._selector = selectors.DefaultSelector()
        for sock in self._sockets:
            self._selector.register(sock, selectors.EVENT_READ)
        self._selector.register(self._stop, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="openmrc greetings", daemon=True)

    def start(self, token: bytes) -> None:
        """Start greeting; peers must hold `token` unless it is empty."""
        self._token = token
        _open_servers.add(self)
        self._thread.start()

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return all(is_loopback(host) for host in self.hosts)

    def accept(self, deadline: float) -> GreetedPeer:
        """Return the next peer that has greeted; DeadlineError at `deadline` (monotonic seconds)."""
        while True:
            with self._lock:
                if self._is_closed:
                    raise ClosedError(f"TCP port {self.port}: the listener was closed")
                if self._arrivals:
                    if len(self._arrivals) == 1:
                        os.eventfd_read(self._arrived)
                    return self._arrivals.popleft()
            if is_over(deadline):
                turned_away = f"; last rejected peer: {self.last_refusal}" if self.last_refusal else ""
                raise DeadlineError(f"no peer connected to TCP port {self.port} in time{turned_away}")
            poller = select.poll()
            poller.register(self._arrived, select.POLLIN)
            poller.poll(seconds_until(deadline) * 1000)

    def note_refusal(self, why: str) -> None:
        """Record and report the reason why a peer that greeted was rejected."""
        self.last_refusal = why
        if self._on_refusal is None:
            return
        try:
            self._on_refusal(why)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is not self._thread:
                raise
            log.exception("mrc: on_refusal failed")  # any stranger can bring it about: the server goes on

    def fileno(self) -> int:
        """Return a descriptor that is readable while a peer that has greeted waits."""
        return self._arrived

    def close(self) -> None:
        """Stop listening and drop connections that were not accepted."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        os.eventfd_write(self._stop, 1)
        os.eventfd_write(self._arrived, 1)  # wakes calls of `accept`
        if self._thread.ident is None:
            self._run()  # closes open connections
        elif self._thread is not threading.current_thread():
            self._thread.join(0 if sys.is_finalizing() else STOP_SECONDS)

    def abandon(self) -> None:
        """Become closed in a forked child, without telling the thread: it is the parent's."""
        if self._is_closed:
            return
        self._lock = threading.Lock()  # the parent's thread may have held it
        self._is_closed = True
        for sock in (*self._sockets, *(guest.sock for guest in self._guests.values())):
            sock.close()
        for arrival in self._arrivals:
            arrival.channel.close()
        self._selector.close()

    def __del__(self) -> None:
        # Close late: a thread may still sleep on the descriptors, and their numbers would be reused.
        for descriptor in (getattr(self, "_arrived", -1), getattr(self, "_stop", -1)):
            if descriptor >= 0:
                os.close(descriptor)

    def _run(self) -> None:
        try:
            while not self._is_closed:
                self._turn(self._selector.select(self._seconds_to_next()))
        finally:
            for sock in (*self._sockets, *(guest.sock for guest in self._guests.values())):
                sock.close()
            for arrival in self._arrivals:
                arrival.channel.close()
            self._selector.close()

    def _turn(self, ready: Iterable[tuple[selectors.SelectorKey, int]]) -> None:
        for key, _ in ready:
            guest = self._guests.get(key.fd)
            if guest is not None:
                self._serve(guest)
            elif key.fd != self._stop:
                self._admit(key.fileobj)  # type: ignore[arg-type]
        now = time.monotonic()
        for guest in [guest for guest in self._guests.values() if guest.until <= now]:
            self._serve(guest)  # it may have greeted in time, while this process did not run
            if self._guests.get(guest.sock.fileno()) is guest:
                self._drop(guest)

    def _seconds_to_next(self) -> float | None:
        oldest = next(iter(self._guests.values()), None)
        return None if oldest is None else max(oldest.until - time.monotonic(), 0.0)

    def _admit(self, listening: socket.socket) -> None:
        try:
            sock, _ = listening.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self._drop_one()
                time.sleep(_REST_SECONDS)
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            guest = _Guest(sock, self._token)
            guest.send()
        except OSError:  # already reset, as by a port scan
            sock.close()
            return
        if len(self._guests) >= self._most:
            self._drop_one()
        self._guests[sock.fileno()] = guest
        self._selector.register(sock, selectors.EVENT_READ)

    def _serve(self, guest: _Guest) -> None:
        try:
            guest.take()
        except BlockingIOError:
            return
        except ExchangeError as error:
            self._drop(guest)
            if guest.handshake.has_greeted:
                self.note_refusal(f"{guest.peer}: {error}")
            return
        except OSError:
            self._drop(guest)
            return
        if guest.handshake.is_done:
            self._announce(guest)

    def _announce(self, guest: _Guest) -> None:
        """Pass a peer that has greeted to `accept`."""
        self._forget(guest)
        arrival = GreetedPeer(
            ControlChannel(guest.sock, guest.peer, guest.handshake), guest.handshake.offer, guest.host
        )
        with self._lock:
            if len(self._arrivals) >= self._most:
                surplus = _oldest_of_most([each.host for each in self._arrivals])
                self._arrivals[surplus].channel.close()
                del self._arrivals[surplus]
            self._arrivals.append(arrival)
            os.eventfd_write(self._arrived, 1)

    def _drop_one(self) -> None:
        guests = list(self._guests.values())
        if guests:
            self._drop(guests[_oldest_of_most([guest.host for guest in guests])])

    def _drop(self, guest: _Guest) -> None:
        self._forget(guest)
        guest.sock.close()

    def _forget(self, guest: _Guest) -> None:
        del self._guests[guest.sock.fileno()]
        self._selector.unregister(guest.sock)


_open_servers: weakref.WeakSet[RendezvousServer] = weakref.WeakSet()


def _close_all() -> None:
    """Close what a program has left open, while its threads still run."""
    for server in list(_open_servers):
        server.close()


def _abandon_all() -> None:
    for server in _open_servers:
        server.abandon()
    _open_servers.clear()


os.register_at_fork(after_in_child=_abandon_all)
atexit.register(_close_all)


def is_loopback(host: str) -> bool:
    """Whether other machines cannot reach an address (given without a port)."""
    return ip_address(host.split("%")[0]).is_loopback


def _oldest_of_most(hosts: Sequence[str]) -> int:
    """Return the index of the oldest connection from the host with the most."""
    return hosts.index(collections.Counter(hosts).most_common(1)[0][0])


def _listen(hosts: Sequence[str], port: int) -> list[socket.socket]:
    """Open one socket for each host, all on the same port."""
    for attempt in range(_PORTS_TRIED):
        try:
            return _listen_once(hosts, port)
        except ConfigError as error:
            taken = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
            if port or not taken or attempt == _PORTS_TRIED - 1:
                raise
    raise AssertionError("at least one attempt is made")


def _listen_once(hosts: Sequence[str], port: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    try:
        for host in hosts:
            chosen = sockets[0].getsockname()[1] if sockets else port
            try:
                sockets.append(_listening(host, chosen))
            except OSError as error:
                if host == LOOPBACK[1] and len(hosts) > 1 and error.errno != errno.EADDRINUSE:
                    continue  # a machine without IPv6
                where = f"{host or 'all addresses'}, TCP port {chosen}"
                why = (error.strerror or str(error)).partition(" (while")[0]  # create_server says the address again
                raise ConfigError(f"cannot listen on {where}: {why}") from error
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _listening(host: str, port: int) -> socket.socket:
    if host == ANYWHERE and socket.has_dualstack_ipv6():
        sock = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=MOST)
    elif host == ANYWHERE:
        sock = socket.create_server(("", port), backlog=MOST)
    else:
        family, _, _, _, name = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.create_server(name, family=family, backlog=MOST)
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)  # inherited by accepted sockets
    return sock
