"""Control connections: one TCP connection to each other rank, which the kernel closes at once when a process ends.

A queue pair cannot tell a killed process from one that is stopped or whose planes are out; this can. It also carries
the reason when a group fails. Silence on it means nothing; only its end does. A rank dials all ranks below it; those
that cannot connect do without (docs/elastic.md). A listener may drop a caller before it is accepted, so it welcomes
those that it accepts, and the others dial again.
"""

from __future__ import annotations

import os
import secrets
import select
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from openmrc.errors import ConfigError, MrcError
from openmrc.live.errors import DeadlineError
from openmrc.live.host.addresses import PlaneAddress
from openmrc.live.host.nic_file import TOKEN_VARIABLE
from openmrc.live.objects.exchange import ControlChannel, dial
from openmrc.live.objects.handshake import token_bytes
from openmrc.live.objects.server import MOST, GreetedPeer, RendezvousServer
from openmrc.train.errors import RendezvousError
from openmrc.train.links.forks import close_in_forks
from openmrc.verbs import NO_TOKEN

GONE_SECONDS = 0.3  # from the end of a connection to the loss of its rank: what arrived before is processed first
_DIAL_SECONDS = 2.0  # for all dials of a rendezvous: unreachable addresses must not delay it further
_READ_SECONDS = 0.05  # a notice is one small segment
Wait = Callable[[Callable[[], bool], Callable[[], str]], None]
"""Waits for a condition; RendezvousError, which begins with the text, when the meeting is over."""


class Introduction(msgspec.Struct, forbid_unknown_fields=True):
    """The first message on a connection: who dials."""

    rank: int
    nonce: str  # from the card of the rank that is dialled


class Welcome(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    """The answer to an introduction: the connection is accepted."""


class Notice(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    """The last message on a connection: why the rank ends it."""

    error: str = ""  # of the group; empty: the rank leaves in order


class ControlListener:
    """Accepts the connections of higher ranks while a group meets."""

    def __init__(self, planes: Sequence[str], callers: int) -> None:
        """Listen on the planes, or nowhere if one cannot be used; so many callers dial before the first is accepted."""
        self.nonce = secrets.token_hex(16)
        hosts = list(dict.fromkeys(str(PlaneAddress.parse(plane).ip) for plane in planes))
        self._server: RendezvousServer | None = None
        with suppress(ConfigError):
            self._server = RendezvousServer(hosts, 0, most=max(MOST, 2 * callers))  # strangers take places as well
            self._server.start(token_bytes(token_text()))

    @property
    def port(self) -> int:
        """TCP port; 0: not listening."""
        return 0 if self._server is None else self._server.port

    def accept(self, expected: Iterable[int], wait: Wait) -> dict[int, ControlChannel]:
        """Return the connections of the expected ranks, which have dialled, and welcome them."""
        callers = set(expected)
        channels: dict[int, ControlChannel] = {}

        def have_arrived() -> bool:
            while len(channels) < len(callers) and (arrival := self._next_arrival()) is not None:
                rank = self._rank_of(arrival.offer)
                if rank not in callers:
                    arrival.channel.close()
                    continue
                if rank in channels:  # it has lost this one, and dialled again
                    channels[rank].close()
                channels[rank] = arrival.channel
                with suppress(MrcError):  # it has ended: its loss is noticed later
                    arrival.channel.tell(Welcome())
            return len(channels) == len(callers)

        wait(have_arrived, lambda: f"ranks {sorted(callers - channels.keys())} dialled this one and did not arrive")
        return channels

    def _next_arrival(self) -> GreetedPeer | None:
        with suppress(DeadlineError):
            return self._server.accept(0.0) if self._server is not None else None  # a deadline that is over
        return None

    def _rank_of(self, offer: bytes) -> int:
        """Return who introduces itself; -1: a stranger."""
        with suppress(msgspec.MsgspecError):
            introduction = msgspec.json.decode(offer, type=Introduction)
            if secrets.compare_digest(introduction.nonce.encode(), self.nonce.encode()):
                return introduction.rank
        return -1

    def close(self) -> None:
        """Stop listening; accepted connections stay open."""
        if self._server is not None:
            self._server.close()


class Dialler:
    """Dials lower ranks, within one budget of time for a whole rendezvous."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._left = _DIAL_SECONDS

    def dial(self, planes: Sequence[str], port: int, nonce: str) -> ControlChannel | None:
        """Return a connection to a rank on one of its planes; None if there is none."""
        hosts = dict.fromkeys(str(PlaneAddress.parse(plane).ip) for plane in planes) if port else ()
        for host in hosts:
            begun = time.monotonic()
            with suppress(MrcError, OSError):
                channel = dial(host, port, begun + self._left / 2, token_text())
                channel.tell(Introduction(self._rank, nonce))
                return channel
            self._left -= time.monotonic() - begun
        return None


def is_welcome(channel: ControlChannel, rank: int) -> bool:
    """Whether a rank that was dialled has accepted. ExchangeError: it dropped the connection; RendezvousError: why."""
    with suppress(DeadlineError):
        heard = channel.hear(Welcome | Notice, timeout=0.0)
        if isinstance(heard, Notice):
            raise RendezvousError(f"rank {rank}: {heard.error}")
        return True
    return False


class Liveness:
    """The control connections of one rank."""

    def __init__(self, channels: Mapping[int, ControlChannel]) -> None:
        """`channels` are by rank; ranks without one are never gone."""
        self._channels = dict(channels)
        self._gone_at: dict[int, float] = {}  # by rank, monotonic s
        self._poller = select.poll()
        self._ranks: dict[int, int] = {}  # by descriptor
        for rank, channel in self._channels.items():
            self._poller.register(channel.fileno(), select.POLLIN | select.POLLRDHUP)
            self._ranks[channel.fileno()] = rank
            close_in_forks(channel)

    def heard(self, now: float) -> list[Heard]:
        """Return what has arrived, without waiting; `now` in monotonic seconds."""
        ready = self._poller.poll(0) if self._ranks else ()
        return [self._hear(self._ranks[descriptor], now) for descriptor, _ in ready]

    def note_end(self, rank: int, now: float) -> None:
        """Record that another connection of a rank has ended; a notice may still tell why."""
        self._gone_at.setdefault(rank, now)

    def is_gone(self, rank: int, now: float) -> bool:
        """Whether the process of a rank ended long enough ago that all it had sent has arrived."""
        return now - self._gone_at.get(rank, now) > GONE_SECONDS

    def tell(self, notice: Notice) -> None:
        """Send a notice to all ranks; those that are gone do not get it."""
        for channel in self._channels.values():
            with suppress(MrcError):
                channel.tell(notice)

    def close(self) -> None:
        for rank in list(self._channels):
            self._drop(rank)

    def _hear(self, rank: int, now: float) -> Heard:
        notice = None
        with suppress(MrcError):
            notice = self._channels[rank].hear(Notice, timeout=_READ_SECONDS)
        self._drop(rank)
        if notice is None:
            self.note_end(rank, now)
        return Heard(rank, notice)

    def _drop(self, rank: int) -> None:
        channel = self._channels.pop(rank)
        self._poller.unregister(channel.fileno())
        del self._ranks[channel.fileno()]
        channel.close()


class Heard(NamedTuple):
    """What has arrived from a rank: its last message, or None if the connection ended without one."""

    rank: int
    notice: Notice | None


def token_text() -> str:
    """Return the token that the ranks of a job share, if its environment has one."""
    return os.environ.get(TOKEN_VARIABLE, NO_TOKEN)
