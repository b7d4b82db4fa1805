"""containerlab: the whole fabric as one topology of containers: FRR on the switches, configured by the FRR export.

Fields: the topology file's reference ("Nodes": kind, image, binds, exec; "Links": endpoints), and its JSON schema
`schemas/clab.schema.json`. FRR's image starts the daemons that `/etc/frr/daemons` names (FRR user guide, "Starting
FRR"); the configuration is read afterwards, when `sr0` exists, without which staticd installs no uN. The machines'
image has iproute2 and sysctl, which the usual small images have not. Containers share the host's kernel, so that has to
be 6.1 or newer.
"""

from typing import Any

import yaml

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import UsidPlan, block_text, identity
from openmrc.fabric.export.addresses import mac, port_address
from openmrc.fabric.export.frr import emit as frr_files
from openmrc.fabric.export.kernel import SYSCTLS, blackhole
from openmrc.fabric.export.options import ExportOptions
from openmrc.fabric.export.view import containerlab_port, views
from openmrc.fabric.model.topology import Topology

MOST_NODES = 500
IMAGE = "nicolaka/netshoot:v0.13"  # Alpine 3.20: iproute2 6.9 with tc, sysctl, tcpdump, tshark
_FRR = "quay.io/frrouting/frr:{}.1"  # by version; a release with its first repairs
_COMMANDS = {  # in the order in which they are run
    "links": "ip -batch /mrc.links",
    "sysctl": "sysctl -p /mrc.sysctl",
    "conf": "sh -c 'until vtysh -c \"show version\"; do sleep 1; done; vtysh -f /mrc.conf'",
    "batch": "ip -6 -batch /mrc.batch",
    "tc": "tc -force -batch /mrc.tc",
}
DAEMONS = "zebra=yes\nstaticd=yes\nmgmtd=yes\nvtysh_enable=yes\n"


def emit_all(plan: UsidPlan, options: ExportOptions) -> dict[str, str]:
    """Return the topology file and the files it binds."""
    topology = plan.topology
    if topology.nodes > MOST_NODES:
        raise ConfigError(f"{topology.nodes} containers are more than a host carries; {MOST_NODES} at most")
    files: dict[str, dict[str, str]] = {
        topology.name(nic): _nic_files(plan, nic, options) for nic in range(topology.nics)
    }
    for switch in views(plan, options):
        files[switch.name] = frr_files(switch, containerlab_port)
    links = [
        {"endpoints": _ends(topology, link)} for link in range(topology.links) if link < topology.link_reverse[link]
    ]
    described = {
        "name": topology.fabric.name,
        "topology": {
            "defaults": {"image": IMAGE, "kind": "linux"},
            "nodes": {name: _node(name, own, options.frr) for name, own in files.items()},
            "links": links,
        },
    }
    text = yaml.safe_dump(described, sort_keys=False, width=120)
    flat = {f"{name}.{ending}": text for name, own in files.items() for ending, text in own.items()}
    return {**flat, "daemons": DAEMONS, f"{topology.fabric.name}.clab.yml": text}


def _node(name: str, files: dict[str, str], frr: str) -> dict[str, Any]:
    endings = [ending for ending in _COMMANDS if ending in files]
    binds = [f"{name}.{ending}:/mrc.{ending}:ro" for ending in endings]
    made: dict[str, Any] = {"binds": binds, "exec": [_COMMANDS[ending] for ending in endings]}
    if "conf" in files:
        made |= {"image": _FRR.format(frr), "binds": [*binds, "daemons:/etc/frr/daemons:ro"]}
    return made


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
        links.append(f"link set dev {device} address {mac(topology, plane, nic, plane)} mtu {options.mtu} up")
        lines += [
            f"address replace {port_address(topology, plane, nic, plane)} dev {device} nodad",
            f"address replace {plan.nic_address(plane, nic)}/128 dev lo nodad",
            f"address replace {identity(plane, nic)}/128 dev lo nodad",
            f"route replace {block_text(sids.block)} via {gateway} dev {device}",
            blackhole(block_text(sids.block)),
        ]
    sysctls = "\n".join(line for line in SYSCTLS if "forwarding" not in line) + "\n"
    return {"links": "\n".join(links) + "\n", "sysctl": sysctls, "batch": "\n".join(lines) + "\n"}
