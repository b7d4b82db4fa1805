"""The bill of materials: switches, transceivers, cables by length and kind, racks.

A cage with cables holds one transceiver. If all ports of one cage lead to one other cage, one straight cable connects
them; otherwise each port has its own leg (of a fan-out cable or a shuffle panel). Watts and prices come from the parts
file if it lists the part: the switch of that capacity, the optic of that rate and of the plant's shortest reach, and
the fibre of a pair of such optics, of which a leg takes its share.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from openmrc.fabric.cabling.cables import COPPER, Cables, row_codes
from openmrc.fabric.model.parts import Parts
from openmrc.fabric.model.shape import Ints

COLUMNS = ("part", "where", "description", "length_m", "count", "watts_each", "watts", "cost_each", "cost")


@dataclass(frozen=True)
class Item:
    """One line of the bill, without watts or cost if the parts file does not list them."""

    part: str
    where: str
    description: str
    count: int
    length_m: float | None = None
    watts_each: float | None = None
    cost_each: float | None = None

    def cells(self) -> list[str]:
        """Return the line's cells."""
        numbers = [self.length_m, self.count, self.watts_each, _times(self.watts_each, self.count), self.cost_each]
        numbers.append(_times(self.cost_each, self.count))
        return [self.part, self.where, self.description, *("" if each is None else f"{each:.10g}" for each in numbers)]


def _times(each: float | None, count: int) -> float | None:
    return None if each is None else each * count


def bill(cables: Cables, parts: Parts) -> list[Item]:
    """Return the bill of materials."""
    return [*_machines(cables), *_switches(cables, parts), *_transceivers(cables, parts), *_cables(cables, parts),
            *_racks(cables)]  # fmt: skip


def csv_text(items: list[Item]) -> str:
    """Write a bill as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *(item.cells() for item in items)])
    return text.getvalue()


def _machines(cables: Cables) -> Iterator[Item]:
    topology = cables.topology
    yield Item("machine", "", "", topology.nics // topology.nics_per_host)
    yield Item("NIC", "machine", f"{topology.nics_per_host} a machine", topology.nics)


def _switches(cables: Cables, parts: Parts) -> Iterator[Item]:
    topology, plant = cables.topology, cables.topology.fabric.plant
    tbps = plant.cages * plant.lanes * plant.lane_gbps / 1000
    model = next((switch for switch in parts.switches if abs(switch.tbps - tbps) < 1e-6), None)
    watts, cost = (model.watts, model.cost) if model else (None, None)
    for tier, count in sorted(Counter(topology.node_tier[topology.nics :].tolist()).items()):
        yield Item("switch", f"T{tier}", f"{tbps:g}T", count, None, watts, cost)


def _transceivers(cables: Cables, parts: Parts) -> Iterator[Item]:
    """Count cages with cables: by the name of their module, and what they are in."""
    found: Counter[tuple[str, str]] = Counter()
    for (node, _), slot, reach, cage in zip(
        cables.ends(), cables.slots(), (cables.a_reach, cables.b_reach), cage_numbers(cables), strict=True
    ):
        _, first = np.unique(cage, return_index=True)
        tiers = cables.topology.node_tier[node[first]].tolist()
        names = cables.modules[slot[first], reach[first]].tolist()
        mediums = reach[first].tolist()
        found.update((_owner(tier), name) for tier, name, medium in zip(tiers, names, mediums, strict=True) if medium)
    for (owner, name), count in sorted(found.items()):
        known = name.startswith(f"{parts.optic.gbps:g}G-{cables.topology.fabric.plant.optics[0].name}")
        watts, cost = (parts.optic.watts, parts.optic.cost) if known else (None, None)
        yield Item("transceiver", owner, name, count, None, watts, cost)


def _owner(tier: int) -> str:
    return "NIC" if tier < 0 else f"T{tier}"


def cage_numbers(cables: Cables) -> tuple[Ints, Ints]:
    """Return a number for the cage at either end of each cable."""
    cage = cables.ports.column("cage")
    width = int(cage.max(initial=0)) + 1
    (a, _), (b, _) = cables.ends()
    a_slot, b_slot = cables.slots()
    return a * width + cage[a_slot], b * width + cage[b_slot]


def _cables(cables: Cables, parts: Parts) -> Iterator[Item]:
    """Count straight cables and legs, by medium, rate and length."""
    a_cage, b_cage = cage_numbers(cables)
    straight = straight_cables(a_cage, b_cage)
    speed = cables.ports.column("speed")[cables.slots()[0]]
    _, first, of_cage = np.unique(a_cage, return_index=True, return_inverse=True)
    is_first = np.zeros(len(cables), dtype=bool)  # a straight cable is counted once
    is_first[first] = True
    counted = np.flatnonzero(~straight | is_first)
    rate = np.where(straight, speed * np.bincount(of_cage)[of_cage], speed)
    columns = [column[counted] for column in (straight, cables.medium, rate, cables.length_mm)]
    for (is_straight, medium, gbps, length), count in _counted(columns):
        kind = "copper" if medium == COPPER else f"fibre, {cables.topology.fabric.plant.optics[medium - 1].name}"
        each = None if medium == COPPER else parts.fibre.cost * gbps / parts.optic.gbps
        what = f"{gbps}G {'straight' if is_straight else 'leg'}, {kind}"
        yield Item("cable", "", what, count, length / 1000, None, each)


def _counted(columns: list[Any]) -> Iterator[tuple[list[int], int]]:
    """Yield the distinct rows, and how often each is there."""
    first, code = row_codes(columns)
    for row, count in zip(first.tolist(), np.bincount(code, minlength=len(first)).tolist(), strict=True):
        yield [int(column[row]) for column in columns], count


def straight_cables(a_cage: Ints, b_cage: Ints) -> npt.NDArray[np.bool_]:
    """Tell which links run in a cable that joins exactly two cages."""
    return _partners(a_cage, b_cage) & _partners(b_cage, a_cage)


def _partners(cage: Ints, other: Ints) -> npt.NDArray[np.bool_]:
    """Tell whether all links of a cage lead to the same other cage."""
    _, own = np.unique(cage, return_inverse=True)
    least = np.full(int(own.max(initial=0)) + 1, np.iinfo(np.int64).max)
    most = np.full(len(least), -1)
    np.minimum.at(least, own, other)
    np.maximum.at(most, own, other)
    same: npt.NDArray[np.bool_] = (least == most)[own]
    return same


def _racks(cables: Cables) -> Iterator[Item]:
    placement = cables.placement
    hosts = len(np.unique(placement.rack[: cables.topology.nics]))
    units = f"{placement.plant.rack_units} U"
    yield Item("rack", "machines", units, hosts)
    yield Item("rack", "switches", units, len(placement.racks) - hosts)
