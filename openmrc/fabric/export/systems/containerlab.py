"""containerlab: the whole fabric as one topology of Linux containers, each configured by the Linux export.

Fields: the topology file's reference ("Nodes": kind, image, binds, exec; "Links": endpoints), and its JSON schema
`schemas/clab.schema.json`. The image has iproute2, tc and sysctl, which the usual small images have not; containers
share the host's kernel, so that has to be 6.1 or newer.
"""

from __future__ import annotations

from typing import Any

import yaml

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import UsidPlan, block_text
from openmrc.fabric.export.addresses import mac, port_address
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.systems.kernel import SYSCTLS, blackhole
from openmrc.fabric.export.systems.linux import emit as linux_files
from openmrc.fabric.export.view import containerlab_port, views
from openmrc.fabric.model.topology import Topology

MOST_NODES = 500
IMAGE = "nicolaka/netshoot:v0.13"  # Alpine 3.20: iproute2 6.9 with tc, sysctl, tcpdump, tshark
_BOUND = ("links", "sysctl", "batch", "tc")
_COMMANDS = {
    "links": "ip -batch /mrc.links", "sysctl": "sysctl -p /mrc.sysctl", "batch": "ip -6 -batch /mrc.batch",
    "tc": "tc -batch /mrc.tc",
}  # fmt: skip


def emit_all(plan: UsidPlan, options: ExportOptions) -> dict[str, str]:
    """Return the topology file and the files it binds."""
    topology = plan.topology
    if topology.nodes > MOST_NODES:
        raise ConfigError(f"{topology.nodes} containers are more than a host carries; {MOST_NODES} at most")
    files: dict[str, dict[str, str]] = {
        topology.name(nic): _nic_files(plan, nic, options) for nic in range(topology.nics)
    }
    for switch in views(plan, options):
        made = linux_files(switch, containerlab_port)
        files[switch.name] = {ending: made[ending] for ending in _BOUND}
    links = [
        {"endpoints": _ends(topology, link)} for link in range(topology.links) if link < topology.link_reverse[link]
    ]
    described = {
        "name": topology.fabric.name,
        "topology": {
            "defaults": {"image": IMAGE, "kind": "linux"},
            "nodes": {name: _node(name, own) for name, own in files.items()},
            "links": links,
        },
    }
    text = yaml.safe_dump(described, sort_keys=False, width=120)
    flat = {f"{name}.{ending}": text for name, own in files.items() for ending, text in own.items()}
    return {**flat, f"{topology.fabric.name}.clab.yml": text}


def _node(name: str, files: dict[str, str]) -> dict[str, Any]:
    endings = [ending for ending in _BOUND if ending in files]
    return {
        "binds": [f"{name}.{ending}:/mrc.{ending}:ro" for ending in endings],
        "exec": [_COMMANDS[ending] for ending in endings],
    }


def _ends(topology: Topology, link: int) -> list[str]:
    ends = []
    for each in (link, int(topology.link_reverse[link])):
        ends.append(f"{topology.name(int(topology.link_source[each]))}:eth{int(topology.link_port[each]) + 1}")
    return ends


def _nic_files(plan: UsidPlan, nic: int, options: ExportOptions) -> dict[str, str]:
    """A NIC sends its plane's block out of the plane's port, and owns the last uSID of each plane."""
    topology = plan.topology
    links, lines = [f"# {topology.name(nic)}"], [f"# {topology.name(nic)}"]
    for plane, sids in enumerate(plan.planes):
        device = f"eth{plane + 1}"
        t0, port = sids.shape.first_t0 + sids.shape.t0_of(nic), sids.shape.t0_port_of(nic)
        gateway = port_address(topology, plane, t0, port).partition("/")[0]
        links.append(f"link set dev {device} address {mac(topology, plane, nic)} mtu {options.mtu} up")
        lines += [
            f"address replace {port_address(topology, plane, nic, plane)} dev {device} nodad",
            f"address replace {plan.nic_address(plane, nic)}/128 dev lo nodad",
            f"address replace {plan.identity(plane, nic)}/128 dev lo nodad",
            f"route replace {block_text(sids.block)} via {gateway} dev {device}",
            blackhole(block_text(sids.block)),
        ]
    sysctls = "\n".join(line for line in SYSCTLS if "forwarding" not in line) + "\n"
    return {"links": "\n".join(links) + "\n", "sysctl": sysctls, "batch": "\n".join(lines) + "\n"}
