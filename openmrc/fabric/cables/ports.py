"""The cage of every port: cage, lanes, and the interface name in each system.

All switches of a plane and tier are one model: a port without a cable on one of them keeps its place there too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.errors import ConfigError
from openmrc.fabric.export.cages import Cages, CageSlot, cumulus_port, eos_port, slots, sonic_port
from openmrc.fabric.model.topology import Topology

SCHEMES: dict[str, Callable[[int, CageSlot], str]] = {
    "linux": lambda port, slot: f"p{port}",
    "sonic": lambda port, slot: sonic_port(slot),
    "cumulus": lambda port, slot: cumulus_port(slot),
    "eos": lambda port, slot: eos_port(slot),
}
_MOST_NIC_CAGES = 64


@dataclass(frozen=True)
class Ports:
    """Hold the slots of all models; port p of node n is slot `first[model[n]] + p`."""

    topology: Topology
    model: Ints  # by node
    first: Ints  # by model
    slots: tuple[CageSlot, ...]

    def index(self, node: Ints, port: Ints) -> Ints:
        return np.asarray(self.first[self.model[node]] + port)

    def column(self, field: str) -> Ints:
        return np.array([getattr(slot, field) for slot in self.slots], dtype=np.int64)

    def names(self, scheme: str) -> list[str]:
        """Return the interface names of all slots; a NIC's are those of its machine's first NIC."""
        name = SCHEMES[scheme]
        ends = [*self.first[1:].tolist(), len(self.slots)]
        nics = set(self.model[: self.topology.nics].tolist())
        found: list[str] = []
        for model, (begin, end) in enumerate(zip(self.first.tolist(), ends, strict=True)):
            if model in nics:
                found += [self.nic_interface(0, number - begin) for number in range(begin, end)]
            else:
                found += [name(number - begin, self.slots[number]) for number in range(begin, end)]
        return found

    @property
    def nic_ports(self) -> int:
        """Count the ports of a NIC of a regular fabric."""
        return len(self.topology.planes)

    def number(self, slot: int) -> int:
        return slot - int(self.first[np.searchsorted(self.first, slot, side="right") - 1])

    def nic_interface(self, nic: int, port: int) -> str:
        """Return the interface name of a NIC's port on its machine."""
        return self.topology.fabric.plant.interface.format(nic=nic % self.topology.nics_per_host, plane=port)


def check_scheme(name: str) -> str:
    if name not in SCHEMES:
        raise ConfigError(f"--names {name!r}; {', '.join(SCHEMES)} are known")
    return name


def place_ports(topology: Topology) -> Ports:
    """Place the ports of every model; ConfigError if a model has too few cages."""
    plant = topology.fabric.plant
    switch = Cages(plant.cages, plant.lanes, plant.lane_gbps)
    nic = Cages(_MOST_NIC_CAGES, plant.lanes, plant.lane_gbps)
    model = _models(topology)
    rates = _rates(topology, model)
    placed = cache(lambda row, is_nic: tuple(slots(row, nic if is_nic else switch)))
    nic_models = set(model[: topology.nics].tolist())
    found: list[CageSlot] = []
    first = []
    for number, row in enumerate(rates):
        first.append(len(found))
        found += placed(row, number in nic_models)
    return Ports(topology, model, np.array(first, dtype=np.int64), tuple(found))


def _models(topology: Topology) -> Ints:
    """Number the models: NICs are one, each plane's tier is one; without planes every node is its own."""
    if not topology.planes:
        return np.arange(topology.nodes, dtype=np.int64)
    key = (topology.node_plane.astype(np.int64) + 1) * 4 + topology.node_tier.astype(np.int64) + 1
    return np.unique(key, return_inverse=True)[1].astype(np.int64)


def _rates(topology: Topology, model: Ints) -> list[tuple[float, ...]]:
    """Return the rate of every port of each model, Gb/s; one that no switch uses is as the port before it."""
    count, width = int(model.max(initial=0)) + 1, int(topology.link_port.max(initial=0)) + 1
    table = np.zeros((count, width))
    table[model[topology.link_source], topology.link_port] = topology.link_rate / 1e9
    found = []
    for row in table:
        used = np.flatnonzero(row)
        last = int(used[-1]) + 1 if len(used) else 0
        filled = np.maximum.accumulate(np.where(row[:last] > 0, np.arange(last), 0))
        ports = row[:last][filled] if last else row[:0]
        found.append(tuple(float(rate) for rate in np.where(ports > 0, ports, row[used[0]] if last else 0)))
    return found
