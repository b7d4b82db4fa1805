"""The MAC and the link-local address of every node, the same on every target, so that systems of different makers fit.

A MAC is locally administered: 02, plane, tier, then the node's number within the tier, for all its ports. The address
is what IPv6 makes of it (RFC 4291, appendix A), which SONiC cannot be told to change. Planes share nothing, so a NIC is
a different node in each. A fabric that exists (`found`) has its own MACs and addresses.

  02:00:20:00:00:05   fe80::20ff:fe00:5        plane 0, T1 5
  02:03:e0:01:ff:ff   fe80::3:e0ff:fe01:ffff   plane 3, NIC 131,071
"""

from openmrc.errors import ConfigError
from openmrc.fabric.model.description import FoundDevice
from openmrc.fabric.model.topology import Topology

_NIC_MARK = 0xE0
_LOCAL = 0x02  # the bit that IPv6 inverts


def mac(topology: Topology, plane: int, node: int, port: int) -> str:
    """Return the MAC of a node's port in a plane; a NIC's port is the plane."""
    device = topology.found(node)
    if device and (own := _of_port(device, device.macs, port, "MACs")):
        return own
    return mac_of_plane(plane) + mac_of_node(topology, node)


def mac_of_plane(plane: int) -> str:
    """Return the part of a MAC that the nodes of a plane share."""
    return f"{_LOCAL:02x}:{plane:02x}:"


def mac_of_node(topology: Topology, node: int) -> str:
    """Return the part of a node's MAC that is the same in all planes."""
    return f"{_mark(topology, node):02x}:" + _number(topology, node).to_bytes(3, "big").hex(":")


def link_local(topology: Topology, plane: int, node: int) -> str:
    """Return the link-local address of a node in a plane, in the usual form (RFC 5952)."""
    return link_local_of_plane(plane) + link_local_of_node(topology, node)


def port_address(topology: Topology, plane: int, node: int, port: int) -> str:
    """Return the address of a node's port on its cable, with the length of its prefix."""
    device = topology.found(node)
    if device and (own := _of_port(device, device.addresses, port, "addresses")):
        return own
    return f"{link_local(topology, plane, node)}/64"


def _of_port(device: FoundDevice, values: tuple[str, ...], port: int, what: str) -> str:
    """Return the value of a port, of which one stands for all; empty if there is none."""
    if len(values) > 1 and port >= len(values):
        raise ConfigError(
            f"{device.name} has {len(values)} {what} in `found`; give one, or one for each port to {port}"
        )
    return values[port if len(values) > 1 else 0] if values else ""


def link_local_of_plane(plane: int) -> str:
    """Return the part of a link-local address that the nodes of a plane share."""
    return f"fe80::{plane:x}:" if plane else "fe80::"


def link_local_of_node(topology: Topology, node: int) -> str:
    """Return the part of a node's link-local address that is the same in all planes."""
    number = _number(topology, node)
    return f"{_mark(topology, node):x}ff:fe{number >> 16:02x}:{number & 0xFFFF:x}"


def _mark(topology: Topology, node: int) -> int:
    return _NIC_MARK if node < topology.nics else (int(topology.node_tier[node]) + 1) << 4


def _number(topology: Topology, node: int) -> int:
    return node if node < topology.nics else int(topology.node_index[node])
