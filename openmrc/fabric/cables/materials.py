"""The bill of materials: machines, NICs, switches, transceivers and cables.

Watts and prices come from the parts file if it lists the part, so the bill of a planned fabric costs what its plan
says.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from openmrc.fabric.cables.listing import COPPER, Cables, cage_numbers, row_codes
from openmrc.fabric.model.parts import Parts
from openmrc.fabric.model.topology import LinkTier

COLUMNS = ("part", "where", "description", "length_m", "count", "watts_each", "watts", "cost_each", "cost")
_JOINED = {
    LinkTier.HOST: "NIC - T0",
    LinkTier.FABRIC: "T0 - T1",
    LinkTier.CORE: "T1 - T2",
    LinkTier.LONG: "site - site",
}


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
        watts, cost = (None if each is None else each * self.count for each in (self.watts_each, self.cost_each))
        numbers = [self.length_m, self.count, self.watts_each, watts, self.cost_each, cost]
        return [self.part, self.where, self.description, *("" if each is None else f"{each:.10g}" for each in numbers)]


def bill(cables: Cables, parts: Parts) -> list[Item]:
    topology = cables.topology
    machines = [
        Item("machine", "", "", topology.nics // topology.nics_per_host),
        Item("NIC", "machine", f"{topology.nics_per_host} a machine", topology.nics),
    ]
    return [*machines, *_switches(cables, parts), *_transceivers(cables, parts), *_cables(cables, parts)]


def csv_text(items: list[Item]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *(item.cells() for item in items)])
    return text.getvalue()


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
        owners = ("NIC" if tier < 0 else f"T{tier}" for tier in tiers)
        found.update((owner, name) for owner, name, medium in zip(owners, names, mediums, strict=True) if medium)
    for (owner, name), count in sorted(found.items()):
        known = name.startswith(f"{parts.optic.gbps:g}G-{cables.topology.fabric.plant.optics[0].name}")
        watts, cost = (parts.optic.watts, parts.optic.cost) if known else (None, None)
        yield Item("transceiver", owner, name, count, None, watts, cost)


def _cables(cables: Cables, parts: Parts) -> Iterator[Item]:
    """Count cables by what they join, rate, medium and length; lines between sites and copper have no known price."""
    columns: list[Any] = [
        cables.topology.link_tier[cables.link],
        cables.ports.column("speed")[cables.slots()[0]],
        cables.medium,
        cables.length_mm,
    ]
    first, code = row_codes(columns)
    counts = np.bincount(code, minlength=len(first)).tolist()
    for row, count in zip(first.tolist(), counts, strict=True):
        tier, gbps, medium, length = (int(column[row]) for column in columns)
        is_priced = medium != COPPER and tier != LinkTier.LONG
        cost = parts.fibre.cost * gbps / parts.optic.gbps if is_priced else None
        what = f"{gbps}G {'copper' if medium == COPPER else cables.topology.fabric.plant.optics[medium - 1].name}"
        yield Item("cable", _JOINED[LinkTier(tier)], what, count, length / 1000, None, cost)
