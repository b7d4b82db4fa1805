"""A fabric of twelve hosts whose endpoints are models: what they deny, until when, and what they count."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from openmrc.ctl.denials import Denials
from openmrc.fabric.addressing.usid import UsidPlan, usid_plan
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric, Hosts, Plane, Tier
from openmrc.operations.diagnosis.denial import deniable
from openmrc.operations.diagnosis.path_index import PathIndex, PathLinks
from openmrc.operations.fleets.fleet import PlaneVotes, TellableFleet

FABRIC = Fabric(
    name="twelve", hosts=Hosts(count=12), planes=(Plane(count=2, host_gbps=100, t0=Tier(down=4, up=4), t1=Tier()),)
)
NICS, PLANES = 12, 2


def twelve() -> UsidPlan:
    return usid_plan(build(FABRIC))


@functools.cache
def ways_from(index: PathIndex, nic: int) -> dict[tuple[int, int], list[PathLinks]]:
    """Return for each (plane, peer) all paths of the plane, as links of the plane."""
    return {
        (plane, peer): list(index._all(plane, nic, peer).values())
        for plane in range(PLANES)
        for peer in range(NICS)
        if peer != nic
    }


@dataclass
class HostGuard:
    """A host's side: the EVs that it has towards each peer, and what it was told to avoid.

    `paths` has for each peer the links of each (port, EV).
    """

    paths: Mapping[str, Mapping[tuple[int, int], frozenset[int]]]
    denials: Denials = field(default_factory=Denials)

    def receive(self, epoch: int, links: frozenset[int], lease: float, now: float) -> list[str]:
        """Replace what is denied, if the epoch is not fenced off; return the peers for which it was too much.

        FencedError: a newer controller was here. For a peer that would lose its last path nothing is denied.
        """
        self.denials.epoch = self.denials.check(epoch, lease)
        wanted, kept = deniable(self.paths, links)
        self.denials.check_room(wanted)
        self.denials.remove(None)
        for denial in wanted:
            self.denials.add(denial, now + lease)
        return kept

    def usable(self, peer: str, now: float) -> Sequence[tuple[int, int]]:
        """Return the (port, EV) towards a peer that are not denied now."""
        self.denials.lapsed(now)
        return [ev for ev in self.paths[peer] if not self.denials.covers(*ev, peer)]


@dataclass
class ModelEndpoints(TellableFleet):
    """The endpoints of one host: a `HostGuard` with a clock that tests set."""

    plan: UsidPlan
    nic: int
    index: PathIndex
    packets: int = 40  # of each path between two looks
    broken: frozenset[int] = frozenset()  # links of the topology that lose everything
    now: float = 0.0

    def __post_init__(self) -> None:
        base = [shape.host_up for shape in self.plan.topology.planes]
        self.ways = ways_from(self.index, self.nic)
        paths: dict[str, dict[tuple[int, int], frozenset[int]]] = {}
        for (plane, peer), ways in self.ways.items():
            for number, way in enumerate(ways):
                crossed = frozenset(link + base[plane] for link in way)
                paths.setdefault(f"h{peer}", {})[plane + 1, number] = crossed
        self.guard = HostGuard(paths, Denials())

    def names(self) -> list[str]:
        return ["model"]

    def epoch(self) -> int:
        return self.guard.denials.epoch

    def look(self) -> PlaneVotes:
        votes, base = PlaneVotes(), [shape.host_up for shape in self.plan.topology.planes]
        for (plane, _), ways in self.ways.items():
            for way in ways:
                hit = self.broken.intersection(link + base[plane] for link in way)
                votes.add(plane, way, self.packets, self.packets if hit else 0)
        return votes

    def tell(self, epoch: int, links: frozenset[int], lease: float, now: float) -> None:
        self._kept = [f"model to {peer}" for peer in self.guard.receive(epoch, links, lease, now)]

    def every_pair_has_a_path(self, now: float) -> bool:
        return all(self.guard.usable(peer, now) for peer in self.guard.paths)

    def denied(self, now: float) -> int:
        self.guard.denials.lapsed(now)
        return len(self.guard.denials)
