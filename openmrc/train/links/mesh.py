"""Set up a group: every rank publishes its attributes as a card and connects a queue pair to each other rank.

A card gives the planes, attributes that must be equal at all ranks, and for each other rank the queue pair, first PSN
and memory reserved for it. No rank writes until all have reported that they can receive.
"""

import logging
import math
import os
import random
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from openmrc.engine.responder.regions import Access
from openmrc.errors import MrcError
from openmrc.live.attributes import USER_TIMEOUT_S
from openmrc.train.errors import RendezvousError
from openmrc.train.links.frames import VERSION
from openmrc.train.links.introduction import Introductions, LocalPair, Report
from openmrc.train.links.liveness import Liveness
from openmrc.train.links.mailbox import RECEIVES, SENDS, RankLink, Stage
from openmrc.train.links.reach import check_planes
from openmrc.train.links.store import Store
from openmrc.verbs import CompletionQueue, Context, PeerAddress, ProtectionDomain, QpInitAttr, QpState, QueuePair

log = logging.getLogger(__name__)
_MPR = 32  # unit 128 PSNs
_MAX_WIMM = 128  # writes with immediate in flight
_LINGER_SECONDS = 2.0  # for which rank 0 keeps serving the store after a failure
_LAST_SECONDS = 0.2  # the same, after the deadline of the rendezvous
_FIRST_CHECK, _CHECK_SECONDS = 0.001, 0.05  # s between checks of the store: at first, at most


class Timers(msgspec.Struct, frozen=True):
    """Timers after which a queue pair abandons an unresponsive peer; fields as of `ConnectionOptions`."""

    timeout: int = 14
    linear_count: int = 7
    exponential_count: int = 7
    user_timeout: float = USER_TIMEOUT_S  # s without progress on any plane after which a rank is lost


def timers_for(timeout: float) -> Timers:
    """Return timers that tolerate outages of up to half the group's `timeout` (s), at most the usual user timeout."""
    return Timers(user_timeout=min(USER_TIMEOUT_S, timeout / 2))


class PeerResources(msgspec.Struct, frozen=True):
    """Resources that a rank reserves for one other rank."""

    qpn: int
    psn: int
    address: int  # of the `Stage`
    key: int  # its r_key


class Card(msgspec.Struct, frozen=True):
    """Attributes that a rank publishes."""

    version: int
    rank: int
    size: int
    name: str
    planes: list[str]
    source_ports: list[list[int]]
    ev_format: str
    mtu: int
    control_port: int  # TCP, on the addresses of the planes; 0: none
    nonce: str  # that a rank presents when it dials the port
    host: str  # equal for ranks that can share memory; empty: this rank does not
    places: dict[int, PeerResources]  # by the rank that uses them


@dataclass(frozen=True)
class Mesh:
    """The connections of one rank to all others."""

    links: dict[int, RankLink]  # by rank
    liveness: Liveness
    local: list[LocalPair]  # with ranks of this host, through shared memory


@dataclass(frozen=True)
class MeshEndpoint:
    """The verbs objects that the queue pairs of a group share."""

    context: Context
    pd: ProtectionDomain
    cq: CompletionQueue

    def link(self, other: int) -> RankLink:
        """Create a link to another rank, not yet connected."""
        stage = Stage(self.pd)
        try:
            qp = self.context.create_qp(
                self.pd, QpInitAttr(send_cq=self.cq, recv_cq=self.cq, max_send_wr=SENDS, max_recv_wr=RECEIVES)
            )
        except BaseException:
            stage.region.dereg()
            raise
        return RankLink(other, qp, stage)


@dataclass(frozen=True)
class Meeting:
    """One rank's part of a rendezvous through a store, under keys that begin with `prefix`."""

    store: Store
    prefix: str
    rank: int
    size: int
    deadline: float  # monotonic s

    def join(self) -> None:
        """Claim this rank; RendezvousError if another process has claimed it."""
        if self.store.add(f"{self.prefix}/joined/{self.rank}", 1) != 1:
            raise RendezvousError(f"rank {self.rank} joined twice (store keys under {self.prefix!r})")

    def publish(self, card: Card) -> None:
        self.store.set(f"{self.prefix}/card/{self.rank}", msgspec.json.encode(card).decode())

    def card_of(self, other: int) -> Card:
        """Wait for the card of another rank; RendezvousError after the deadline or if the card is invalid."""
        self._wait("card", other, "did not join")
        text = self.store.get(f"{self.prefix}/card/{other}")
        try:
            return msgspec.json.decode(text, type=Card)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise RendezvousError(f"rank {other}: invalid card: {error}") from error

    def wait_until_ready(self, others: Iterable[int], report: Report) -> dict[int, Report]:
        """Report that this rank can receive, with the connections that it has made; return the others' reports."""
        self.store.set(f"{self.prefix}/ready/{self.rank}", msgspec.json.encode(report).decode())
        reports = {}
        for other in others:
            self._wait("ready", other, "did not become ready")
            reports[other] = msgspec.json.decode(self.store.get(f"{self.prefix}/ready/{other}"), type=Report)
        return reports

    def has_checked(self, other: int) -> bool:
        """Whether another rank has looked which planes packets cross, and may be gone."""
        return self.store.check([f"{self.prefix}/checked/{other}"])

    def leave(self) -> None:
        """Report that this rank no longer needs the store; rank 0, which may serve it, waits for all reports."""
        self.store.set(f"{self.prefix}/checked/{self.rank}", "")
        met = f"{self.prefix}/met"
        if self.rank:
            self.store.add(met, 1)
        else:
            self.until(lambda: self.store.add(met, 0) == self.size - 1, lambda: "a rank did not become ready")

    def _wait(self, key: str, other: int, failure: str) -> None:
        """Wait for a key of another rank; the error names all ranks whose keys are missing then."""

        def text() -> str:
            return f"{ranks_text(self._missing(key) or [other])} {failure}"

        self.until(lambda: self.store.check([f"{self.prefix}/{key}/{other}"]), text)

    def _missing(self, key: str) -> list[int]:
        others = (other for other in range(self.size) if other != self.rank)
        return [other for other in others if not self.store.check([f"{self.prefix}/{key}/{other}"])]

    def until(self, is_met: Callable[[], bool], failure: Callable[[], str]) -> None:
        """Wait for a condition; RendezvousError after the deadline or if another rank has failed."""
        pause = _FIRST_CHECK
        while not is_met():
            if self.store.check([f"{self.prefix}/failure"]):
                reason = self.store.get(f"{self.prefix}/failure").decode(errors="replace")
                raise RendezvousError(f"{failure()}; {reason}")
            if time.monotonic() > self.deadline:
                raise RendezvousError(f"{failure()} in time")
            time.sleep(pause)
            pause = min(2 * pause, _CHECK_SECONDS)


def connect(endpoint: MeshEndpoint, meeting: Meeting, timers: Timers, shares_memory: bool) -> Mesh:
    """Connect to all other ranks; RendezvousError names missing and mismatched ranks."""
    try:
        return _connect(endpoint, meeting, timers, shares_memory)
    except Exception as error:
        report_failure(meeting.store, meeting.prefix, meeting.rank, str(error), meeting.size, meeting.deadline)
        if isinstance(error, MrcError):
            raise
        raise RendezvousError(f"rank {meeting.rank}: {error}") from error  # the store failed


def ranks_text(ranks: Sequence[int]) -> str:
    """Return ranks for messages: "rank 3", "ranks 1, 3"."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}" if ranks else "no rank"


def report_failure(
    store: Store, prefix: str, rank: int, reason: str, size: int = 0, deadline: float = math.inf
) -> None:
    """Report a failure to the ranks that wait under `prefix`; those whose time is over (`deadline`) need no report."""
    with suppress(Exception):  # the store itself may have failed
        if store.add(f"{prefix}/failures", 1) == 1:
            store.set(f"{prefix}/failure", f"rank {rank}: {reason}")
        store.add(f"{prefix}/met", 1 if rank else 0)
        now = time.monotonic()
        deadline = min(now + _LINGER_SECONDS, max(deadline, now + _LAST_SECONDS))
        while rank == 0 and store.add(f"{prefix}/met", 0) < size - 1 and time.monotonic() < deadline:
            time.sleep(_CHECK_SECONDS)  # it may serve the store, from which the others read the reason


def _connect(endpoint: MeshEndpoint, meeting: Meeting, timers: Timers, shares_memory: bool) -> Mesh:
    meeting.join()
    rank = meeting.rank
    links: dict[int, RankLink] = {}
    try:
        for other in range(meeting.size):
            if other != rank:
                links[other] = endpoint.link(other)
        return _exchange_cards(endpoint.context, meeting, links, timers, shares_memory)
    except BaseException:
        for link in links.values():
            link.free()
        raise


def _exchange_cards(
    context: Context, meeting: Meeting, links: dict[int, RankLink], timers: Timers, shares_memory: bool
) -> Mesh:
    """Connect the links, and make the connections beside them."""
    introductions = Introductions(meeting.rank, meeting.size, context.address.planes, shares_memory)
    try:
        theirs = _connect_links(context, meeting, links, timers, introductions)
        reports = meeting.wait_until_ready(links, introductions.report())
        liveness, pairs = introductions.conclude(reports, meeting.deadline, meeting.until)
        neighbours = {(meeting.rank + step) % meeting.size for step in (-1, 1)} - {pair.rank for pair in pairs}
        checked = [links[rank] for rank in neighbours & links.keys()]
        check_planes(checked, context.address.planes, theirs, meeting.has_checked)
        meeting.leave()
        return Mesh(links, liveness, pairs)
    except BaseException as error:
        introductions.close_connections(f"{type(error).__name__}: {error}")
        raise
    finally:
        introductions.stop_listening()


def _connect_links(
    context: Context, meeting: Meeting, links: dict[int, RankLink], timers: Timers, introductions: Introductions
) -> dict[int, list[str]]:
    """Connect the queue pairs; return the planes of each other rank."""
    rank = meeting.rank
    planes = {}
    first_psns = {other: random.SystemRandom().randrange(1 << 24) for other in links}
    ours = _card(context, rank, meeting.size, links, first_psns, introductions)
    meeting.publish(ours)
    for other, link in links.items():
        theirs = meeting.card_of(other)
        _check(ours, theirs)
        if link.network is not None:
            _raise_to_rts(link.network, ours, theirs, timers)
        link.connect(theirs.places[rank].address, theirs.places[rank].key)
        if other < rank:
            introductions.connect(other, theirs.planes, theirs.control_port, theirs.nonce, theirs.host)
        planes[other] = theirs.planes
    return planes


def _card(
    context: Context,
    rank: int,
    size: int,
    links: dict[int, RankLink],
    first_psns: dict[int, int],
    introductions: Introductions,
) -> Card:
    for link in links.values():
        if link.network is not None:
            link.network.modify(state=QpState.INIT, access_flags=Access.REMOTE_WRITE)
    device = context.query_device()
    places = {
        other: PeerResources(link.qp.qpn, first_psns[other], link.stage.region.addr, link.stage.region.r_key)
        for other, link in links.items()
    }
    return Card(
        VERSION,
        rank,
        size,
        f"{socket.gethostname()}/{os.getpid()}",
        list(context.address.planes),
        [list(ports) for ports in context.address.source_ports],
        device.ev_format.name,
        device.max_mtu,
        introductions.port,
        introductions.nonce,
        introductions.host,
        places,
    )


def _check(ours: Card, theirs: Card) -> None:
    """Raise RendezvousError with both values of every attribute that differs between two ranks."""
    terms = (
        ("version", ours.version, theirs.version),
        ("world size", ours.size, theirs.size),
        ("number of planes", len(ours.planes), len(theirs.planes)),
        ("EV format", ours.ev_format, theirs.ev_format),
    )
    differing = [f"{name}: here {here}, there {there}" for name, here, there in terms if here != there]
    if differing:
        raise RendezvousError(f"rank {ours.rank} and rank {theirs.rank} do not match: {'; '.join(differing)}")
    if ours.rank not in theirs.places:
        raise RendezvousError(f"rank {theirs.rank}: its card has no entry for rank {ours.rank}")


def _raise_to_rts(qp: QueuePair, ours: Card, theirs: Card, timers: Timers) -> None:
    here, there = ours.places[theirs.rank], theirs.places[ours.rank]
    qp.modify(
        state=QpState.RTR,
        remote=PeerAddress(planes=tuple(theirs.planes), source_ports=tuple(map(tuple, theirs.source_ports))),
        dest_qpn=there.qpn,
        rq_psn=there.psn,
        path_mtu=min(ours.mtu, theirs.mtu),
        max_wimm_dest=_MAX_WIMM,
        mpr=_MPR,
        mpr_dest=_MPR,
    )
    qp.post_recv(RECEIVES)
    qp.modify(
        state=QpState.RTS,
        sq_psn=here.psn,
        max_wimm=_MAX_WIMM,
        mpr=_MPR,
        timeout=timers.timeout,
        linear_count=timers.linear_count,
        exponential_count=timers.exponential_count,
        user_timeout=timers.user_timeout,
    )
