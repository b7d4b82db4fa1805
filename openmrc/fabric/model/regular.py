"""A regular fabric as arrays: nodes and links of every plane, filled tier by tier from its `PlaneShape`."""

from dataclasses import dataclass

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.fabric.model.description import Fabric, Plane, Tier
from openmrc.fabric.model.shape import PlaneShape, plane_shapes
from openmrc.fabric.model.topology import LinkTier, NodeKind, Topology, blank
from openmrc.units import PS_PER_NS, PS_PER_US

_KB = 1024


def build_regular(fabric: Fabric) -> Topology:
    """Turn hosts and planes into arrays."""
    shapes = plane_shapes(fabric)
    nics = shapes[0].nics
    nodes = nics + sum(shape.switches for shape in shapes)
    links = shapes[-1].long_back + shapes[-1].long * shapes[-1].top_per_site
    topology = blank(fabric, shapes, nics, nodes, links)
    for shape, plane in zip(shapes, fabric.planes_one_by_one(), strict=True):
        _init_nodes(topology, shape, plane)
        _init_host_links(topology, shape, plane)
        if shape.tiers > 1:
            _init_fabric_links(topology, shape, plane)
        if shape.tiers > 2:
            _init_core_links(topology, shape, plane)
        if shape.long:
            _init_long_links(topology, shape)
    return topology


def _init_nodes(topology: Topology, shape: PlaneShape, plane: Plane) -> None:
    tiers = zip(shape.firsts, shape.counts, (plane.t0, plane.t1, plane.t2), strict=True)
    for tier, (first, count, described) in enumerate(tiers):
        if not count or described is None:
            continue
        here = slice(first, first + count)
        topology.node_kind[here] = NodeKind.SWITCH
        topology.node_tier[here] = tier
        topology.node_plane[here] = shape.plane
        topology.node_index[here] = np.arange(count)
        topology.node_delay[here] = described.switch_ns * PS_PER_NS


@dataclass(frozen=True)
class _Cable:
    """Hold what the two directions of a set of cables have in common."""

    tier: LinkTier
    gbps: float
    delay: int  # ps
    buffer_forth: int  # bytes, at the source of the forward direction
    buffer_back: int


def _init_cables(
    topology: Topology,
    plane: int,
    first: tuple[int, int],
    ends: tuple[Ints, Ints],
    ports: tuple[Ints, Ints],
    cable: _Cable,
) -> None:
    """Write both directions of a set of cables: from ends[0] to ends[1] at first[0], back at first[1]."""
    size = len(ends[0])
    for way in (0, 1):
        here = slice(first[way], first[way] + size)
        topology.link_source[here] = ends[way]
        topology.link_destination[here] = ends[1 - way]
        topology.link_port[here] = ports[way]
        topology.link_rate[here] = round(cable.gbps * 1e9)
        topology.link_delay[here] = cable.delay
        topology.link_buffer[here] = cable.buffer_back if way else cable.buffer_forth
        topology.link_plane[here] = plane
        topology.link_tier[here] = cable.tier
        topology.link_reverse[here] = np.arange(first[1 - way], first[1 - way] + size)


def _init_host_links(topology: Topology, shape: PlaneShape, plane: Plane) -> None:
    nic = np.arange(shape.nics, dtype=np.int64)
    ends = (nic, shape.first_t0 + shape.t0_of(nic))
    ports = (np.full_like(nic, shape.plane), shape.t0_port_of(nic))
    buffers = (plane.nic_buffer_kb * _KB, plane.t0.buffer_kb * _KB)
    cable = _Cable(LinkTier.HOST, plane.host_gbps, plane.host_link_ns * PS_PER_NS, *buffers)
    _init_cables(topology, shape.plane, (shape.host_up, shape.host_down), ends, ports, cable)


def _init_fabric_links(topology: Topology, shape: PlaneShape, plane: Plane) -> None:
    t0, up = np.divmod(np.arange(shape.t0_count * shape.t0_up, dtype=np.int64), shape.t0_up)
    ends = (shape.first_t0 + t0, shape.first_t1 + shape.t1_above(t0, up))
    ports = (shape.t0_down + up, shape.place_in_pod(t0) * shape.t0_bundle + up % shape.t0_bundle)
    cable = _between(LinkTier.FABRIC, fabric_gbps(plane), plane.t0, plane.t1)
    _init_cables(topology, shape.plane, (shape.fabric_up, shape.fabric_down), ends, ports, cable)


def _init_core_links(topology: Topology, shape: PlaneShape, plane: Plane) -> None:
    assert plane.t1 is not None
    t1, up = np.divmod(np.arange(shape.t1_count * shape.t1_up, dtype=np.int64), shape.t1_up)
    ends = (shape.first_t1 + t1, shape.first_t2 + shape.t2_above(t1, up))
    pod_in_site = t1 // shape.t1_per_pod % shape.pods_per_site
    ports = (shape.t1_down + up, pod_in_site * shape.t1_bundle + up % shape.t1_bundle)
    cable = _between(LinkTier.CORE, plane.t1.up_gbps or fabric_gbps(plane), plane.t1, plane.t2)
    _init_cables(topology, shape.plane, (shape.core_up, shape.core_down), ends, ports, cable)


def _init_long_links(topology: Topology, shape: PlaneShape) -> None:
    sites = topology.fabric.sites
    assert sites is not None
    first = shape.firsts[shape.tiers - 1]
    below = (shape.t0_down, shape.t1_down, shape.t2_down)[shape.tiers - 1]
    top, link = np.divmod(np.arange(shape.top_per_site * shape.long, dtype=np.int64), shape.long)
    ends = (first + top, first + shape.top_per_site + top)
    buffers = (sites.buffer_kb * _KB, sites.buffer_kb * _KB)
    cable = _Cable(LinkTier.LONG, sites.gbps, round(sites.link_us * PS_PER_US), *buffers)
    _init_cables(topology, shape.plane, (shape.long_out, shape.long_back), ends, (below + link, below + link), cable)


def _between(tier: LinkTier, gbps: float, lower: Tier, upper: Tier | None) -> _Cable:
    assert upper is not None
    return _Cable(tier, gbps, lower.up_link_ns * PS_PER_NS, lower.buffer_kb * _KB, upper.buffer_kb * _KB)


def fabric_gbps(plane: Plane) -> float:
    """Return the rate of a link between T0 and T1."""
    return plane.t0.up_gbps or plane.host_gbps
