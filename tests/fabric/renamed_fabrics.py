"""Fabrics as somebody else built them: the small ones with other names, uSIDs, interfaces, addresses and MACs."""

import random

import msgspec

from openmrc.fabric.addressing.usid import usid_plan
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric, FoundDevice
from openmrc.fabric.model.topology import Topology
from openmrc.fabric.readback.seen import link_local_of

_SITE = ("ams", "fra", "osl", "zrh")


def renamed(fabric: Fabric, seed: int) -> Fabric:
    """Return the fabric with everything renamed and renumbered that a site may have named and numbered."""
    draw = random.Random(seed)
    topology = build(fabric)
    sids = _drawn_sids(topology, draw)
    names = draw.sample(range(1000), topology.nodes)
    subnets = {link for link in range(topology.links) if link < topology.link_reverse[link] and draw.random() < 0.5}
    first, out = topology.outgoing
    devices = []
    for node in range(topology.nodes):
        count = int(topology.link_port[out[first[node] : first[node + 1]]].max()) + 1
        is_nic = node < topology.nics
        plane = int(topology.node_plane[node])
        shape = topology.planes[max(0, plane)]
        is_t0 = not is_nic and int(topology.node_tier[node]) == 0
        devices.append(
            FoundDevice(
                name=_name(topology, node, names[node]),
                ports=() if is_nic else tuple(f"et{port}" for port in draw.sample(range(100), count)),
                addresses=_addresses(topology, node, count, subnets),
                macs=(_mac(node),),
                usids=() if is_nic else sids[node],
                downlinks=tuple(draw.sample(range(0x9000, 0xA000), shape.t0_down)) if is_t0 else (),
            )
        )
    return msgspec.structs.replace(fabric, found=tuple(devices))


def _name(topology: Topology, node: int, number: int) -> str:
    if node < topology.nics:
        host, nic = divmod(node, topology.nics_per_host)
        return f"gpu{host:03d}" if topology.nics_per_host == 1 else f"gpu{host:03d}-n{nic}"
    return f"{_SITE[number % len(_SITE)]}-sw{number}"


def _mac(node: int) -> str:
    return f"06:00:00:{node >> 16:02x}:{node >> 8 & 255:02x}:{node & 255:02x}"


def _addresses(topology: Topology, node: int, ports: int, subnets: set[int]) -> tuple[str, ...]:
    """Return link-local addresses, and on some cables one of a subnet that only its two ends have."""
    found = [f"{link_local_of(_mac(node))}/64"] * ports
    first, out = topology.outgoing
    for link in out[first[node] : first[node + 1]].tolist():
        back = int(topology.link_reverse[link])
        if min(link, back) in subnets:
            found[int(topology.link_port[link])] = f"2001:db8:{min(link, back) + 1:x}::{1 + (link > back)}/64"
    return (found[0],) if len(set(found)) == 1 else tuple(found)


def _drawn_sids(topology: Topology, draw: random.Random) -> dict[int, tuple[int, ...]]:
    """Return a uSID for every link that leads to a switch, in no order, each once in its plane's block."""
    found = {}
    drawn: list[int] = []
    for sids in usid_plan(topology).planes:
        shape = sids.shape
        if not topology.fabric.usid.shared or not drawn:
            drawn = draw.sample(range(1, 0x8000), 4096)
        for first, count, aliases in (
            (shape.first_t0, shape.t0_count, sids.t0_aliases),
            (shape.first_t1, shape.t1_count, sids.t1_aliases),
            (shape.first_t2, shape.t2_count, sids.t2_aliases),
        ):
            for node in range(first, first + count):
                found[node] = tuple(drawn.pop() for _ in range(aliases))
    return found
