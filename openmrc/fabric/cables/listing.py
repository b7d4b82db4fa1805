"""The cables of a fabric: both ends with rack, cage and lane, the length class, and the transceivers.

A length is the route between two racks, rounded up to the next class of `plant.lengths_m`; between sites it follows
from the propagation delay. A cage holds one transceiver, chosen for the longest of its cables.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.core.arrays import Ints
from openmrc.errors import ConfigError
from openmrc.fabric.cables.placement import RackPlacement, device_name, place
from openmrc.fabric.cables.ports import Ports, place_ports
from openmrc.fabric.model.topology import LinkTier, Topology

COLUMNS = (
    "label",
    "a_node", "a_device", "a_rack", "a_unit", "a_port", "a_interface", "a_cage", "a_lane", "a_module",
    "b_node", "b_device", "b_rack", "b_unit", "b_port", "b_interface", "b_cage", "b_lane", "b_module",
    "plane", "kind", "gbps", "length_m",
)  # fmt: skip
COPPER = 0  # medium; above it the number of a reach, from 1
_PS_PER_METRE = 5000
_AT_ONCE = 1 << 17  # rows made at a time
Objects = Any  # an array of strings as objects


@dataclass(frozen=True)
class Cables:
    """One row per cable, as columns; the A end is the lower one."""

    topology: Topology
    placement: RackPlacement
    ports: Ports
    link: Ints  # directed link of the topology, from A to B
    length_mm: Ints  # length class
    medium: Ints
    a_reach: Ints  # medium of the cage at each end
    b_reach: Ints

    def __len__(self) -> int:
        return len(self.link)

    def ends(self) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
        """Return (nodes, ports) of the A ends and of the B ends."""
        a, b = (
            (self.topology.link_source[link], self.topology.link_port[link])
            for link in (self.link, self.topology.link_reverse[self.link])
        )
        return (a[0].astype(np.int64), a[1].astype(np.int64)), (b[0].astype(np.int64), b[1].astype(np.int64))

    def slots(self) -> tuple[Ints, Ints]:
        """Return the numbers of both ends' slots."""
        (a, a_port), (b, b_port) = self.ends()
        return self.ports.index(a, a_port), self.ports.index(b, b_port)

    @cached_property
    def modules(self) -> Objects:
        """Return the name of the module of each slot (row) for each medium (column): `800G-DR8`, or a copper end."""
        names = ["DAC", *(reach.name for reach in self.topology.fabric.plant.optics)]
        rows = [
            [f"{slot.parts * slot.speed}G-{name}{'' if name == 'DAC' else slot.parts * slot.lanes}" for name in names]
            for slot in self.ports.slots
        ]
        return np.array(rows, dtype=object).reshape(-1, len(names))


def list_cables(topology: Topology, only: Ints | None = None) -> Cables:
    """Compute the cables of a fabric; `only` are the directed links to list."""
    placement, ports = place(topology), place_ports(topology)
    link = np.flatnonzero(topology.link_reverse > np.arange(topology.links))
    here, there = topology.link_source[link].astype(np.int64), topology.link_destination[link].astype(np.int64)
    long = topology.link_tier[link] == LinkTier.LONG
    metres = np.where(long, topology.link_delay[link] / _PS_PER_METRE, placement.length_m(here, there))
    length = length_classes(metres, topology.fabric.plant.lengths_m)
    cages = [
        _cage_numbers(ports, here, topology.link_port[link]),
        _cage_numbers(ports, there, topology.link_port[topology.link_reverse[link]]),
    ]
    medium, reach = _media(topology, length, cages)
    chosen = slice(None) if only is None else np.searchsorted(link, only)
    return Cables(
        topology, placement, ports,
        link[chosen], length[chosen], medium[chosen], reach[0][chosen], reach[1][chosen],
    )  # fmt: skip


def length_classes(metres: npt.NDArray[np.float64], lengths: Sequence[float]) -> Ints:
    """Round lengths up to the next class, in millimetres so that classes may be fractions of a metre."""
    if not lengths:
        raise ConfigError("plant.lengths_m: give at least one length")
    known = np.array(sorted(lengths))
    beyond = np.ceil(metres / 100) * 100
    at = np.searchsorted(known, metres - 1e-9)
    return np.asarray(np.where(at < len(known), known[np.minimum(at, len(known) - 1)], beyond) * 1000).astype(np.int64)


def cage_numbers(cables: Cables) -> tuple[Ints, Ints]:
    """Return a number for the cage at either end of each cable: `node * (cages of the largest model) + cage`."""
    (a, a_port), (b, b_port) = cables.ends()
    return _cage_numbers(cables.ports, a, a_port), _cage_numbers(cables.ports, b, b_port)


def _cage_numbers(ports: Ports, node: Ints, port: Any) -> Ints:
    cage = ports.column("cage")
    return np.asarray(node * (int(cage.max(initial=0)) + 1) + cage[ports.index(node, port)])


def _media(topology: Topology, length_mm: Ints, cages: list[Ints]) -> tuple[Ints, tuple[Ints, Ints]]:
    """Return each cable's medium, and that of the cages at both ends."""
    plant = topology.fabric.plant
    reaches = np.array([reach.up_to_m for reach in plant.optics]) * 1000
    if not len(reaches) or (np.diff(reaches) <= 0).any():
        raise ConfigError("plant.optics: give at least one reach, the shortest first")
    medium = np.searchsorted(reaches, length_mm) + 1
    if (medium > len(reaches)).any():
        far = int(length_mm.max()) / 1000
        raise ConfigError(f"plant.optics: a cable of {far:g} m; the longest reach is {reaches[-1] / 1000:g} m; add one")
    medium[length_mm <= plant.copper_m * 1000] = COPPER
    while True:
        most = np.zeros(max(int(each.max(initial=0)) for each in cages) + 1, dtype=np.int64)
        for each in cages:
            np.maximum.at(most, each, medium)
        reach = most[cages[0]], most[cages[1]]
        mixed = (medium == COPPER) & ((reach[0] > COPPER) | (reach[1] > COPPER))
        if not mixed.any():
            return medium, reach
        medium[mixed] = 1


def csv_blocks(cables: Cables, scheme: str) -> Iterator[str]:
    """Yield the CSV text: the header, then some hundred thousand rows at a time."""
    yield ",".join(COLUMNS) + "\n"
    text = _Text(cables, scheme)
    for begin in range(0, len(cables), _AT_ONCE):
        yield text.rows(slice(begin, begin + _AT_ONCE))


class _Text:
    """The strings from which rows are composed; each is created once."""

    def __init__(self, cables: Cables, scheme: str) -> None:
        topology, placement = cables.topology, cables.placement
        self.cables, self.ends, self.slots = cables, cables.ends(), cables.slots()
        names = [topology.name(node) for node in range(topology.nodes)]
        self.names = _objects(names)
        seats = zip(names, placement.rack.tolist(), placement.unit.tolist(), strict=True)
        self.nodes = _objects(
            [
                f"{name},{device_name(topology, node)},{'' if topology.fabric.found else placement.racks[rack].name},"
                f"{'' if topology.fabric.found else unit}"
                for node, (name, rack, unit) in enumerate(seats)
            ]
        )
        self.ports = _objects(list(_port_texts(cables.ports, scheme)))
        self.tails, self.tail = _tails(cables)

    def rows(self, which: slice) -> str:
        cables = self.cables
        (a, a_port), (b, b_port) = ((node[which], port[which]) for node, port in self.ends)
        a_slot, b_slot = (slot[which] for slot in self.slots)
        columns = [
            self.names[a], self._labels(a, a_port), self.names[b], self._labels(b, b_port),
            self.nodes[a], self._places(a, a_port, a_slot), cables.modules[a_slot, cables.a_reach[which]],
            self.nodes[b], self._places(b, b_port, b_slot), cables.modules[b_slot, cables.b_reach[which]],
            self.tails[self.tail[which]],
        ]  # fmt: skip
        return "".join(
            f"{a}:{a_port}={b}:{b_port},{a_node},{a_place},{a_module},{b_node},{b_place},{b_module},{tail}\n"
            for a, a_port, b, b_port, a_node, a_place, a_module, b_node, b_place, b_module, tail in zip(
                *(column.tolist() for column in columns), strict=True
            )
        )

    def _labels(self, node: Ints, port: Ints) -> Any:
        """Return what ports are called on labels: by number, of a fabric that exists by their names."""
        topology = self.cables.topology
        if not topology.fabric.found:
            return port
        ends = zip(node.tolist(), port.tolist(), strict=True)
        return _objects([topology.port_name(*end) or str(end[1]) for end in ends])

    def _places(self, node: Ints, port: Ints, slot: Ints) -> Any:
        """Return `port,interface,cage,lane` of ports; where a port's name is known, its cage is not."""
        texts = self.ports[_text_index(self.cables.ports, node, slot)]
        if not self.cables.topology.fabric.found:
            return texts
        known = zip(node.tolist(), port.tolist(), texts.tolist(), strict=True)
        names = ((self.cables.topology.port_name(at, number), number, text) for at, number, text in known)
        return _objects([f"{number},{name},," if name else text for name, number, text in names])


def _port_texts(ports: Ports, scheme: str) -> Iterator[str]:
    """Yield `port,interface,cage,lane` of every slot, then of the ports of a machine's NICs, one after the other."""
    for number, name in enumerate(ports.names(scheme)):
        yield _port_text(ports, number, name)
    for nic in range(ports.topology.nics_per_host):
        for port in range(ports.nic_ports):
            yield _port_text(ports, int(ports.first[ports.model[0]]) + port, ports.nic_interface(nic, port))


def _port_text(ports: Ports, number: int, name: str) -> str:
    slot = ports.slots[number]
    return f"{ports.number(number)},{name},{slot.cage + 1},{slot.part * slot.lanes + 1}"


def _text_index(ports: Ports, node: Ints, slot: Ints) -> Ints:
    """Return which of the port texts belongs to each slot: a NIC's depends on which of its machine's it is."""
    if not ports.topology.planes:
        return slot
    of_host = len(ports.slots) + node % ports.topology.nics_per_host * ports.nic_ports + slot - ports.first[0]
    return np.where(node < ports.topology.nics, of_host, slot)


def _tails(cables: Cables) -> tuple[Objects, Ints]:
    """Return the texts `plane,kind,gbps,length_m` that there are, and which each cable has."""
    topology, link = cables.topology, cables.link
    columns: list[Any] = [
        topology.link_plane[link],
        topology.link_tier[link],
        topology.link_rate[link],
        cables.length_mm,
    ]
    first, code = row_codes(columns)
    texts = [
        f"{plane},{LinkTier(tier).name.lower()},{rate / 1e9:g},{millimetres / 1000:g}"
        for plane, tier, rate, millimetres in zip(*(column[first].tolist() for column in columns), strict=True)
    ]
    return _objects(texts), code


def row_codes(columns: Sequence[Any]) -> tuple[Ints, Ints]:
    """Number the distinct rows of some columns: return where each is first met, and every row's number."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, index = np.unique(column, return_inverse=True)
        code = code * len(values) + index
    _, first, code = np.unique(code, return_index=True, return_inverse=True)
    return first, code


def _objects(texts: list[str]) -> Objects:
    found = np.empty(len(texts), dtype=object)
    found[:] = texts
    return found
