"""Decide what to deny, and lift it again: budgets, damping, a dry run unless told otherwise.

The controller holds a set of links to be avoided and hands it to every host again and again, with its epoch and a
lease. A host keeps what it was told until the lease lapses, so nothing stays denied for longer than
`openmrc.ctl.denials.MOST_LEASE` after the last controller has died, and the order or loss of messages does not matter:
each message holds the whole set. A controller begins with an epoch above every one that it has seen; a host that has
heard of it refuses the older one from then on.

Two guards keep a last path. The controller asks for proof before it denies a link (`keeps_paths`, such as
`fabric.proof.remaining` over all pairs); and each host, who alone knows what it still uses, refuses to leave a peer
without a path (`deniable`). The second holds even if two controllers want different things of different hosts.

A link that flaps is lifted later each time (as in RFC 2439): every fault adds to a penalty that halves in
`HALF_LIFE_S`, and the link is used again when the penalty is below `REUSE`. The states of a part are those of
`fault_life.FAULT_TRANSITIONS`.

Times are seconds of the controller's, or of the host's own clock; they are never compared with each other.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from openmrc.ctl.denials import MOST_LEASE, Denial
from openmrc.operations.diagnosis.fault_life import FaultEvent, FaultState, fault_after

Part = TypeVar("Part", bound=Hashable)

PENALTY, REUSE, HALF_LIFE_S = 1000.0, 750.0, 60.0
MOST_PENALTY = 16_000.0  # a link that flapped long is used again after four and a half half-lives at the latest


class DenialOutcome(StrEnum):
    DENIED = "denied"
    DRY_RUN = "dry run"
    KNOWN = "known"
    BUDGET_OF_MINUTE = "budget of the minute"
    BUDGET_OF_PLANE = "budget of the plane"
    LAST_PATH = "last path"


@dataclass(frozen=True)
class DenialLimits:
    """What a controller may do at most."""

    dry_run: bool = True
    per_minute: int = 4  # parts newly denied
    plane_share: float = 0.25  # of a plane's links at a time
    lease: float = 30.0  # s

    def __post_init__(self) -> None:
        if not 0 < self.lease <= MOST_LEASE:
            raise ValueError(f"lease: {self.lease} s is not above 0 and at most {MOST_LEASE:g}")


@dataclass(frozen=True)
class _Held:
    """A part that is, or in a dry run would be, denied."""

    links: frozenset[int]
    plane: int


@dataclass
class DenialController(Generic[Part]):
    """One controller; `keeps_paths` proves that every pair keeps a path without these links."""

    epoch: int
    plane_links: Mapping[int, int]
    keeps_paths: Callable[[frozenset[int]], bool]
    limits: DenialLimits = DenialLimits()
    held: dict[Part, _Held] = field(default_factory=dict)
    states: dict[Part, FaultState] = field(default_factory=dict)  # those that are not `LIFTED`
    _denied_at: list[float] = field(default_factory=list)
    _penalty: dict[Part, tuple[float, float]] = field(default_factory=dict)  # (value, at)

    def move(self, part: Part, event: FaultEvent) -> FaultState:
        """Apply an event to a part; return the new state."""
        state = fault_after(self.states.pop(part, FaultState.LIFTED), event)
        if state != FaultState.LIFTED:
            self.states[part] = state
        return state

    def fault(self, part: Part, links: Iterable[int], plane: int, now: float, again: bool = False) -> DenialOutcome:
        """Deny a faulty part's links if that is safe. `again`: an earlier refusal is retried, without a new penalty."""
        if not again:
            self._penalty[part] = (min(MOST_PENALTY, self.penalty(part, now) + PENALTY), now)
        if part in self.held:
            self.move(part, FaultEvent.DENY)
            return DenialOutcome.KNOWN
        wanted = frozenset(links)
        if refused := self._refusal(wanted, plane, now):
            self.move(part, FaultEvent.EXPLAINED)
            return refused
        self._hold(part, wanted, plane)
        self._denied_at.append(now)
        return DenialOutcome.DRY_RUN if self.limits.dry_run else DenialOutcome.DENIED

    def adopt(self, part: Part, links: Iterable[int], plane: int, penalty: float, now: float) -> None:
        """Continue the denial of an earlier controller with its remaining penalty."""
        self._hold(part, frozenset(links), plane)
        self._penalty[part] = (min(MOST_PENALTY, max(0.0, penalty)), now)

    def _hold(self, part: Part, links: frozenset[int], plane: int) -> None:
        self.held[part] = _Held(links, plane)
        self.move(part, FaultEvent.DENY)

    def _refusal(self, wanted: frozenset[int], plane: int, now: float) -> DenialOutcome | None:
        self._denied_at = [at for at in self._denied_at if now - at < 60]
        if len(self._denied_at) >= self.limits.per_minute:
            return DenialOutcome.BUDGET_OF_MINUTE
        in_plane = wanted.union(*(each.links for each in self.held.values() if each.plane == plane))
        if len(in_plane) > self.limits.plane_share * self.plane_links[plane]:
            return DenialOutcome.BUDGET_OF_PLANE
        if not self.keeps_paths(wanted.union(*(each.links for each in self.held.values()))):
            return DenialOutcome.LAST_PATH
        return None

    def repaired(self, part: Part) -> None:
        """Mark a part as repaired; it stays denied until its penalty has decayed."""
        self.move(part, FaultEvent.PASSES)

    def penalty(self, part: Part, now: float) -> float:
        """Return what is left of a part's penalty."""
        value, at = self._penalty.get(part, (0.0, now))
        return float(value * 0.5 ** (max(0.0, now - at) / HALF_LIFE_S))

    def lift(self, now: float) -> list[Part]:
        """Stop denying the repaired parts whose penalty has decayed; return them."""
        done = [
            part
            for part, state in self.states.items()
            if state == FaultState.REPAIRED and self.penalty(part, now) < REUSE
        ]
        for part in done:
            self.move(part, FaultEvent.DECAYED)
            del self.held[part]
        return done

    def denied(self) -> frozenset[int]:
        """Return the links that every host shall avoid now; none in a dry run."""
        if self.limits.dry_run:
            return frozenset()
        return frozenset().union(*(each.links for each in self.held.values()))


def deniable(
    paths: Mapping[str, Mapping[tuple[int, int], frozenset[int]]], links: frozenset[int]
) -> tuple[list[Denial], list[str]]:
    """Return what a host has to deny to avoid these links, and the peers whose last path crosses them, which is kept.

    `paths` has for each peer the links of each (port, EV).
    """
    wanted: list[Denial] = []
    kept: list[str] = []
    for peer, evs in paths.items():
        bad = [ev for ev, crossed in evs.items() if crossed & links]
        if len(bad) == len(evs):
            kept.append(peer)
        else:
            wanted += [Denial(port=port, ev=ev, peer=peer) for port, ev in bad]
    return wanted, kept
