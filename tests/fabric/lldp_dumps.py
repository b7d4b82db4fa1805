"""LLDP dumps of a fabric's switches as three systems print them, right or with cables in the wrong place.

The first two forms were printed by lldpctl 1.0.16; SONiC's has the keys of `LLDP_ENTRY_TABLE`, NVUE's those of its
reference.
"""

from __future__ import annotations

import json
from typing import Any

from openmrc.fabric.cables.placement import device_name
from openmrc.fabric.cables.ports import Ports, place_ports
from openmrc.fabric.model.topology import Topology

End = tuple[int, int]  # node, port
Heard = list[tuple[str, str, str]]  # interface, system, its port


def plugged(topology: Topology) -> dict[End, End]:
    """Return the port at the other end of every port, as planned."""
    found = {}
    for link in range(topology.links):
        back = int(topology.link_reverse[link])
        ends = [(int(topology.link_source[each]), int(topology.link_port[each])) for each in (link, back)]
        found[ends[0]] = ends[1]
    return found


def exchange(cables: dict[End, End], one: End, two: End) -> None:
    """Let the plugs of two ports change places."""
    far = cables[one], cables[two]
    cables[one], cables[two] = far[1], far[0]
    cables[far[0]], cables[far[1]] = two, one


def move(cables: dict[End, End], plug: End, to: End) -> None:
    """Take a plug out and put it into a free port."""
    far = cables.pop(plug)
    cables[to], cables[far] = far, to


def pull(cables: dict[End, End], plug: End) -> None:
    del cables[cables.pop(plug)]


def heard(topology: Topology, cables: dict[End, End], scheme: str = "sonic") -> dict[str, Heard]:
    """Return what every switch hears, by its name."""
    ports = place_ports(topology)
    names = ports.names(scheme)
    found: dict[str, Heard] = {topology.name(node): [] for node in range(topology.nics, topology.nodes)}
    for (node, port), (there, far) in sorted(cables.items()):
        if node >= topology.nics:
            far_name = interface(ports, names, there, far)
            here = interface(ports, names, node, port)
            found[topology.name(node)].append((here, device_name(topology, there), far_name))
    return found


def interface(ports: Ports, names: list[str], node: int, port: int) -> str:
    if node < ports.topology.nics:
        return ports.nic_interface(node, port)
    return names[int(ports.first[ports.model[node]]) + port]


def as_lldpctl(lines: Heard, mac: bool = True) -> str:
    """Print as `lldpctl -f json`; by default a port's ID is its MAC address, and its description names it."""
    entries = []
    for name, system, port in lines:
        identity = {"type": "mac", "value": "e6:ed:0c:b3:56:44"} if mac else {"type": "ifname", "value": port}
        chassis = {system: {"id": {"type": "mac", "value": "e6:ed:0c:b3:56:44"}, "descr": "Debian GNU/Linux 12",
                            "capability": [{"type": "Bridge", "enabled": False}]}}  # fmt: skip
        body = {"via": "LLDP", "rid": "1", "age": "0 day, 00:00:03", "chassis": chassis,
                "port": {"id": identity, "descr": port, "ttl": "120"}}  # fmt: skip
        entries.append({name: body})
    interfaces = entries[0] if len(entries) == 1 else entries
    return json.dumps({"lldp": {"interface": interfaces} if entries else {}})


def as_json0(lines: Heard) -> str:
    """Print as `lldpctl -f json0`."""
    entries: list[dict[str, Any]] = [
        {"name": name, "via": "LLDP", "rid": "1", "age": "0 day, 00:00:03",
         "chassis": [{"id": [{"type": "mac", "value": "e6:ed:0c:b3:56:44"}], "name": [{"value": system}]}],
         "port": [{"id": [{"type": "ifname", "value": port}], "descr": [{"value": port}], "ttl": [{"value": "120"}]}]}
        for name, system, port in lines
    ]  # fmt: skip
    return json.dumps({"lldp": [{"interface": entries}]})


def as_sonic(lines: Heard) -> str:
    """Print as `sonic-db-dump -n APPL_DB -k 'LLDP_ENTRY_TABLE:*' -y`."""
    found = {}
    for name, system, port in lines:
        fields = {"lldp_rem_sys_name": system, "lldp_rem_port_id": port, "lldp_rem_port_desc": "uplink",
                  "lldp_rem_port_id_subtype": "5", "lldp_rem_chassis_id": "e6:ed:0c:b3:56:44"}  # fmt: skip
        found[f"LLDP_ENTRY_TABLE:{name}"] = {"expireat": 1763700000.1, "ttl": -0.001, "type": "hash", "value": fields}
    return json.dumps(found)


def as_nvue(lines: Heard) -> str:
    """Print as `nv show interface lldp -o json`."""
    found: dict[str, Any] = {"eth0": {"type": "eth", "lldp": {}}}
    for name, system, port in lines:
        chassis = {"chassis-id": "e6:ed:0c:b3:56:44", "system-name": system}
        neighbour = {"chassis": chassis, "port": {"name": port, "description": port, "type": "ifname"}}
        found[name] = {"type": "swp", "lldp": {"neighbor": {system: neighbour}}}
    return json.dumps(found)
