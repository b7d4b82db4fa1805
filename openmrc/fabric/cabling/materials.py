"""The bill of materials: switches, transceivers, cables as they are ordered (`assemblies`), racks, and spares.

A cage with cables holds one transceiver. Watts and prices come from the parts file if it lists the part: the switch of
that capacity, the optic of that rate and of the plant's shortest reach, and the fibre of a pair of such optics, of
which a slower cable takes its share and each of the two trunks at a shuffle box half.

Spares are a stated share of what is installed, of each line by itself, rounded up: a fibre of another length, or
another module, replaces none.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from openmrc.errors import ConfigError
from openmrc.fabric.cabling.assemblies import Assemblies, Kind, assemble, polarity, shuffle_name
from openmrc.fabric.cabling.cables import Cables, cage_numbers, row_codes
from openmrc.fabric.model.parts import Parts

COLUMNS = ("part", "where", "description", "length_m", "count", "spares", "watts_each", "watts", "cost_each", "cost")
SPARE_PARTS = ("switch", "transceiver", "cable", "shuffle box")  # what is kept in store


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
    spares: int = 0  # beside `count`; they cost, and draw nothing

    def cells(self) -> list[str]:
        """Return the line's cells."""
        watts, cost = _times(self.watts_each, self.count), _times(self.cost_each, self.count + self.spares)
        numbers = [self.length_m, self.count, self.spares, self.watts_each, watts, self.cost_each, cost]
        return [self.part, self.where, self.description, *("" if each is None else f"{each:.10g}" for each in numbers)]


def _times(each: float | None, count: int) -> float | None:
    return None if each is None else each * count


def bill(cables: Cables, parts: Parts, spares: Mapping[str, Fraction] | None = None) -> list[Item]:
    """Return the bill of materials; `spares` are shares of SPARE_PARTS by part."""
    items = [*_machines(cables), *_switches(cables, parts), *_transceivers(cables, parts),
             *_cables(assemble(cables), parts), *_racks(cables)]  # fmt: skip
    shares = spares or {}
    return [replace(item, spares=ceil(item.count * shares.get(item.part, 0))) for item in items]


def spare_shares(texts: Sequence[str]) -> dict[str, Fraction]:
    """Read "2%" (all parts) and "transceiver=3%"; a part that is named has its own share, in any order."""
    every, found = Fraction(0), {}
    for text in texts:
        part, _, share = text.rpartition("=")
        match = re.fullmatch(r"(\d+(?:\.\d+)?)%", share.strip())
        if match is None or part.strip() not in ("", *SPARE_PARTS):
            known = ", ".join(SPARE_PARTS)
            raise ConfigError(f"--spares {text!r}: write a share such as 2%, or PART=3% with one of {known}")
        if part:
            found[part.strip()] = Fraction(match[1]) / 100
        else:
            every = Fraction(match[1]) / 100
    return {part: found.get(part, every) for part in SPARE_PARTS}


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


class _Ordered(NamedTuple):
    """What makes two cables one line of the bill."""

    what: str
    gbps: int
    length_mm: int
    halves: int  # of the way from module to module, which the price is for; 0 for copper, whose price is not known


def _cables(found: Assemblies, parts: Parts) -> Iterator[Item]:
    """Count assemblies by connectors, fibres, rate and length; then boxes, and lines between sites."""
    counts: Counter[_Ordered] = Counter()
    boxes: Counter[str] = Counter()
    for assembly in range(len(found)):
        kind, ends = Kind(found.kind[assembly]), found.ends(assembly)
        if kind in (Kind.TRUNK, Kind.FAN_OUT):
            counts[_joined(found, ends, kind)] += 1
        else:
            counts.update(_to_box(found, row, kind) for row in ends)
        if kind == Kind.SHUFFLE:
            boxes[_box(found, assembly)] += 1
    for each, count in sorted(counts.items()):
        cost = parts.fibre.cost * each.gbps / parts.optic.gbps * each.halves / 2 if each.halves else None
        yield Item("cable", "", f"{each.gbps}G {each.what}", count, each.length_mm / 1000, None, cost)
    for what, count in sorted(boxes.items()):
        yield Item("shuffle box", "", what, count)
    yield from _lines(found)


def _joined(found: Assemblies, ends: range, kind: Kind) -> _Ordered:
    """Describe a trunk or a fan-out cable."""
    hub = max(ends, key=lambda row: found.ports[row])
    legs = Counter(found.connector(row) for row in ends if row != hub)
    gbps, length = found.gbps[hub], max(found.length_mm[row] for row in ends)
    if found.is_copper[found.assembly[hub]]:
        far = f" to {sum(legs.values())}" if kind == Kind.FAN_OUT else ""
        return _Ordered(f"copper, {kind.word}{far}", gbps, length, 0)
    far = ", ".join(name if kind == Kind.TRUNK else f"{count} {name}" for name, count in sorted(legs.items()))
    what = f"{kind.word}, {found.connector(hub)} to {far}, {_fibres(found, hub)}, {polarity(found, hub)}"
    return _Ordered(what, gbps, length, 2)


def _to_box(found: Assemblies, row: int, kind: Kind) -> _Ordered:
    """Describe a trunk from a cage to a box."""
    gbps, length = found.gbps[row], found.length_mm[row]
    if kind == Kind.LOOSE:
        legs = found.ports[row]
        return _Ordered(f"copper, {legs} single legs, of which no assembly is made", gbps, length, 0)
    what = f"trunk to box, {found.connector(row)}, {_fibres(found, row)}, {polarity(found, row)}"
    return _Ordered(what, gbps, length, 1)


def _box(found: Assemblies, assembly: int) -> str:
    ends = found.ends(assembly)
    size = shuffle_name(found.lower[assembly], found.upper[assembly], len(ends))
    sockets = Counter(found.connector(row) for row in ends)
    pairs = sum(found.pairs[row] for row in ends) // 2
    what = ", ".join(f"{count} {name}" for name, count in sorted(sockets.items()))
    return f"{size}, {what}, {pairs} pairs, reversed"


def _fibres(found: Assemblies, row: int) -> str:
    return f"{2 * found.pairs[row]} fibres OS2"


def _lines(found: Assemblies) -> Iterator[Item]:
    """Count the lines between sites, which are leased or laid, by rate and length."""
    cables = found.cables
    far = np.flatnonzero(found.of_cable < 0)
    speed = cables.ports.column("speed")[cables.slots()[0]][far]
    for (gbps, length), count in _counted([speed, cables.length_mm[far]]) if len(far) else ():
        yield Item("line", "site - site", f"{gbps}G, a pair of fibres", count, length / 1000)


def _counted(columns: list[Any]) -> Iterator[tuple[list[int], int]]:
    """Yield the distinct rows, and how often each is there."""
    first, code = row_codes(columns)
    for row, count in zip(first.tolist(), np.bincount(code, minlength=len(first)).tolist(), strict=True):
        yield [int(column[row]) for column in columns], count


def _racks(cables: Cables) -> Iterator[Item]:
    placement = cables.placement
    hosts = len(np.unique(placement.rack[: cables.topology.nics]))
    units = f"{placement.plant.rack_units} U"
    yield Item("rack", "machines", units, hosts)
    yield Item("rack", "switches", units, len(placement.racks) - hosts)
