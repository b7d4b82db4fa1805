"""A fabric as arrays: what the simulator, the tables and the proof read.

`build.build(fabric)` makes it. Node numbers: NICs first (NIC k of host h is node h * nics_per_host + k), then plane by
plane the T0s, T1s and T2s. Port p of a NIC is plane p. Switch ports count from 0: those towards the hosts, then those
up, then long links. Links are directed; `link_reverse[link]` is the other direction of the same cable.

In a regular fabric `planes[p]` (a `PlaneShape`) gives every node, link and port by arithmetic. An irregular fabric has
no shapes (`planes == ()`); follow `first_out` and `out_links`, which list each node's links by port.

Units: rates bit/s, delays ps, buffers bytes (0: no limit). `link_delay` is propagation, `node_delay` the forwarding
latency of a switch; serialisation is the reader's.
"""

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from openmrc.core.arrays import Ints
from openmrc.errors import ConfigError
from openmrc.fabric.model.description import Fabric, FoundDevice
from openmrc.fabric.model.shape import PlaneShape

Int8s = npt.NDArray[np.int8]
Int16s = npt.NDArray[np.int16]
Int32s = npt.NDArray[np.int32]

_SWITCH_NAME = re.compile(r"^p(\d+)-t([012])-(\d+)$")
_NIC_NAME = re.compile(r"^h(\d+)(?:-n(\d+))?$")


class NodeKind(IntEnum):
    NIC = 0
    SWITCH = 1


class LinkTier(IntEnum):
    HOST = 0  # NIC - T0
    FABRIC = 1  # T0 - T1
    CORE = 2  # T1 - T2
    LONG = 3  # site - site


@dataclass(frozen=True)
class Topology:
    """Nodes and directed links as columns; see the module for numbering and units."""

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
    names: tuple[str, ...] = ()  # of an irregular fabric, or of one that was found

    @property
    def nodes(self) -> int:
        return len(self.node_kind)

    @property
    def links(self) -> int:
        return len(self.link_source)

    @property
    def nics_per_host(self) -> int:
        return self.fabric.hosts.nics if self.fabric.hosts else 1

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: node for node, name in enumerate(self.names)}

    def found(self, node: int) -> FoundDevice | None:
        """Return what a device that exists is called and answers to; None in a fabric that is planned."""
        return self.fabric.found[node] if self.fabric.found else None

    def port_name(self, node: int, port: int) -> str:
        """Return the interface name of a port of a device that exists; empty if it is not known."""
        device = self.found(node)
        return device.ports[port] if device and port < len(device.ports) else ""

    def host_name(self, host: int) -> str:
        """Return the name of a machine: its NIC's, without the NIC's number if it has several."""
        return self.name(host) if self.nics_per_host == 1 else self.name(host * self.nics_per_host).removesuffix("-n0")

    @property
    def gpus_per_nic(self) -> int:
        hosts = self.fabric.hosts
        return (hosts.gpus or hosts.nics) // hosts.nics if hosts else 1

    def scale_up_domain(self) -> Ints:
        """Return the scale-up domain of each NIC's first GPU; -1 everywhere when there are none."""
        scale_up = self.fabric.scale_up
        if scale_up is None:
            return np.full(self.nics, -1, dtype=np.int64)
        return np.arange(self.nics, dtype=np.int64) * self.gpus_per_nic // scale_up.gpus

    @cached_property
    def outgoing(self) -> tuple[Ints, Ints]:
        """Return (first_out, out_links): node n's links by port are out_links[first_out[n]:first_out[n + 1]]."""
        first = np.zeros(self.nodes + 1, dtype=np.int64)
        np.cumsum(np.bincount(self.link_source, minlength=self.nodes), out=first[1:])
        return first, np.lexsort((self.link_port, self.link_source)).astype(np.int64)

    def name(self, node: int) -> str:
        """Return a node's name: `h3`, `h3-n1`, `p0-t0-07`."""
        if self.names:
            return self.names[node]
        if node < self.nics:
            host, nic = divmod(node, self.nics_per_host)
            return f"h{host}" if self.nics_per_host == 1 else f"h{host}-n{nic}"
        plane, tier = int(self.node_plane[node]), int(self.node_tier[node])
        shape = self.planes[plane]
        digits = max(2, len(str(shape.counts[tier] - 1)))
        return f"p{plane}-t{tier}-{int(self.node_index[node]):0{digits}d}"

    def node_named(self, name: str) -> int:
        """Return the node with this name; ConfigError names the valid range."""
        if self.names:
            if name in self._numbers:
                return self._numbers[name]
        elif match := _NIC_NAME.match(name):
            host, nic = int(match.group(1)), int(match.group(2) or 0)
            if host * self.nics_per_host < self.nics and nic < self.nics_per_host:
                return host * self.nics_per_host + nic
        elif match := _SWITCH_NAME.match(name):
            plane, tier, index = (int(part) for part in match.groups())
            if plane < len(self.planes):
                shape = self.planes[plane]
                if index < shape.counts[tier]:
                    return shape.firsts[tier] + index
        first, last = self.name(0), self.name(self.nics - 1)
        switches = f"{self.name(self.nics)} to {self.name(self.nodes - 1)}" if self.nodes > self.nics else "none"
        raise ConfigError(f"no node is called {name!r}; NICs are {first} to {last}, switches {switches}")

    def both_ways(self, links: Ints) -> Ints:
        """Return these links and the other directions of their cables, each once, in order."""
        return np.unique(np.concatenate([links, self.link_reverse[links]])).astype(np.int64)

    def delays(self, links: Ints | slice = slice(None)) -> Ints:
        """Return propagation and the forwarding latency at the far end, of directed links (ps)."""
        delays: Ints = self.link_delay[links] + self.node_delay[self.link_destination[links]]
        return delays

    def longest_path(self, shape: PlaneShape) -> Ints:
        """Return the links of a longest path of a plane from a NIC to another, through a long link if there is one."""
        path = [shape.host_up, shape.fabric_up, shape.core_up][: shape.tiers]
        path += [int(self.link_reverse[up]) for up in path]
        return np.array([*path, shape.long_out] if shape.long else path)

    def link_name(self, link: int) -> str:
        """Return `SOURCE>DESTINATION` of a directed link."""
        return f"{self.name(int(self.link_source[link]))}>{self.name(int(self.link_destination[link]))}"


def blank(fabric: Fabric, shapes: tuple[PlaneShape, ...], nics: int, nodes: int, links: int) -> Topology:
    """Return a topology whose nodes and links are still to be filled in."""
    return Topology(
        fabric=fabric,
        planes=shapes,
        nics=nics,
        names=tuple(each.name for each in fabric.found),
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
