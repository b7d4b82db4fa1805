"""Scale-up domains as nodes and links of the simulated network, after those of the fabric.

Each domain has one switch, and each of its NICs (which represents the GPUs behind it) a link in each direction. A link
has the combined rate of the NIC's GPUs and half of the domain's latency.
"""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.fabric.model.topology import NodeKind, Topology
from openmrc.sim.workloads.traffic import Traffic
from openmrc.units import PS_PER_NS


def with_domains(topology: Topology) -> Topology:
    """Return the fabric with its scale-up networks: first the links to the domains, by NIC, then those from them."""
    scale_up = topology.fabric.scale_up
    if scale_up is None:
        return topology
    domain = topology.scale_up_domain()
    nics, domains = topology.nics, int(domain.max()) + 1
    there = topology.nodes + domain
    nic = np.arange(nics)
    half = scale_up.latency_ns * PS_PER_NS // 2
    rate = round(scale_up.gbps * 1e9) * topology.gpus_per_nic
    more = {
        "node_kind": np.full(domains, NodeKind.SWITCH), "node_tier": np.zeros(domains),
        "node_plane": np.full(domains, -1),
        "node_index": np.arange(domains), "node_delay": np.zeros(domains),
        "link_source": np.concatenate([nic, there]), "link_destination": np.concatenate([there, nic]),
        "link_port": np.zeros(2 * nics), "link_rate": np.full(2 * nics, rate),
        "link_delay": np.repeat([half, scale_up.latency_ns * PS_PER_NS - half], nics),
        "link_buffer": np.zeros(2 * nics), "link_plane": np.full(2 * nics, -1), "link_tier": np.zeros(2 * nics),
        "link_reverse": topology.links + np.concatenate([nic + nics, nic]),
    }  # fmt: skip
    columns: dict[str, Any] = {}
    for name, added in more.items():
        column = getattr(topology, name)
        columns[name] = np.concatenate([column, added.astype(column.dtype)])
    return dataclasses.replace(topology, **columns)


def inside(topology: Topology, traffic: Traffic) -> NDArray[np.bool_]:
    """Return which messages stay within a scale-up domain."""
    if topology.fabric.scale_up is None:
        return np.zeros(traffic.messages, np.bool_)
    domain = topology.scale_up_domain()
    stays: NDArray[np.bool_] = (domain[traffic.source] == domain[traffic.destination]) & (traffic.size > 0)
    return stays


def outside(traffic: Traffic, stays: NDArray[np.bool_]) -> Traffic:
    """Return the traffic of the transport: messages that stay in a domain become empty."""
    return dataclasses.replace(traffic, size=np.where(stays, 0, traffic.size)) if stays.any() else traffic
