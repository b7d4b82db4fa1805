"""A fabric as arrays: what the simulator, the tables and the proof read.

`build(fabric) -> Topology`. Node numbers: NICs first (NIC k of host h is node h * nics_per_host + k), then plane by
plane the T0s, T1s and T2s. Port p of a NIC is plane p. Switch ports count from 0: those towards the hosts, then those
up, then long links. Links are directed; `link_reverse[link]` is the other direction of the same cable.

In a regular fabric `planes[p]` (a `PlaneShape`) gives every node, link and port by arithmetic, and `shape_rows`
holds the same numbers for compiled code. An irregular fabric has no shapes (`planes == ()`); follow `first_out` and
`out_links`, which list each node's links by port.

Units: rates bit/s, delays ps, buffers bytes (0: no limit). `link_delay` is propagation, `node_delay` the forwarding
latency of a switch; serialisation is the reader's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from openmrc.errors import ConfigError
from openmrc.fabric.description import Fabric, Plane, Tier
from openmrc.fabric.shape import Ints, PlaneShape, plane_shapes, shape_rows
from openmrc.units import PS_PER_NS, PS_PER_US

Int8s = npt.NDArray[np.int8]
Int16s = npt.NDArray[np.int16]
Int32s = npt.NDArray[np.int32]

_KB = 1024
_SWITCH_NAME = re.compile(r"^p(\d+)-t([012])-(\d+)$")
_NIC_NAME = re.compile(r"^h(\d+)(?:-n(\d+))?$")


class Kind(IntEnum):
    """Say what a node is."""

    NIC = 0
    SWITCH = 1


class LinkTier(IntEnum):
    """Say which tiers a link joins."""

    HOST = 0  # NIC - T0
    FABRIC = 1  # T0 - T1
    CORE = 2  # T1 - T2
    LONG = 3  # site - site


@dataclass(frozen=True)
class Topology:
    """Hold nodes and directed links as columns; see the module for numbering and units."""

    fabric: Fabric
    planes: tuple[PlaneShape, ...]
    nics: int
    node_kind: Int8s
    node_tier: Int8s  # -1 for a NIC
    node_plane: Int16s  # -1 for a NIC
    node_index: Int32s  # within kind, plane and tier
    node_delay: Ints
    link_source: Int32s
    link_destination: Int32s
    link_port: Int32s  # of the source
    link_rate: Ints
    link_delay: Ints
    link_buffer: Ints
    link_plane: Int16s
    link_tier: Int8s
    link_reverse: Int32s
    names: tuple[str, ...] = ()  # of an irregular fabric
    _out: list[Ints] = field(default_factory=list, compare=False, repr=False)

    @property
    def nodes(self) -> int:
        return len(self.node_kind)

    @property
    def links(self) -> int:
        return len(self.link_source)

    @property
    def nics_per_host(self) -> int:
        return self.fabric.hosts.nics if self.fabric.hosts else 1

    @property
    def gpus_per_nic(self) -> int:
        hosts = self.fabric.hosts
        return (hosts.gpus or hosts.nics) // hosts.nics if hosts else 1

    def shape_rows(self) -> Ints:
        """Return the planes' shapes for compiled code, columns as in `ShapeColumn`."""
        return shape_rows(self.planes)

    def scale_up_domain(self) -> Ints:
        """Return the scale-up domain of each NIC's first GPU; -1 everywhere when there are none."""
        scale_up = self.fabric.scale_up
        if scale_up is None:
            return np.full(self.nics, -1, dtype=np.int64)
        return np.arange(self.nics, dtype=np.int64) * self.gpus_per_nic // scale_up.gpus

    def outgoing(self) -> tuple[Ints, Ints]:
        """Return (first_out, out_links): node n's links by port are out_links[first_out[n]:first_out[n + 1]]."""
        if not self._out:
            order = np.lexsort((self.link_port, self.link_source))
            first = np.zeros(self.nodes + 1, dtype=np.int64)
            np.cumsum(np.bincount(self.link_source, minlength=self.nodes), out=first[1:])
            self._out.extend((first, order.astype(np.int64)))
        return self._out[0], self._out[1]

    def name(self, node: int) -> str:
        """Return a node's name: `h3`, `h3-n1`, `p0-t0-07`."""
        if self.names:
            return self.names[node]
        if node < self.nics:
            host, nic = divmod(node, self.nics_per_host)
            return f"h{host}" if self.nics_per_host == 1 else f"h{host}-n{nic}"
        plane, tier = int(self.node_plane[node]), int(self.node_tier[node])
        shape = self.planes[plane]
        digits = max(2, len(str((shape.t0_count, shape.t1_count, shape.t2_count)[tier] - 1)))
        return f"p{plane}-t{tier}-{int(self.node_index[node]):0{digits}d}"

    def node_named(self, name: str) -> int:
        """Return the node of a name; a `ConfigError` says what names there are."""
        if self.names:
            if name in self.names:
                return self.names.index(name)
        elif match := _NIC_NAME.match(name):
            host, nic = int(match.group(1)), int(match.group(2) or 0)
            if host * self.nics_per_host < self.nics and nic < self.nics_per_host:
                return host * self.nics_per_host + nic
        elif match := _SWITCH_NAME.match(name):
            plane, tier, index = (int(part) for part in match.groups())
            if plane < len(self.planes):
                shape = self.planes[plane]
                if index < (shape.t0_count, shape.t1_count, shape.t2_count)[tier]:
                    return (shape.first_t0, shape.first_t1, shape.first_t2)[tier] + index
        first, last = self.name(0), self.name(self.nics - 1)
        switches = f"{self.name(self.nics)} to {self.name(self.nodes - 1)}" if self.nodes > self.nics else "none"
        raise ConfigError(f"no node is called {name!r}; NICs are {first} to {last}, switches {switches}")

    def link_named(self, name: str) -> int:
        """Return the first directed link of a name `A>B`."""
        ends = name.split(">")
        if len(ends) != 2:
            raise ConfigError(f"{name!r} is not a link; write it SOURCE>DESTINATION, such as {self.link_name(0)}")
        source, destination = self.node_named(ends[0]), self.node_named(ends[1])
        first, out = self.outgoing()
        for link in out[first[source] : first[source + 1]]:
            if self.link_destination[link] == destination:
                return int(link)
        raise ConfigError(f"{name!r}: no link joins these two")

    def link_name(self, link: int) -> str:
        """Return `SOURCE>DESTINATION` of a directed link."""
        return f"{self.name(int(self.link_source[link]))}>{self.name(int(self.link_destination[link]))}"


def build(fabric: Fabric) -> Topology:
    """Turn a description into arrays."""
    if not fabric.is_regular:
        from openmrc.fabric.graph import build_graph

        return build_graph(fabric)
    shapes = plane_shapes(fabric)
    nics = shapes[0].nics
    nodes = nics + sum(shape.switches for shape in shapes)
    links = shapes[-1].long_back + shapes[-1].long * shapes[-1].top_per_site
    topology = blank(fabric, shapes, nics, nodes, links)
    for shape, plane in zip(shapes, fabric.planes_one_by_one(), strict=True):
        _lay_nodes(topology, shape, plane)
        _lay_host_links(topology, shape, plane)
        if shape.tiers > 1:
            _lay_fabric_links(topology, shape, plane)
        if shape.tiers > 2:
            _lay_core_links(topology, shape, plane)
        if shape.long:
            _lay_long_links(topology, shape)
    return topology


def blank(fabric: Fabric, shapes: tuple[PlaneShape, ...], nics: int, nodes: int, links: int) -> Topology:
    return Topology(
        fabric=fabric,
        planes=shapes,
        nics=nics,
        node_kind=np.zeros(nodes, dtype=np.int8),
        node_tier=np.full(nodes, -1, dtype=np.int8),
        node_plane=np.full(nodes, -1, dtype=np.int16),
        node_index=np.arange(nodes, dtype=np.int32),
        node_delay=np.zeros(nodes, dtype=np.int64),
        link_source=np.empty(links, dtype=np.int32),
        link_destination=np.empty(links, dtype=np.int32),
        link_port=np.empty(links, dtype=np.int32),
        link_rate=np.empty(links, dtype=np.int64),
        link_delay=np.empty(links, dtype=np.int64),
        link_buffer=np.empty(links, dtype=np.int64),
        link_plane=np.empty(links, dtype=np.int16),
        link_tier=np.empty(links, dtype=np.int8),
        link_reverse=np.empty(links, dtype=np.int32),
    )


def _lay_nodes(topology: Topology, shape: PlaneShape, plane: Plane) -> None:
    tiers = (
        (shape.first_t0, shape.t0_count, plane.t0),
        (shape.first_t1, shape.t1_count, plane.t1),
        (shape.first_t2, shape.t2_count, plane.t2),
    )
    for tier, (first, count, described) in enumerate(tiers):
        if not count or described is None:
            continue
        here = slice(first, first + count)
        topology.node_kind[here] = Kind.SWITCH
        topology.node_tier[here] = tier
        topology.node_plane[here] = shape.plane
        topology.node_index[here] = np.arange(count)
        topology.node_delay[here] = described.switch_ns * PS_PER_NS


@dataclass(frozen=True)
class _Cable:
    """Say what the two directions of a set of cables have in common."""

    tier: LinkTier
    gbps: float
    delay: int  # ps
    buffer_forth: int  # bytes, at the source of the forward direction
    buffer_back: int


def _lay(
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


def _lay_host_links(topology: Topology, shape: PlaneShape, plane: Plane) -> None:
    nic = np.arange(shape.nics, dtype=np.int64)
    ends = (nic, shape.first_t0 + shape.t0_of(nic))
    ports = (np.full_like(nic, shape.plane), shape.t0_port_of(nic))
    buffers = (plane.nic_buffer_kb * _KB, plane.t0.buffer_kb * _KB)
    cable = _Cable(LinkTier.HOST, plane.host_gbps, plane.host_link_ns * PS_PER_NS, *buffers)
    _lay(topology, shape.plane, (shape.host_up, shape.host_down), ends, ports, cable)


def _lay_fabric_links(topology: Topology, shape: PlaneShape, plane: Plane) -> None:
    t0, up = np.divmod(np.arange(shape.t0_count * shape.t0_up, dtype=np.int64), shape.t0_up)
    ends = (shape.first_t0 + t0, shape.first_t1 + shape.t1_above(t0, up))
    ports = (shape.t0_down + up, shape.place_in_pod(t0) * shape.t0_bundle + up % shape.t0_bundle)
    cable = _between(LinkTier.FABRIC, fabric_gbps(plane), plane.t0, plane.t1)
    _lay(topology, shape.plane, (shape.fabric_up, shape.fabric_down), ends, ports, cable)


def _lay_core_links(topology: Topology, shape: PlaneShape, plane: Plane) -> None:
    assert plane.t1 is not None
    t1, up = np.divmod(np.arange(shape.t1_count * shape.t1_up, dtype=np.int64), shape.t1_up)
    ends = (shape.first_t1 + t1, shape.first_t2 + shape.t2_above(t1, up))
    pod_in_site = t1 // shape.t1_per_pod % shape.pods_per_site
    ports = (shape.t1_down + up, pod_in_site * shape.t1_bundle + up % shape.t1_bundle)
    cable = _between(LinkTier.CORE, plane.t1.up_gbps or fabric_gbps(plane), plane.t1, plane.t2)
    _lay(topology, shape.plane, (shape.core_up, shape.core_down), ends, ports, cable)


def _lay_long_links(topology: Topology, shape: PlaneShape) -> None:
    sites = topology.fabric.sites
    assert sites is not None
    first = (shape.first_t0, shape.first_t1, shape.first_t2)[shape.tiers - 1]
    below = (shape.t0_down, shape.t1_down, shape.t2_down)[shape.tiers - 1]
    top, link = np.divmod(np.arange(shape.top_per_site * shape.long, dtype=np.int64), shape.long)
    ends = (first + top, first + shape.top_per_site + top)
    buffers = (sites.buffer_kb * _KB, sites.buffer_kb * _KB)
    cable = _Cable(LinkTier.LONG, sites.gbps, round(sites.link_us * PS_PER_US), *buffers)
    _lay(topology, shape.plane, (shape.long_out, shape.long_back), ends, (below + link, below + link), cable)


def _between(tier: LinkTier, gbps: float, lower: Tier, upper: Tier | None) -> _Cable:
    assert upper is not None
    return _Cable(tier, gbps, lower.up_link_ns * PS_PER_NS, lower.buffer_kb * _KB, upper.buffer_kb * _KB)


def fabric_gbps(plane: Plane) -> float:
    """Return the rate of a link between T0 and T1."""
    return plane.t0.up_gbps or plane.host_gbps
