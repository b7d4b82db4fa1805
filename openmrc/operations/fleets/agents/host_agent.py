"""The agent of one host, without a socket to its controller: makes reports, and carries out orders.

    endpoints of this host --votes--.
                                     >-- report(now) --> controller --> obey(orders, now) --> endpoints, probes
    probes of this host -----------'

A lease counts from when the report was made that the orders answer. Orders that took longer than their lease do
nothing, and nothing that a controller has sent before it vanished keeps a path denied for longer than a minute.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from openmrc.ctl.denials import MOST_LEASE
from openmrc.ctl.errors import FencedError
from openmrc.errors import Malformed
from openmrc.operations.fleets.agents.messages import HostOrders, HostReport, LoopsSeen, OneWays, PathVote
from openmrc.operations.fleets.fleet import TellableFleet

REFRESH_S = 0.5  # between two searches for new endpoints
TELL_S = 1.0  # between two renewals of denials at endpoints


class ProbesOfHost(Protocol):
    def taken(self) -> tuple[list[LoopsSeen], list[OneWays], list[OneWays]]:
        """Return the loops that are decided, and what was sent and what arrived one way, since the last time."""

    def hasten(self, rows: Sequence[Sequence[int]]) -> None:
        """Send these rows of each plane often like data for a while."""

    def avoid(self, links: frozenset[int]) -> None:
        """Send nothing over these links."""


@dataclass
class HostAgent:
    """The agent of a host; times are seconds of this host's own clock."""

    fleet: TellableFleet
    probes: ProbesOfHost | None = None
    wait: float = 0.1  # s until the next report is due, as the controller said last
    _number: int = 0
    _made_at: dict[int, float] = field(default_factory=dict)
    _told: tuple[int, frozenset[int]] = (0, frozenset())  # epoch and links
    _obeyed: int = 0
    _epoch: int = 0  # the greatest of orders that came
    _refresh_at: float = float("-inf")
    _tell_at: float = float("-inf")

    def begin(self) -> None:
        """Begin a connection. Denials of the one before stay until they lapse."""
        self._made_at.clear()
        self._obeyed = 0

    def report(self, now: float) -> HostReport:
        """Return what was seen since the last report."""
        if now >= self._refresh_at:
            self._refresh_at = now + REFRESH_S
            if self.fleet.refresh():
                self._tell_at = now
        votes = self.fleet.look()
        loops, sent, arrived = ([], [], []) if self.probes is None else self.probes.taken()
        self._number += 1
        self._made_at[self._number] = now
        return HostReport(
            number=self._number, epoch=self._newest(), endpoints=self.fleet.names(), obeyed=self._obeyed,
            kept=[pair.rpartition(" to ")[2] for pair in self.fleet.last_paths()], late=bool(votes.late),
            votes=[PathVote(plane, list(links), *counts)
                   for plane, paths in votes.by_plane.items() for links, counts in paths.items()],
            loops=loops, sent=sent, arrived=arrived,
        )  # fmt: skip

    def obey(self, orders: HostOrders, now: float) -> None:
        """Carry out orders; Malformed if they answer no report of ours."""
        made_at = self._made_at.pop(orders.heard, None)
        if made_at is None or not 0 <= orders.wait <= MOST_LEASE or not 0 <= orders.lease <= MOST_LEASE:
            raise Malformed(f"orders {orders.number}: to no report, or a wait or lease out of 0..{MOST_LEASE:g}")
        self.wait = orders.wait
        if self.probes is not None:
            self.probes.avoid(frozenset(orders.unprobed))
            self.probes.hasten(orders.often)
        left = made_at + orders.lease - now
        if orders.epoch < max(1, self._newest()) or left <= 0:
            return
        self._epoch = orders.epoch
        wanted = (orders.epoch, frozenset(orders.links))
        if wanted != self._told or now >= self._tell_at:
            self._tell_at = now + TELL_S
            try:
                self.fleet.tell(*wanted, left, now)
            except FencedError:
                return  # an endpoint follows a newer controller; the next report has its epoch
            self._told = wanted
        self._obeyed = orders.number

    def _newest(self) -> int:
        return max(self._epoch, self.fleet.epoch())
