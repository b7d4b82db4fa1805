"""The parts of a plane that can be at fault, numbered: directed links, cables, switches.

A part is defined by its directed links: a cable has two, a switch all that begin or end at it. A port cannot be told
from its cable by packets; the cable's verdict names both ports. A NIC's port in a plane is its cable there, and a NIC
is all of them: verdicts of several planes are joined in `verdicts`.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.fabric.model.shape import PlaneShape
from openmrc.fabric.model.topology import Topology


class PartKind(IntEnum):
    LINK = 0  # one direction
    CABLE = 1
    SWITCH = 2


@dataclass(frozen=True)
class PlaneParts:
    """Number the parts of one plane: directed links first, then cables, then switches."""

    topology: Topology
    shape: PlaneShape

    @cached_property
    def links(self) -> int:
        shape = self.shape
        return shape.long_back + shape.long * shape.top_per_site - shape.host_up

    @cached_property
    def way_back(self) -> Ints:
        """Return the other direction of each directed link of the plane, both in the plane's numbers."""
        first = self.shape.host_up
        return self.topology.link_reverse[first : first + self.links].astype(np.int64) - first

    @cached_property
    def cable_of(self) -> Ints:
        """Return the cable (its number among cables) of each directed link of the plane."""
        lower = np.minimum(self.way_back, np.arange(self.links))
        return np.asarray(np.unique(lower, return_inverse=True)[1]).ravel().astype(np.int64)

    @property
    def cables(self) -> int:
        return self.links // 2

    @property
    def count(self) -> int:
        return self.links + self.cables + self.shape.switches

    def kind(self, part: int) -> PartKind:
        if part < self.links:
            return PartKind.LINK
        return PartKind.CABLE if part < self.links + self.cables else PartKind.SWITCH

    def cable(self, part: int) -> int:
        """Return the cable of a direction; a cable, or a switch, is its own."""
        return self.links + int(self.cable_of[part]) if part < self.links else part

    def switches_of(self, links: Ints) -> tuple[Ints, Ints]:
        """Return the parts of the switches at both ends of links, -1 for a NIC."""
        first = self.shape.host_up
        ends = (self.topology.link_source, self.topology.link_destination)
        base = self.links + self.cables - self.shape.first_t0
        both = (end[links + first].astype(np.int64) for end in ends)
        source, destination = (np.where(node >= self.topology.nics, node + base, -1) for node in both)
        return source, destination

    def switches_at(self, part: int) -> set[int]:
        """Return the parts of the switches at the ends of a part's links."""
        both = self.switches_of(self.links_of(part) - self.shape.host_up)
        return {int(each) for each in np.concatenate(both) if each >= 0}

    def links_of(self, part: int) -> Ints:
        """Return the directed links of a part, in the topology's numbers."""
        first = self.shape.host_up
        if part < self.links:
            return np.array([part + first])
        if part < self.links + self.cables:
            return np.flatnonzero(self.cable_of == part - self.links) + first
        node = part - self.links - self.cables + self.shape.first_t0
        mine = slice(first, first + self.links)
        ends = (self.topology.link_source[mine] == node) | (self.topology.link_destination[mine] == node)
        return np.flatnonzero(ends) + first

    def name(self, part: int) -> str:
        """Return `A>B` for a direction, `A<>B` for a cable, the node's name for a switch."""
        if part < self.links:
            return self.topology.link_name(part + self.shape.host_up)
        if part < self.links + self.cables:
            return self.topology.link_name(int(self.links_of(part)[0])).replace(">", "<>")
        return self.topology.name(part - self.links - self.cables + self.shape.first_t0)
