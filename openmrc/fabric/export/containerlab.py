"""containerlab: the whole fabric as one topology of Linux containers, each configured by the Linux export."""

from __future__ import annotations

from typing import Any

import yaml

from openmrc.errors import ConfigError
from openmrc.fabric.export.linux import batch, sysctls
from openmrc.fabric.export.view import Options, containerlab_port, link_local, mac, view
from openmrc.fabric.tables import build_tables
from openmrc.fabric.topology import Topology
from openmrc.fabric.usid import UsidPlan

MOST_NODES = 500
IMAGE = "debian:stable-slim"  # any image with iproute2 6.1 or newer


def emit_all(plan: UsidPlan) -> dict[str, str]:
    """Return the topology file and the files it binds."""
    topology = plan.topology
    if topology.nodes > MOST_NODES:
        raise ConfigError(f"{topology.nodes} containers are more than a host carries; {MOST_NODES} at most")
    tables, files = build_tables(plan), {}
    nodes: dict[str, Any] = {}
    for node in range(topology.nodes):
        name = topology.name(node)
        if node < topology.nics:
            files[f"{name}.batch"] = _nic_batch(plan, node)
            files[f"{name}.sysctl"] = "net.ipv6.conf.all.seg6_enabled = 1\n"
        else:
            switch = view(plan, node, Options(), tables)
            files[f"{name}.batch"] = batch(switch, containerlab_port)
            files[f"{name}.sysctl"] = sysctls(switch, containerlab_port)
        nodes[name] = {
            "kind": "linux",
            "binds": [f"{name}.batch:/mrc.batch:ro", f"{name}.sysctl:/mrc.sysctl:ro"],
            "exec": ["sysctl -p /mrc.sysctl", "ip -6 -batch /mrc.batch"],
        }
    links = [
        {"endpoints": _ends(topology, link)} for link in range(topology.links) if link < topology.link_reverse[link]
    ]
    described = {
        "name": topology.fabric.name,
        "topology": {"defaults": {"image": IMAGE}, "nodes": nodes, "links": links},
    }
    files[f"{topology.fabric.name}.clab.yml"] = yaml.safe_dump(described, sort_keys=False, width=120)
    return files


def _ends(topology: Topology, link: int) -> list[str]:
    ends = []
    for each in (link, int(topology.link_reverse[link])):
        port = containerlab_port(int(topology.link_port[each]), Options())
        ends.append(f"{topology.name(int(topology.link_source[each]))}:{port}")
    return ends


def _nic_batch(plan: UsidPlan, nic: int) -> str:
    """A NIC sends its plane's block out of the plane's port and owns the last uSID in each."""
    topology = plan.topology
    lines = [f"# {topology.name(nic)}"]
    for plane, sids in enumerate(plan.planes):
        device = containerlab_port(plane, Options())
        t0 = sids.shape.first_t0 + sids.shape.t0_of(nic)
        gateway, port = link_local(topology, t0), sids.shape.t0_port_of(nic)
        lines += [
            f"link set dev {device} address {mac(topology, plane, nic, plane)} up",
            f"address replace {link_local(topology, nic)}/64 dev {device} nodad",
            f"neighbor replace {gateway} lladdr {mac(topology, plane, t0, port)} dev {device} nud permanent",
            f"address replace {plan.nic_address(plane, nic)}/128 dev lo nodad",
            f"address replace {plan.identity(plane, nic)}/128 dev lo nodad",
            f"route replace {_block(sids.block)} via {gateway} dev {device}",
        ]
    return "\n".join(lines) + "\n"


def _block(block: int) -> str:
    from openmrc.fabric.usid import block_text

    return block_text(block)
