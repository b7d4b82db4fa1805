"""Locations of machines and switches: rack, unit and position on the floor, from the numbers of `plant`.

Racks fill in order, so a rack's name and content stay when a fabric grows at its end. Network racks are in the middle
rows, machines on both sides. Units: metres; rack units from 1 at the bottom.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from openmrc.core.arrays import Floats, Ints
from openmrc.errors import ConfigError
from openmrc.fabric.model.description import Plant
from openmrc.fabric.model.topology import Topology

UNIT_M = 0.04445


@dataclass(frozen=True)
class Rack:
    """Hold one rack; rows count outward from the middle one, 0."""

    name: str
    site: int
    row: int
    position: int


@dataclass(frozen=True)
class RackPlacement:
    """Hold the racks, and by node the rack and the lowest unit."""

    topology: Topology
    plant: Plant
    racks: tuple[Rack, ...]
    rack: Ints
    unit: Ints

    def length_m(self, here: Ints, there: Ints) -> Floats:
        """Return the cable lengths between nodes of one site: along trays above the racks, or within a rack."""
        plant = self.plant
        x = np.array([rack.position for rack in self.racks])[self.rack] * plant.rack_pitch_m
        y = np.array([rack.row for rack in self.racks])[self.rack] * plant.row_pitch_m
        tops = np.where(np.arange(len(self.unit)) < self.topology.nics, plant.host_units, plant.switch_units) / 2
        height = (self.unit - 1 + tops) * UNIT_M
        rise = 2 * plant.rack_units * UNIT_M - height[here] - height[there]
        across = np.abs(x[here] - x[there]) + np.abs(y[here] - y[there]) + rise
        within = np.abs(height[here] - height[there])
        return np.asarray(np.where(self.rack[here] == self.rack[there], within, across) + 2 * plant.slack_m)


def device_name(topology: Topology, node: int) -> str:
    """Return the name of a switch, or of the machine that a NIC is in."""
    if node >= topology.nics or topology.nics_per_host == 1:
        return topology.name(node)
    return topology.host_name(node // topology.nics_per_host)


def place(topology: Topology) -> RackPlacement:
    """Place every node in a rack; ConfigError if a rack is too low."""
    plant = topology.fabric.plant
    _check(plant)
    rack = np.zeros(topology.nodes, dtype=np.int64)
    unit = np.zeros(topology.nodes, dtype=np.int64)
    racks: list[Rack] = []
    for group in _groups(topology):
        hosts = group.is_hosts
        each, height = (
            (plant.hosts_per_rack, plant.host_units) if hosts else (plant.switches_per_rack, plant.switch_units)
        )
        rack[group.nodes] = len(racks) + group.device // each
        unit[group.nodes] = 1 + group.device % each * height
        count = int(group.device.max(initial=-1)) // each + 1
        digits = 4 if hosts else 2
        racks.extend(Rack(f"{group.prefix}{number + 1:0{digits}d}", group.site, hosts, 0) for number in range(count))
    return RackPlacement(topology, plant, tuple(_on_floor(racks, plant.racks_per_row)), rack, unit)


def _check(plant: Plant) -> None:
    for what, count, units in (
        ("hosts", plant.hosts_per_rack, plant.host_units),
        ("switches", plant.switches_per_rack, plant.switch_units),
    ):
        if count * units > plant.rack_units:
            raise ConfigError(
                f"plant: {count} {what} of {units} units do not fit a rack of {plant.rack_units}; "
                f"{plant.rack_units // units} would"
            )


@dataclass(frozen=True)
class _Group:
    """Hold nodes that share racks; `device` counts what is mounted, from 0."""

    prefix: str
    site: int
    is_hosts: bool
    nodes: Ints
    device: Ints


def _groups(topology: Topology) -> Iterator[_Group]:
    """Yield machines, then switches by plane and tier, site by site."""
    sites = topology.fabric.sites.count if topology.fabric.sites else 1
    nics = np.arange(topology.nics, dtype=np.int64)
    for site in range(sites):
        mark = f"s{site}-" if sites > 1 else ""
        here = nics[site * topology.nics // sites : (site + 1) * topology.nics // sites]
        host = here // topology.nics_per_host
        yield _Group(f"{mark}h-", site, True, here, host - host.min(initial=topology.nics))
        for plane, tier, nodes in _tiers(topology):
            own = nodes[site * len(nodes) // sites : (site + 1) * len(nodes) // sites]
            yield _Group(f"{mark}p{plane}-t{tier}-r", site, False, own, np.arange(len(own), dtype=np.int64))


def _tiers(topology: Topology) -> Iterator[tuple[int, int, Ints]]:
    switches = np.arange(topology.nics, topology.nodes, dtype=np.int64)
    key = topology.node_plane[switches].astype(np.int64) << 8 | topology.node_tier[switches].astype(np.int64)
    for each in np.unique(key):
        yield int(each) >> 8, int(each) & 0xFF, switches[key == each]


def _on_floor(racks: list[Rack], per_row: int) -> Iterator[Rack]:
    """Give racks their rows; `row` says on entry whether a rack holds machines."""
    network = {
        site: sum(rack.site == site and not rack.row for rack in racks) for site in {rack.site for rack in racks}
    }
    seen: dict[tuple[int, int], int] = {}
    for rack in racks:
        number = seen.get((rack.site, rack.row), 0)
        seen[rack.site, rack.row] = number + 1
        row, position = divmod(number, per_row)
        if rack.row:
            beyond = -(-network[rack.site] // per_row) // 2 + row // 2 + 1
            yield Rack(rack.name, rack.site, beyond if row % 2 else -beyond, position)
        else:
            yield Rack(rack.name, rack.site, (row + 1) // 2 * (1 if row % 2 else -1), position)
