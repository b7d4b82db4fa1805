"""Files for NetBox's bulk importers: what must be there first, then devices, interfaces and cables.

Columns and values are those of NetBox 4 (github.com/netbox-community/netbox): `netbox/dcim/forms/bulk_import.py`
(SiteImportForm, ManufacturerImportForm, DeviceRoleImportForm, RackImportForm, DeviceImportForm, InterfaceImportForm,
CableImportForm) and `netbox/dcim/choices.py`; device types are YAML as the community's devicetype-library has them.
Import in the order of the files' numbers, or let `netbox_push` create the rows. Interfaces come from their own file, so
the device types have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from openmrc.fabric.cabling.cables import COPPER, Cables
from openmrc.fabric.cabling.placement import device_name

MANUFACTURER = "openmrc plan"
_HOST, _SWITCH = "machine", "switch"
# Ethernet speeds in Gb/s to values of InterfaceTypeChoices; `other` where there is none.
_TYPES = {
    10: "10gbase-x-sfpp",
    25: "25gbase-x-sfp28",
    40: "40gbase-x-qsfpp",
    50: "50gbase-x-sfp56",
    100: "100gbase-x-qsfp28",
    200: "200gbase-x-qsfp56",
    400: "400gbase-x-osfp",
    800: "800gbase-x-osfp",
}
_KBPS = 1_000_000  # of a Gb/s, NetBox's unit of interface speed
_AT_ONCE = 1 << 16  # rows
PART = 2_500_000  # characters of a file; Django, and so NetBox, takes forms of up to 2.5 MiB


@dataclass(frozen=True)
class NetboxNaming:
    """What things are called in NetBox."""

    site: str = "fabric"
    scheme: str = "sonic"  # of interfaces
    prefix: str = ""  # of devices: two fabrics would both have a p0-t0-00
    cable_sites: bool = True  # name the site of each end of a cable; importers before these columns refuse them


def files(cables: Cables, naming: NetboxNaming) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield (file name, blocks of text); long tables in parts that a form takes, each with its head."""
    site = naming.site
    yield "1-sites.csv", _sites(cables, site)
    yield "2-manufacturers.csv", [f"name,slug\n{MANUFACTURER},{slug(MANUFACTURER)}\n"]
    yield "3-device-roles.csv", _roles(cables)
    yield "4-device-types.yaml", _device_types(cables)
    yield from _parts("5-racks", _racks(cables, site))
    yield from _parts("6-devices", _devices(cables, naming))
    yield from _parts("7-interfaces", _interfaces(cables, naming))
    yield from _parts("8-cables", _cables(cables, naming))


def _parts(name: str, blocks: Iterator[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield a table as NAME.csv, or as NAME.001.csv and so on."""
    part: list[str] = []
    head, size, number = next(blocks), 0, 0
    for line in (line for block in blocks for line in block.splitlines(keepends=True)):
        if part and size + len(line) > PART - len(head):
            number += 1
            yield f"{name}.{number:03}.csv", [head, *part]
            part, size = [], 0
        part.append(line)
        size += len(line)
    yield (f"{name}.{number + 1:03}.csv" if number else f"{name}.csv"), [head, *part]


def slug(name: str) -> str:
    """Return the slug of a name."""
    return name.lower().replace(" ", "-").replace(".", "-")


def type_slug(model: str) -> str:
    """Return the slug of a device type of ours."""
    return f"{slug(MANUFACTURER)}-{slug(model)}"


def _site_name(cables: Cables, site: str, number: int) -> str:
    return f"{site}-{number}" if cables.topology.fabric.sites else site


def _sites(cables: Cables, site: str) -> Iterator[str]:
    yield "name,slug,status\n"
    for number in sorted({rack.site for rack in cables.placement.racks}):
        name = _site_name(cables, site, number)
        yield f"{name},{slug(name)},planned\n"


def _roles(cables: Cables) -> Iterator[str]:
    yield "name,slug,color\n"
    yield f"{_HOST},{_HOST},2f6a31\n"
    for tier in sorted(set(cables.topology.node_tier[cables.topology.nics :].tolist())):
        yield f"T{tier},t{tier},3f51b5\n"


def _device_types(cables: Cables) -> Iterator[str]:
    plant = cables.topology.fabric.plant
    for kind, units in ((_HOST, plant.host_units), (_SWITCH, plant.switch_units)):
        model = _model(cables, kind)
        yield f"---\nmanufacturer: {MANUFACTURER}\nmodel: {model}\nslug: {type_slug(model)}\n"
        yield f"u_height: {units}\nis_full_depth: true\n"


def _model(cables: Cables, kind: str) -> str:
    plant = cables.topology.fabric.plant
    tbps = plant.cages * plant.lanes * plant.lane_gbps / 1000
    return f"{cables.topology.nics_per_host}-NIC {kind}" if kind == _HOST else f"{tbps:g}T {kind}"


def _racks(cables: Cables, site: str) -> Iterator[str]:
    yield "site,name,status,width,u_height\n"
    units = cables.placement.plant.rack_units
    for rack in cables.placement.racks:
        yield f"{_site_name(cables, site, rack.site)},{rack.name},planned,19,{units}\n"


def _devices(cables: Cables, naming: NetboxNaming) -> Iterator[str]:
    topology, placement = cables.topology, cables.placement
    yield "name,role,manufacturer,device_type,status,site,rack,position,face\n"
    nodes = [*range(0, topology.nics, topology.nics_per_host), *range(topology.nics, topology.nodes)]
    for node in nodes:
        kind = _HOST if node < topology.nics else _SWITCH
        role = _HOST if node < topology.nics else f"T{int(topology.node_tier[node])}"
        rack = placement.racks[int(placement.rack[node])]
        where = f"{_site_name(cables, naming.site, rack.site)},{rack.name},{int(placement.unit[node])},front"
        yield f"{naming.prefix}{placement.device(node)},{role},{MANUFACTURER},{_model(cables, kind)},planned,{where}\n"


def _interfaces(cables: Cables, naming: NetboxNaming) -> Iterator[str]:
    """Yield every port that has a cable."""
    yield "device,name,type,speed,enabled,description\n"
    names, speeds = cables.ports.namer(naming.scheme), cables.ports.column("speed").tolist()
    (a, b), (called, device) = cables.ends(), _called(cables, naming.prefix)
    for (nodes, ports), slots, (others, other_ports) in zip((a, b), cables.slots(), (b, a), strict=True):
        for which in _blocks(len(nodes)):
            rows = zip(*(part[which].tolist() for part in (nodes, ports, slots, others, other_ports)), strict=True)
            yield "".join(
                f"{device[node]},{names(node, port, slot)},{_TYPES.get(speeds[slot], 'other')},"
                f"{speeds[slot] * _KBPS},true,{called[other]} port {other_port}\n"
                for node, port, slot, other, other_port in rows
            )


def _cables(cables: Cables, naming: NetboxNaming) -> Iterator[str]:
    ends = ("site", "device", "type", "name") if naming.cable_sites else ("device", "type", "name")
    columns = [f"side_{side}_{end}" for side in "ab" for end in ends]
    yield ",".join([*columns, "type,status,label,length,length_unit\n"])
    names, (called, device) = cables.ports.namer(naming.scheme), _called(cables, naming.prefix)
    if naming.cable_sites:
        racks, rack_of = cables.placement.racks, cables.placement.rack
        sites = [_site_name(cables, naming.site, racks[int(rack)].site) for rack in rack_of]
        device = [f"{site},{name}" for site, name in zip(sites, device, strict=True)]
    (a, a_port), (b, b_port) = cables.ends()
    rows = (a, a_port, b, b_port, *cables.slots(), cables.medium, cables.length_mm)
    for which in _blocks(len(cables)):
        yield "".join(
            f"{device[a]},dcim.interface,{names(a, a_port, a_slot)},"
            f"{device[b]},dcim.interface,{names(b, b_port, b_slot)},"
            f"{'dac-passive' if medium == COPPER else 'smf-os2'},planned,"
            f"{called[a]}:{a_port}={called[b]}:{b_port},{millimetres / 1000:g},m\n"
            for a, a_port, b, b_port, a_slot, b_slot, medium, millimetres in zip(
                *(column[which].tolist() for column in rows), strict=True
            )
        )


def _called(cables: Cables, prefix: str) -> tuple[list[str], list[str]]:
    """Return the names of all nodes, and of the devices that they are in, as NetBox knows them."""
    topology = cables.topology
    nodes = range(topology.nodes)
    return [topology.name(node) for node in nodes], [prefix + device_name(topology, node) for node in nodes]


def _blocks(size: int) -> Iterator[slice]:
    return (slice(begin, begin + _AT_ONCE) for begin in range(0, size, _AT_ONCE))
