"""Series of counters as NICs and switches of others would show them, of a small fabric with one fault.

Each interval every path is given some packets; hop by hop a binomial share of them is lost. The oracle is the part that
was broken.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np

from openmrc.fabric.addressing.paths import EvNumbers, choices, path
from openmrc.fabric.addressing.usid import UsidPlan

HEALTHY = 1e-7  # share of packets that a healthy link loses


@dataclass
class Series:
    """The counters of all paths and ports of a fabric, added up interval by interval."""

    plan: UsidPlan
    seed: int = 0
    broken: dict[tuple[str, str], float] = field(default_factory=dict)  # direction of a cable -> share that it loses
    packets: int = 20_000  # of a path and interval

    def __post_init__(self) -> None:
        topology = self.plan.topology
        self.draw, evs = np.random.default_rng(self.seed), EvNumbers(self.plan)
        self.paths = {}
        for source in range(topology.nics):
            for destination in (other for other in range(topology.nics) if other != source):
                for sids in self.plan.planes:
                    for choice in choices(sids.shape, source, destination):
                        way = path(self.plan, source, destination, choice)
                        self.paths[source, destination, evs.number(choice)] = [
                            topology.name(node) for node in way.nodes
                        ]
        self.sent = dict.fromkeys(self.paths, 0)
        self.lost = dict.fromkeys(self.paths, 0)
        self.marked = dict.fromkeys(self.paths, 0)
        self.into: dict[tuple[str, str], list[int]] = {}  # direction of a cable -> good packets, errors

    def interval(self, burst: str = "") -> None:
        """Add an interval, perhaps with a burst of congestion at the last hop to a NIC."""
        for key, nodes in self.paths.items():
            left = self.packets
            for hop in itertools.pairwise(nodes):
                bad = int(self.draw.binomial(left, self.broken.get(hop, HEALTHY)))
                counts = self.into.setdefault(hop, [0, 0])
                left -= bad
                counts[0], counts[1] = counts[0] + left, counts[1] + bad
            if nodes[-1] == burst:
                full = int(self.draw.binomial(left, 0.02))
                left -= full
                self.marked[key] += left // 10
            self.sent[key] += self.packets
            self.lost[key] += self.packets - left
