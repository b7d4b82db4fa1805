"""The port at which a controller hears its agents: an event loop in a thread, TLS with certificates of both sides.

Every wait ends, and every number is bounded:

* at most `MOST_STRANGERS` connections that have not shown a certificate and greeted, each for `GREETING_S`; the next
  one ends the oldest of the address that has most,
* one connection a host: a new one of the same host, which its certificate proves, ends the one before,
* a report of at most `MOST_REPORT` bytes within `REPORT_S`; the next one is read when it is due, not earlier.

A report that is none ends its own connection only.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
import time
from collections import Counter

import msgspec

from openmrc.ctl.messages import LENGTH, common_version, frame, length_of
from openmrc.errors import ConfigError, MrcError, PeerError, WireError
from openmrc.operations.fleets.agents.certificates import ControllerTls, host_of
from openmrc.operations.fleets.agents.messages import (
    AGENTS_NEWEST,
    AGENTS_OLDEST,
    MOST_AGENT_GREETING,
    MOST_REPORT,
    AgentGreeting,
    ControllerGreeting,
    HostReport,
    unframed,
)
from openmrc.operations.fleets.agents.remote_fleet import RemoteFleet
from openmrc.version import __version__

log = logging.getLogger(__name__)
MOST_STRANGERS = 64
GREETING_S = 5.0
IDLE_S = 60.0
REPORT_S = 10.0
STOP_S = 5.0
BACKLOG = 128
SAID_S, MOST_SAID = 60.0, 64  # of refusals: how often the same is printed, and how many in that time
_FULL_S = 0.5  # without a free descriptor


class AgentPort:
    """Hears the agents of a fleet; close it."""

    def __init__(self, fleet: RemoteFleet, fabric: str, tls: ControllerTls, address: tuple[str, int]) -> None:
        """Listen; ConfigError. `fabric` is the digest that agents must name; port 0: any."""
        self._fleet, self._fabric, self._tls = fleet, fabric, tls
        try:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            self._sock = socket.create_server(address, family=family, backlog=BACKLOG)
        except OSError as error:
            raise ConfigError(f"--listen: {address[0]}:{address[1]}: {error.strerror}") from error
        self._sock.setblocking(False)
        self.address: tuple[str, int] = self._sock.getsockname()[:2]
        self._strangers: dict[asyncio.Task[None], str] = {}  # address of each, the oldest first
        self._hosts: dict[int, asyncio.Task[None]] = {}
        self._said: dict[tuple[str, str], float] = {}  # when which refusal was printed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="openmrc agents", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all connections and stop listening."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(STOP_S)
        self._sock.close()

    @property
    def connections(self) -> tuple[int, int]:
        """Return how many hosts are connected, and how many strangers."""
        return len(self._hosts), len(self._strangers)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with contextlib.suppress(asyncio.CancelledError):
            self._main = self._loop.create_task(self._accept())
            self._loop.run_until_complete(self._main)
        self._loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(self._loop), return_exceptions=True))
        self._loop.close()

    def _stop(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()

    async def _accept(self) -> None:
        while True:
            try:
                connection, address = await self._loop.sock_accept(self._sock)
            except OSError:
                await asyncio.sleep(_FULL_S)
                continue
            if len(self._strangers) >= MOST_STRANGERS:
                self._end_a_stranger()
            task = self._loop.create_task(self._speak(connection, str(address[0])))
            self._strangers[task] = str(address[0])
            task.add_done_callback(lambda done: self._strangers.pop(done, None) and None)

    def _end_a_stranger(self) -> None:
        (most, _), *_ = Counter(self._strangers.values()).most_common(1)
        oldest = next(task for task, address in self._strangers.items() if address == most)
        del self._strangers[oldest]
        oldest.cancel()

    def _refused(self, address: str, why: str) -> None:
        """Log a refused connection and the reason; the same message again after `SAID_S` only."""
        now = time.monotonic()
        self._said = {key: at for key, at in self._said.items() if now - at < SAID_S}
        if (address, why) not in self._said and len(self._said) < MOST_SAID:
            self._said[address, why] = now
            log.warning("mrc: an agent at %s is not heard: %s", address, why.removeprefix("refused: "))

    async def _speak(self, connection: socket.socket, address: str) -> None:
        """Serve one connection until it ends."""
        reader, context = asyncio.StreamReader(), self._tls.context()
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            async with asyncio.timeout(GREETING_S):
                transport, _ = await self._loop.connect_accepted_socket(
                    lambda: protocol, connection, ssl=context, ssl_handshake_timeout=GREETING_S
                )
        except (OSError, EOFError, asyncio.CancelledError) as error:
            connection.close()
            self._refused(address, str(error) or "too slow, or one of too many")
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
        try:
            async with asyncio.timeout(GREETING_S):
                nic = await self._greet(reader, writer)
            await self._hear(nic, context, reader, writer)
        except MrcError as error:
            self._refused(address, str(error))
        except (OSError, EOFError, asyncio.CancelledError) as error:
            log.info("mrc: an agent's connection: %s", error or "closed")
        finally:
            transport.abort()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        theirs = unframed(await _frame(reader, MOST_AGENT_GREETING), AgentGreeting)
        refusal, nic = "", None
        try:
            common_version(theirs, AGENTS_OLDEST, AGENTS_NEWEST)
            name = host_of(writer.get_extra_info("peercert"))
            nic = self._fleet.nic_of(name)
            if nic is None:
                refusal = f"{name!r} is no host of this fabric"
            elif theirs.fabric != self._fabric:
                refusal = "this controller has another description of the fabric"
        except (WireError, PeerError) as error:
            refusal = str(error)
        mine = ControllerGreeting(oldest=AGENTS_OLDEST, newest=AGENTS_NEWEST, release=__version__, refusal=refusal)
        await _send(writer, mine)
        if nic is None or refusal:
            raise PeerError(f"refused: {refusal}")
        return nic

    async def _hear(
        self, nic: int, context: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Be the host's connection: one report, one answer, each when it is due, until certificates are renewed.

        The agent comes back then, and shows its own to whoever knows what was revoked.
        """
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._strangers.pop(task, None)
        before = self._hosts.get(nic)
        self._hosts[nic] = task
        if before is not None:
            before.cancel()
        self._fleet.left(nic)
        try:
            while self._tls.context() is context:
                async with asyncio.timeout(IDLE_S):
                    head = await reader.readexactly(LENGTH.size)
                async with asyncio.timeout(REPORT_S):
                    body = await reader.readexactly(length_of(head, MOST_REPORT))
                orders = self._fleet.take(nic, unframed(body, HostReport), time.monotonic())
                async with asyncio.timeout(REPORT_S):
                    await _send(writer, orders)
                await asyncio.sleep(orders.wait / 2)
        finally:
            if self._hosts.get(nic) is task:
                del self._hosts[nic]
                self._fleet.left(nic)


async def _frame(reader: asyncio.StreamReader, most: int) -> bytes:
    head = await reader.readexactly(LENGTH.size)
    return await reader.readexactly(length_of(head, most))


async def _send(writer: asyncio.StreamWriter, message: msgspec.Struct) -> None:
    writer.write(frame(message))
    await writer.drain()
