"""Rack elevations: what stands at which height of every rack, as CSV, as text for one rack, as SVG by row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape

from openmrc.errors import ConfigError
from openmrc.fabric.cabling.placement import Rack, RackPlacement

COLUMNS = ("device", "rack", "unit", "units", "kind", "site", "row", "position")
_UNIT, _WIDTH, _GAP, _HEAD, _FOOT = 14, 92, 24, 32, 36  # pixels
_ON_A_LINE = 16  # racks
_FILL = {"machine": "#dfe8f3", "T0": "#cfe3d4", "T1": "#f3e3c7", "T2": "#ead3e2"}
_OTHER = "#e5e5e5"


@dataclass(frozen=True)
class Mounted:
    """Hold one device in its rack."""

    name: str
    kind: str  # machine, T0, T1, ...
    unit: int  # the lowest
    units: int


def mounted(placement: RackPlacement) -> list[list[Mounted]]:
    """Return what stands in each rack, from the lowest unit up."""
    topology = placement.topology
    found: list[list[Mounted]] = [[] for _ in placement.racks]
    nodes = [*range(0, topology.nics, topology.nics_per_host), *range(topology.nics, topology.nodes)]
    for node in nodes:
        kind = "machine" if node < topology.nics else f"T{int(topology.node_tier[node])}"
        each = Mounted(placement.device(node), kind, int(placement.unit[node]), placement.height(node))
        found[int(placement.rack[node])].append(each)
    return found


def csv_lines(placement: RackPlacement) -> Iterator[str]:
    """Yield the devices of all racks as CSV lines, header first."""
    yield ",".join(COLUMNS)
    for rack, devices in zip(placement.racks, mounted(placement), strict=True):
        for each in devices:
            spot = f"{rack.site},{rack.row},{rack.position}"
            yield f"{each.name},{rack.name},{each.unit},{each.units},{each.kind},{spot}"


def text(placement: RackPlacement, name: str) -> str:
    """Draw one rack in characters, the highest unit first."""
    names = [rack.name for rack in placement.racks]
    if name not in names:
        raise ConfigError(f"no rack is called {name!r}; they are {names[0]} to {names[-1]}")
    devices = mounted(placement)[names.index(name)]
    at = {unit: each for each in devices for unit in range(each.unit, each.unit + each.units)}
    width = max([len(each.name) for each in devices] + [8])
    lines = [f"{name}", "     +" + "-" * (width + 2) + "+"]
    for unit in range(placement.plant.rack_units, 0, -1):
        each = at.get(unit)
        top = each is not None and unit == each.unit + each.units - 1
        label = each.name if each is not None and top else "|" if each is not None else ""
        lines.append(f"{unit:>4} | {label:<{width}} |")
    return "\n".join([*lines, lines[1]])


def svg_rows(placement: RackPlacement) -> Iterator[tuple[str, str]]:
    """Yield (file name, SVG) for every row of racks, as seen from the front."""
    rows: dict[tuple[int, int], list[tuple[Rack, list[Mounted]]]] = defaultdict(list)
    for rack, devices in zip(placement.racks, mounted(placement), strict=True):
        rows[rack.site, rack.row].append((rack, devices))
    for (site, row), racks in sorted(rows.items()):
        yield f"site{site}-row{row:+04d}.svg", _svg(placement, f"site {site}, row {row:+d}", racks)


def _svg(placement: RackPlacement, title: str, racks: list[tuple[Rack, list[Mounted]]]) -> str:
    """Draw racks from left to right, some on a line."""
    height = placement.plant.rack_units * _UNIT
    lines, step = -(-len(racks) // _ON_A_LINE), height + _FOOT
    wide, high = _GAP + min(len(racks), _ON_A_LINE) * (_WIDTH + _GAP), _HEAD + lines * step
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}"'
        ' font-family="sans-serif" font-size="11">',
        f'<rect width="{wide}" height="{high}" fill="white"/>',
        f'<text x="{_GAP}" y="18" font-size="14">{escape(f"{placement.topology.fabric.name}: {title}")}</text>',
    ]
    for number, (rack, devices) in enumerate(racks):
        line, column = divmod(number, _ON_A_LINE)
        parts += _rack(_GAP + column * (_WIDTH + _GAP), _HEAD + line * step, height, rack, devices)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _rack(left: int, top: int, height: int, rack: Rack, devices: list[Mounted]) -> Iterator[str]:
    yield f'<rect x="{left}" y="{top}" width="{_WIDTH}" height="{height}" fill="#fafafa" stroke="#444"/>'
    for unit in range(1, height // _UNIT + 1, 4):
        y = top + height - unit * _UNIT + 10
        yield f'<text x="{left - 4}" y="{y}" text-anchor="end" font-size="8" fill="#777">{unit}</text>'
    for each in devices:
        y = top + height - (each.unit - 1 + each.units) * _UNIT
        fill = _FILL.get(each.kind, _OTHER)
        yield (
            f'<rect x="{left + 1}" y="{y}" width="{_WIDTH - 2}" height="{each.units * _UNIT}" fill="{fill}"'
            ' stroke="#888" stroke-width="0.7"/>'
        )
        middle = y + each.units * _UNIT / 2 + 3.5
        yield f'<text x="{left + _WIDTH / 2:g}" y="{middle:g}" text-anchor="middle">{escape(each.name)}</text>'
    yield f'<text x="{left + _WIDTH / 2:g}" y="{top + height + 16}" text-anchor="middle">{escape(rack.name)}</text>'
