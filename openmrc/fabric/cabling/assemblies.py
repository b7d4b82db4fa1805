"""Cables as they are ordered: trunks, fan-out cables, and shuffle boxes with their trunks.

A cage has one connector, so what its ports lead to decides what is plugged into it. Cages that ports join, directly or
through others, form a group; each group is one assembly:

* two cages: a straight cable, a trunk;
* one cage and several others: a fan-out cable, a connector at the one and a leg for each other;
* several on both sides, such as eight T0s and eight T1s: a shuffle box, and a trunk from each cage to it. The box is
  counted in the rack of its first, lowest device; it takes no rack units of the plan.

Connectors: a module of parallel lanes (DR) has a pair of fibres for each lane, one with all lanes of a port on one pair
(`duplex`: FR, LR and so on) a pair for each port. One pair is LC duplex, up to 6 pairs MPO-12, up to 8 MPO-16, up to 12
MPO-24; MPO of single-mode fibre is angled (APC), and cables are unpinned, because modules have the pins.

Polarity (ANSI/TIA-568.3, method B): a trunk reverses its fibres, key up to key up, so that what sends meets what
receives. With two trunks in a row the box has to reverse them a third time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from openmrc.fabric.cabling.cables import COPPER, Cables, Objects, cage_numbers, length_classes
from openmrc.fabric.cabling.placement import device_name
from openmrc.fabric.model.shape import Ints
from openmrc.fabric.model.topology import LinkTier

COLUMNS = (
    "assembly", "kind", "end", "node", "device", "rack", "unit", "cage", "connector", "ports", "fibres", "gbps",
    "polarity", "length_m",
)  # fmt: skip
_MPO = ((6, "MPO-12"), (8, "MPO-16"), (12, "MPO-24"))  # pairs, connector
_AT_ONCE = 1 << 16


class Kind(IntEnum):
    """What a group of cages is joined by."""

    TRUNK = 0
    FAN_OUT = 1
    SHUFFLE = 2
    LOOSE = 3  # copper that would have to be shuffled: no such assembly is made

    @property
    def word(self) -> str:
        """Return the name in documents."""
        return ("trunk", "fan-out", "shuffle", "single copper legs")[self]


@dataclass(frozen=True)
class Assemblies:
    """Columns by cage, in the order of their assemblies, and by assembly; lists, as they are read one by one."""

    cables: Cables
    of_cable: Ints  # assembly of each cable; -1: a line between sites, which is not ordered as an assembly
    node: list[int]  # by cage
    cage: list[int]
    assembly: list[int]
    ports: list[int]  # ports in use
    pairs: list[int]  # of fibres in use
    connector_pairs: list[int]  # of the module
    gbps: list[int]
    length_mm: list[int]  # of the cable that is plugged in here
    first: list[int]  # by assembly: its first cage
    kind: list[int]
    is_copper: list[int]
    lower: list[int]  # how many cages are the lower end of their cables
    upper: list[int]

    def __len__(self) -> int:
        return len(self.first)

    def name(self, assembly: int) -> str:
        """Return the name: that of the first cage, which no other assembly has."""
        row = self.first[assembly]
        return f"{self.cables.topology.name(self.node[row])}.{self.cage[row] + 1}"

    def ends(self, assembly: int) -> range:
        """Return the rows of an assembly's cages."""
        after = self.first[assembly + 1] if assembly + 1 < len(self) else len(self.node)
        return range(self.first[assembly], int(after))

    def connector(self, row: int) -> str:
        """Return what is plugged into a cage."""
        return "DAC" if self.is_copper[self.assembly[row]] else connector(self.connector_pairs[row])

    def names_by_cable(self) -> Objects:
        """Return the name of each cable's assembly; empty for a line between sites."""
        names = np.array([*self.names, ""], dtype=object)
        return names[self.of_cable]

    def counts(self) -> dict[str, int]:
        """Count assemblies by kind."""
        counted = Counter(self.kind)
        return {Kind(kind).word: counted[kind] for kind in sorted(counted)}

    @cached_property
    def names(self) -> list[str]:
        """Return all names."""
        return [self.name(each) for each in range(len(self))]


def connector(pairs: int) -> str:
    """Return the connector of a module with so many pairs of fibres."""
    if pairs == 1:
        return "LC duplex"
    kind = next((name for most, name in _MPO if pairs <= most), None)
    return f"{kind} APC" if kind else f"{-(-pairs // 8)} x MPO-16 APC"


def shuffle_name(lower: int, upper: int, cages: int) -> str:
    """Return the size of a box: `8 x 8`, or the number of its trunks if some cages are on both sides."""
    return f"{lower} x {upper}" if lower + upper == cages else f"of {cages}"


def assemble(cables: Cables) -> Assemblies:
    """Group the cages, and name what joins each group."""
    topology = cables.topology
    local = topology.link_tier[cables.link] != LinkTier.LONG
    a_cage, b_cage = (each[local] for each in cage_numbers(cables))
    cages, index = np.unique(np.concatenate([a_cage, b_cage]), return_inverse=True)
    a, b = index[: len(a_cage)], index[len(a_cage) :]
    label = _groups(a, b, len(cages))
    order = np.argsort(label, kind="stable")
    _, first, of_cage = np.unique(label[order], return_index=True, return_inverse=True)
    place = np.argsort(order)  # from cage to row
    a, b = place[a], place[b]
    width = int(cables.ports.column("cage").max(initial=0)) + 1
    node, cage = np.divmod(cages[order], width)
    of_cable = np.full(len(cables), -1, dtype=np.int64)
    of_cable[local] = of_cage[a]
    slot, far_slot = (each[local] for each in cables.slots())
    by_cage = _CageSums(a, b, len(cages))
    lanes = cables.ports.column("lanes")
    pairs = np.where(_is_duplex(cables)[local], 1, lanes[slot])
    module = by_cage.greatest(*(_module_pairs(cables, each, pairs) for each in (slot, far_slot)))
    is_copper = np.zeros(len(first), dtype=np.int64)
    is_copper[of_cable[local]] = cables.medium[local] == COPPER
    lower, upper = (_counted(of_cage, np.unique(each), len(first)) for each in (a, b))
    kind = _kinds(np.bincount(of_cage, minlength=len(first)), lower, upper, is_copper)
    speed = cables.ports.column("speed")[slot]
    lengths = _lengths(cables, node, of_cage, first, kind, of_cable, local)
    total = by_cage.total
    by_row = (node, cage, of_cage, total(np.ones_like(a)), total(pairs), module, total(speed), lengths)
    by_assembly = (first, kind, is_copper, lower, upper)
    return Assemblies(cables, of_cable, *(column.tolist() for column in (*by_row, *by_assembly)))


def _groups(a: Ints, b: Ints, count: int) -> Ints:
    """Return for each cage the least cage that is joined to it, directly or through others."""
    label = np.arange(count, dtype=np.int64)
    while True:
        least = np.minimum(label[a], label[b])
        found = label.copy()
        np.minimum.at(found, a, least)
        np.minimum.at(found, b, least)
        found = found[found]
        if np.array_equal(found, label):
            return label
        label = found


@dataclass(frozen=True)
class _CageSums:
    """Sums over the cables of each cage."""

    a: Ints
    b: Ints
    count: int

    def total(self, of_cable: Ints) -> Ints:
        return np.asarray(np.bincount(self.a, of_cable, self.count) + np.bincount(self.b, of_cable, self.count)).astype(
            np.int64
        )

    def greatest(self, at_a: Ints, at_b: Ints) -> Ints:
        found = np.zeros(self.count, dtype=np.int64)
        np.maximum.at(found, self.a, at_a)
        np.maximum.at(found, self.b, at_b)
        return found


def _is_duplex(cables: Cables) -> Ints:
    """Tell which cables have all lanes of a port on one pair of fibres."""
    optics = cables.topology.fabric.plant.optics
    duplex = np.array([False, *(reach.duplex for reach in optics)])
    return np.asarray(duplex[cables.medium])


def _module_pairs(cables: Cables, slot: Ints, pairs: Ints) -> Ints:
    return np.asarray(cables.ports.column("parts")[slot] * pairs)


def _counted(of_cage: Ints, rows: Ints, count: int) -> Ints:
    return np.bincount(of_cage[rows], minlength=count)


def _kinds(size: Ints, lower: Ints, upper: Ints, is_copper: Ints) -> Ints:
    is_split = (lower > 1) & (upper > 1) | (lower + upper > size)
    shuffled = np.where(is_copper, Kind.LOOSE, Kind.SHUFFLE)
    return np.where(is_split, shuffled, np.where(size == 2, Kind.TRUNK, Kind.FAN_OUT)).astype(np.int64)


def _lengths(cables: Cables, node: Ints, of_cage: Ints, first: Ints, kind: Ints, of_cable: Ints, local: Ints) -> Ints:
    """Return the length of each cage's cable: of the longest leg, or to the box in the rack of the first cage."""
    longest = np.zeros(len(first), dtype=np.int64)
    np.maximum.at(longest, of_cable[local], cables.length_mm[local])
    to_box = length_classes(
        cables.placement.length_m(node[first][of_cage], node), cables.topology.fabric.plant.lengths_m
    )
    return np.where(kind[of_cage] == Kind.SHUFFLE, to_box, longest[of_cage])


def csv_blocks(found: Assemblies) -> Iterator[str]:
    """Yield a row for each connector, and one for each box."""
    yield ",".join(COLUMNS) + "\n"
    rows: list[str] = []
    for assembly in range(len(found)):
        rows += _rows(found, assembly)
        if len(rows) > _AT_ONCE:
            yield "".join(rows)
            rows = []
    yield "".join(rows)


def _rows(found: Assemblies, assembly: int) -> Iterator[str]:
    placement, topology = found.cables.placement, found.cables.topology
    name, kind, ends = found.names[assembly], Kind(found.kind[assembly]), found.ends(assembly)
    most = max(found.ports[row] for row in ends)
    for row in ends:
        node = found.node[row]
        rack = placement.racks[int(placement.rack[node])].name
        end = "leg" if kind == Kind.FAN_OUT and found.ports[row] < most else "trunk"
        fibres = "" if found.is_copper[assembly] else 2 * found.pairs[row]
        yield (
            f"{name},{kind.word},{end},{topology.name(node)},{device_name(topology, node)},{rack},"
            f"{int(placement.unit[node])},{found.cage[row] + 1},{found.connector(row)},{found.ports[row]},"
            f"{fibres},{found.gbps[row]},{polarity(found, row)},{found.length_mm[row] / 1000:g}\n"
        )
    if kind == Kind.SHUFFLE:
        rack = placement.racks[int(placement.rack[found.node[ends[0]]])].name
        size = shuffle_name(found.lower[assembly], found.upper[assembly], len(ends))
        fibres = sum(found.pairs[row] for row in ends)
        yield f"{name},{kind.word},box {size},,,{rack},,,,{len(ends)},{fibres},,reversed,\n"


def polarity(found: Assemblies, row: int) -> str:
    """Return the polarity of the cable in a cage: of MPO type B, of LC duplex crossed (A to B)."""
    if found.is_copper[found.assembly[row]]:
        return ""
    return "A to B" if found.connector_pairs[row] == 1 else "type B"
