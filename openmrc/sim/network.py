"""A topology becomes the simulator's tables: `lay(topology, settings, ...) -> Network`.

Links keep the numbers they have in the topology. Buffers and ECN thresholds are shares of a plane's bandwidth-delay
product, as in UEC 1.0.3 pp. 418-419, or the buffers that the fabric gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.core import rng
from openmrc.core.rows import Table, table
from openmrc.errors import ConfigError
from openmrc.fabric.shape import PlaneShape
from openmrc.fabric.topology import Kind, Topology
from openmrc.sim import tables
from openmrc.sim.tables import BYTE_TIME_BITS, NONE, Network, Routing, Trimming
from openmrc.units import NEVER

Ints = NDArray[np.int64]

_PS_PER_S_AND_BITS = 8 * 10**12
_SMALLEST = 64  # bytes on the wire: bounds how many packets a window can bring


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """What switches do; sizes in bytes, thresholds as shares of the plane's bandwidth-delay product."""

    mtu: int = 4096  # payload of a full packet
    header: int = 64  # a data packet's bytes besides its payload, as htsim counts
    control_size: int = 64  # acknowledgements and the like
    trim_size: int = 64
    routing: Routing = Routing.ENTROPY
    trimming: Trimming = Trimming.EITHER
    buffer_bdp: float = 1.0  # 0: the buffers of the fabric
    last_hop_buffer_bdp: float = 1.0  # UEC: 1.5
    control_buffer_bdp: float = 2.0  # trimmed headers and acknowledgements
    ecn_low_bdp: float = 0.2
    ecn_high_bdp: float = 0.8  # 0: no marking
    ecn_last_hop: bool = True  # MRC turns it off on the link to the NIC
    lossless: bool = False  # PFC: senders are paused, nothing is dropped or trimmed
    pause_packets: int = 15  # full packets from one link above which its sender is paused (htsim's defaults)
    resume_packets: int = 12


def lay(topology: Topology, settings: NetworkSettings, hops: int, seed: int = 1, shards: int = 1) -> Network:
    """Return the tables of a network with room for `hops` packets on their way; no flows yet."""
    if not topology.planes:
        raise ConfigError(f"{topology.fabric.name}: the simulator needs a regular fabric (`hosts` and `planes`)")
    lookahead = int(np.min(link_delays(topology)))
    if lookahead <= 0:
        raise ConfigError(f"{topology.fabric.name}: a link of 0 ns; every link needs a propagation delay above 0")
    batch, arrivals = _batch_size(topology, lookahead), topology.links
    network = Network(
        hops=table(tables.Hop, hops),
        channels=table(tables.Channel, topology.links * 2),
        outgoing=table(tables.Outgoing, topology.links * 4),
        ports=table(tables.Port, topology.links),
        queues=table(tables.Queue, topology.links if settings.lossless else 1),
        departures=table(tables.Departure, 2 * topology.links if settings.lossless else 1),
        wires=table(tables.Wire, topology.links),
        nodes=table(tables.Node, topology.nodes),
        mails=table(tables.Mail, topology.nodes),
        arrivals=table(tables.Arrival, arrivals),
        nics=table(tables.Nic, topology.nics),
        nic_ports=table(tables.NicPort, topology.nics * len(topology.planes)),
        flows=table(tables.Flow, 0),
        releases=table(tables.Release, 0),
        signals=table(tables.Signal, 0),
        rules=table(tables.Rules, 1),
        shards=table(tables.Shard, shards),
        members=table(tables.Member, topology.nodes),
        dues=table(tables.Due, batch * shards),
        buckets=table(tables.Bucket, (2 * batch + 2) * shards),
    )
    _lay_rules(network, settings, topology, lookahead)
    _lay_lists(network)
    _lay_ports(network, topology, settings, seed)
    _lay_nodes(network, topology, seed)
    if settings.lossless:
        _lay_queues(network, topology, settings)
    _lay_nics(network, topology)
    _lay_shards(network, topology, hops, batch)
    return network


def column(rows: Table[Any], name: str) -> NDArray[Any]:
    """Return one field of every row as an array that writes through."""
    return np.asarray(rows)[name]


def link_delays(topology: Topology) -> Ints:
    """Return propagation and the forwarding latency at the far end, of every directed link (ps)."""
    delays: Ints = topology.link_delay + topology.node_delay[topology.link_destination]
    return delays


def longest_round_trip(topology: Topology, shape: PlaneShape, settings: NetworkSettings) -> int:
    """Return the unloaded round trip of a full packet and its acknowledgement over a plane's longest path (ps).

    Twice the propagation and switching, plus the packet's time on each link at the NIC's rate, as htsim reckons.
    """
    ups = [shape.host_up, shape.fabric_up, shape.core_up][: shape.tiers]
    delays = link_delays(topology)
    one_way = sum(int(delays[up]) + int(delays[topology.link_reverse[up]]) for up in ups)
    links = 2 * shape.tiers
    if shape.long:
        one_way += int(delays[shape.long_out])
        links += 1
    packet = (settings.mtu + 2 * settings.header) * _PS_PER_S_AND_BITS // int(topology.link_rate[shape.host_up])
    return 2 * one_way + links * packet


def plane_bdp(topology: Topology, shape: PlaneShape, settings: NetworkSettings) -> int:
    """Return the bytes that fill one NIC port over the plane's longest round trip."""
    rate = int(topology.link_rate[shape.host_up])
    return longest_round_trip(topology, shape, settings) * rate // _PS_PER_S_AND_BITS


def _batch_size(topology: Topology, lookahead: int) -> int:
    """Return how many packets can reach one node in a window at most."""
    per_link = lookahead * (topology.link_rate / 8e12) / _SMALLEST + 4
    at_nodes = np.bincount(topology.link_destination, weights=2 * per_link, minlength=topology.nodes)
    return int(at_nodes.max()) + 1


def _lay_rules(network: Network, settings: NetworkSettings, topology: Topology, lookahead: int) -> None:
    rules = network.rules[0]
    rules.planes = len(topology.planes)
    rules.routing = settings.routing
    rules.trim_size = settings.trim_size
    rules.lookahead = lookahead
    rules.control_size = settings.control_size
    rules.header = settings.header
    rules.lossless = settings.lossless


def _lay_lists(network: Network) -> None:
    for rows, names in (
        (network.channels, ("head", "tail", "cursor")),
        (network.outgoing, ("head", "tail")),
        (network.nics, ("pending",)),
    ):
        for name in names:
            column(rows, name)[:] = NONE
    column(network.nics, "wake")[:] = NEVER
    column(network.nodes, "next_at")[:] = NEVER


def _lay_ports(network: Network, topology: Topology, settings: NetworkSettings, seed: int) -> None:
    ports, wires = network.ports, network.wires
    last_hop = topology.link_destination < topology.nics
    byte_time = (_PS_PER_S_AND_BITS << BYTE_TIME_BITS) // topology.link_rate
    bdp = np.array([plane_bdp(topology, shape, settings) for shape in topology.planes])[topology.link_plane]
    # A faster or slower link than the NIC's port keeps the time its buffer takes to drain.
    bdp = bdp * (topology.link_rate / _host_rates(topology))
    column(ports, "byte_time")[:] = byte_time
    column(ports, "delay")[:] = link_delays(topology)
    column(ports, "destination")[:] = topology.link_destination
    column(ports, "last_hop")[:] = last_hop
    column(ports, "trimming")[:] = settings.trimming
    column(ports, "tail")[:] = NONE
    column(ports, "random")[:] = _seeds(seed, 1, topology.links)
    column(wires, "random")[:] = _seeds(seed, 2, topology.links)
    packet = settings.mtu + settings.header
    share = np.where(last_hop, settings.last_hop_buffer_bdp, settings.buffer_bdp)
    buffers = np.ceil(bdp * share / packet) * packet if settings.buffer_bdp > 0 else topology.link_buffer
    column(ports, "capacity")[:] = _drain_times(buffers, byte_time)
    column(ports, "control_capacity")[:] = _drain_times(bdp * settings.control_buffer_bdp, byte_time)
    for name in ("capacity", "control_capacity"):
        column(ports, name)[topology.node_kind[topology.link_source] == Kind.NIC] = NEVER
    marks = (settings.ecn_high_bdp > 0) & (settings.ecn_last_hop | ~last_hop)
    marks &= topology.node_kind[topology.link_source] == Kind.SWITCH
    column(wires, "ecn_low")[:] = np.where(marks, np.ceil(bdp * settings.ecn_low_bdp / packet) * packet, NONE)
    column(wires, "ecn_high")[:] = np.where(marks, np.ceil(bdp * settings.ecn_high_bdp / packet) * packet, 0)


def _lay_queues(network: Network, topology: Topology, settings: NetworkSettings) -> None:
    """Give every port a real queue without limit; its marks are its own, not its wire's."""
    queues, wires, ports = network.queues, network.wires, network.ports
    packet = settings.mtu + settings.header
    for name in ("head", "tail", "serving"):
        column(queues, name)[:] = NONE
    column(queues, "looks_at")[:] = NEVER
    column(queues, "reverse")[:] = topology.link_reverse
    column(queues, "pause_above")[:] = settings.pause_packets * packet
    column(queues, "resume_below")[:] = settings.resume_packets * packet
    for name in ("ecn_low", "ecn_high"):
        column(queues, name)[:] = column(wires, name)
    column(wires, "ecn_low")[:] = NONE
    column(ports, "control_capacity")[:] = NEVER
    counts = np.bincount(topology.link_source, minlength=topology.nodes)
    column(network.nodes, "first_departure")[:] = 2 * (np.cumsum(counts) - counts)


def _host_rates(topology: Topology) -> Ints:
    rates: Ints = np.array([topology.link_rate[shape.host_up] for shape in topology.planes])
    return rates[topology.link_plane]


def _drain_times(buffers: NDArray[Any], byte_time: Ints) -> Ints:
    """Return how long full buffers take to drain (ps); 0 bytes: no limit."""
    times = buffers * (byte_time / (1 << BYTE_TIME_BITS))
    return np.where(buffers > 0, times, NEVER).astype(np.int64)


def _seeds(seed: int, stream: int, count: int) -> Ints:
    """Return first states of as many generators, none of them 0 (splitmix64's mixer, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        value = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        value += np.uint64(rng.seeded(seed, stream)) << np.uint64(16)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((value >> np.uint64(32)) | np.uint64(1)).astype(np.int64)


def _lay_nodes(network: Network, topology: Topology, seed: int) -> None:
    nodes = network.nodes
    order = np.argsort(topology.link_destination, kind="stable")
    counts = np.bincount(topology.link_destination, minlength=topology.nodes)
    column(network.arrivals, "link")[:] = order
    column(nodes, "first_in")[:] = np.cumsum(counts) - counts
    column(nodes, "in_count")[:] = counts
    column(nodes, "tier")[:] = topology.node_tier
    column(nodes, "plane")[:] = topology.node_plane
    column(nodes, "salt")[:] = _seeds(seed, 3, topology.nodes) >> 1
    for shape in topology.planes:
        _lay_plane(network, shape)


def _lay_plane(network: Network, shape: PlaneShape) -> None:
    """Write how the switches of a plane find the way: which index lies below, where the links down and up begin."""
    t0, t1, t2 = (np.arange(count, dtype=np.int64) for count in (shape.t0_count, shape.t1_count, shape.t2_count))
    tiers = (
        (shape.first_t0, t0, t0, shape.host_down + 0 * t0, 1, 1, shape.fabric_up, shape.t0_up),
        (shape.first_t1, t1, t1 // max(1, shape.t1_per_pod), _t1_down(shape, t1), shape.t0_up, shape.t0_bundle,
         shape.core_up, shape.t1_up),
        (shape.first_t2, t2, t2 // max(1, shape.t2_per_site), _t2_down(shape, t2), shape.t1_per_pod * shape.t1_up,
         shape.t1_bundle, 0, 0),
    )  # fmt: skip
    for tier, (first, index, own, down, stride, bundle, up, ups) in enumerate(tiers):
        here = slice(first, first + len(index))
        if tier == shape.tiers - 1 and shape.long:
            up, ups = shape.long_out, shape.long
        column(network.nodes, "own")[here] = own
        column(network.nodes, "down_base")[here] = down
        column(network.nodes, "down_stride")[here] = stride
        column(network.nodes, "down_bundle")[here] = bundle
        column(network.nodes, "up_base")[here] = _up_base(shape, tier, index, up, ups)
        column(network.nodes, "up_count")[here] = ups


def _up_base(shape: PlaneShape, tier: int, index: Ints, up: int, ups: int) -> Ints:
    if tier == shape.tiers - 1 and shape.long:  # the second site's switches send back over the twin links
        far = index >= shape.top_per_site
        back: Ints = shape.long_back + (index - shape.top_per_site) * ups
        return np.where(far, back, shape.long_out + index * ups)
    return up + index * ups


def _t1_down(shape: PlaneShape, t1: Ints) -> Ints:
    """Return the link from a T1 to the T0 of index 0, were it in its pod: offsets count T0s of the whole plane."""
    first: Ints = shape.fabric_down + t1 % max(1, shape.t1_per_pod) * shape.t0_bundle
    return first


def _t2_down(shape: PlaneShape, t2: Ints) -> Ints:
    row, position = np.divmod(t2 % max(1, shape.t2_per_site), max(1, shape.t1_per_pod))
    first: Ints = shape.core_down + position * shape.t1_up + row * shape.t1_bundle
    return first


def _lay_nics(network: Network, topology: Topology) -> None:
    nic = np.arange(topology.nics, dtype=np.int64)
    for plane, shape in enumerate(topology.planes):
        here = slice(plane, None, len(topology.planes))
        t0 = shape.t0_of(nic)
        column(network.nic_ports, "link")[here] = shape.host_up + nic
        column(network.nic_ports, "t0")[here] = t0
        column(network.nic_ports, "pod")[here] = shape.pod_of(t0)
        column(network.nic_ports, "site")[here] = nic // shape.nics_per_site


def _lay_shards(network: Network, topology: Topology, hops: int, batch: int) -> None:
    """Give each shard an equal run of the NICs and of every tier of every plane."""
    count = len(network.shards)
    shard_of = np.zeros(topology.nodes, dtype=np.int64)
    group = topology.node_plane.astype(np.int64) * 4 + topology.node_tier
    for kind in np.unique(group):
        members = np.flatnonzero(group == kind)
        shard_of[members] = np.arange(len(members)) * count // len(members)
    order = np.argsort(shard_of, kind="stable")
    sizes = np.bincount(shard_of, minlength=count)
    shards = network.shards
    column(network.members, "node")[:] = order
    column(shards, "first_node")[:] = np.cumsum(sizes) - sizes
    column(shards, "node_count")[:] = sizes
    edges = np.arange(count + 1) * hops // count
    column(shards, "fresh")[:] = edges[:-1]
    column(shards, "fresh_end")[:] = edges[1:]
    column(shards, "free")[:] = NONE
    column(shards, "earliest")[:] = NEVER
    column(shards, "batch_base")[:] = np.arange(count) * batch
    column(shards, "batch_size")[:] = batch
    column(shards, "bucket_base")[:] = np.arange(count) * (2 * batch + 2)
