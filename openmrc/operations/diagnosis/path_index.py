"""Which links a packet crosses that is sent to a carrier: the index by which votes of endpoints become rows of paths.

Links are numbered within their plane, as `operations.diagnosis.elements.PlaneParts` numbers them.
"""

from ipaddress import IPv6Address

import numpy as np

from openmrc.fabric.addressing.paths import Path, choices, path
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.fabric.addressing.walk import Cabling

PathLinks = tuple[int, ...]


class PathIndex:
    """Addresses and carriers of a fabric, looked up as endpoints write them."""

    def __init__(self, plan: UsidPlan) -> None:
        self.plan, topology = plan, plan.topology
        self._nics = {
            int(IPv6Address(plan.nic_address(plane, nic))): (plane, nic)
            for plane in range(len(plan.planes))
            for nic in range(topology.nics)
        }
        self.cabling = Cabling(topology)
        self._ways: dict[tuple[int, int, int], dict[int, PathLinks]] = {}

    def nic(self, address: str) -> tuple[int, int] | None:
        """Return (plane, NIC) of an address, None if it is no NIC's."""
        number = _number(address)
        return None if number is None else self._nics.get(number)

    def links(self, plane: int, source: int, destination: int, carrier: str) -> PathLinks | None:
        """Return the plane's links that packets to a carrier cross, in order; None if it is no path of the fabric."""
        number = _number(carrier)
        if number is None or source == destination:
            return None
        key = (plane, source, destination)
        if key not in self._ways:
            self._ways[key] = self._all(*key)
        return self._ways[key].get(number)

    def links_of(self, way: Path) -> PathLinks:
        """Return the plane's links that a path crosses, in order."""
        links = self.cabling.link(np.array(way.nodes[:-1]), np.array(way.ports))
        return tuple((links - self.plan.topology.planes[way.choice.plane].host_up).tolist())

    def _all(self, plane: int, source: int, destination: int) -> dict[int, PathLinks]:
        ways = (
            path(self.plan, source, destination, choice)
            for choice in choices(self.plan.topology.planes[plane], source, destination)
        )
        return {int(IPv6Address(way.address)): self.links_of(way) for way in ways}


def _number(text: str) -> int | None:
    try:
        return int(IPv6Address(text))
    except ValueError:
        return None
