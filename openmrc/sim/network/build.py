"""Build the simulator's tables from a topology: `build(topology, settings, ...) -> Network`.

Links keep their numbers of the topology. Buffers and ECN thresholds are shares of a plane's bandwidth-delay product, as
in UEC 1.0.3 pp. 418-419, or the fabric's own buffers.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.base.ranges import AT_LEAST_ZERO, refuse_outside
from openmrc.core import host_memory, rng
from openmrc.core.arrays import Ints
from openmrc.core.rows import column, table
from openmrc.errors import ConfigError
from openmrc.fabric.model.shape import PlaneShape
from openmrc.fabric.model.topology import NodeKind, Topology
from openmrc.sim.network import network_tables
from openmrc.sim.network.domains import with_domains
from openmrc.sim.network.forwarding.graph_routes import Routes, routes_of
from openmrc.sim.network.network_tables import (
    BYTE_TIME_BITS,
    FOLLOWED,
    LARGEST,
    NONE,
    PS_PER_S_AND_BITS,
    Network,
    Routing,
    Service,
    Trimming,
)
from openmrc.sim.network.reach import NicReach, reaches
from openmrc.units import NEVER

PART = 1 << 18  # links initialised at a time: intermediate columns of few bytes stay in memory that is in use already
_SMALLEST = 64  # bytes on the wire: bounds the number of packets per window


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """Settings of switches; sizes in bytes, thresholds as shares of the plane's bandwidth-delay product."""

    mtu: int = 4096  # payload of a full packet
    header: int = 64  # bytes of a data packet besides its payload; 64 is htsim's, transports have their own
    control_size: int = 64  # acknowledgements and similar packets
    trim_size: int = 64
    routing: Routing = Routing.ENTROPY
    trimming: Trimming = Trimming.EITHER
    trim_to_sender: bool = False  # trimmed packets turn back to their source (proposed in SAI pull request 2349)
    buffer_bdp: float = 1.0  # 0: the buffers of the fabric
    last_hop_buffer_bdp: float = 1.0  # UEC: 1.5
    control_buffer_bdp: float = 2.0  # trimmed headers and acknowledgements
    ecn_low_bdp: float = 0.2
    ecn_high_bdp: float = 0.8  # 0: no marking
    ecn_last_hop: bool = True  # MRC turns it off on the link to the NIC
    second_class_share: float = 0.2  # of a link, for workloads in the second class while both wait; 0: they go last
    lossless: bool = False  # PFC: senders are paused, no packet is dropped or trimmed
    pause_packets: int = 15  # full packets from one link above which its sender is paused (htsim's defaults)
    resume_packets: int = 12
    # For transports whose routing and bonds react to failures (sim.scenario.convergence); MRC's tables are static.
    # An assumption. RFC 7938 §7.1 describes detection alone: milliseconds for a lost carrier, less than a second
    # with BFD, seconds with BGP's hold timer.
    reroute_delay_us: float = 100_000.0
    failover_delay_us: float = 100_000.0  # worst case: Linux's bonding.rst has "miimon" at 100 ms by default

    def __post_init__(self) -> None:
        """Refuse invalid settings, naming the field."""
        for name in ("mtu", "control_size", "trim_size"):
            refuse_outside(self, **{name: (1, LARGEST // 2)})
        refuse_outside(self, pause_packets=(1, 1 << 20))
        for name in ("buffer_bdp", "last_hop_buffer_bdp", "control_buffer_bdp", "ecn_low_bdp", "ecn_high_bdp"):
            refuse_outside(self, **{name: AT_LEAST_ZERO})
        refuse_outside(self, second_class_share=(0, 0.99))
        refuse_outside(self, header=(0, LARGEST // 2), resume_packets=(0, self.pause_packets))
        refuse_outside(self, reroute_delay_us=AT_LEAST_ZERO, failover_delay_us=AT_LEAST_ZERO)
        if self.ecn_high_bdp > 0 and self.ecn_low_bdp > self.ecn_high_bdp:
            raise ConfigError(f"ecn_low_bdp: {self.ecn_low_bdp} is above ecn_high_bdp, {self.ecn_high_bdp}")
        if self.trim_to_sender and self.trimming == Trimming.NEVER:
            raise ConfigError("trim_to_sender: True: no packet is trimmed; remove it, or set trimming to either")


@dataclass(frozen=True)
class _Extent:
    """What decides how many rows each table has."""

    plain: Topology  # the fabric alone
    topology: Topology  # and its scale-up networks
    ports: list[NicReach]  # of a NIC
    routes: Routes | None  # None: a fabric of planes, whose switches compute them
    hops: int  # packets in flight
    batch: int  # packets that can reach one node in a window
    shards: int
    services: int

    @property
    def has_scale_up(self) -> bool:
        """Whether there are links beside those of the fabric."""
        return self.topology.links > self.plain.links


def build(
    topology: Topology, settings: NetworkSettings, hops: int, seed: int = 1, shards: int = 1, services: int = 2
) -> Network:
    """Return the tables of a network with room for `hops` packets in flight; no flows yet.

    `services` is 3 for a network with a second class of data (`sharing`), which a lossless one cannot have.
    Scale-up networks follow the fabric: their nodes and links have higher numbers.
    """
    if settings.lossless and services > Service.SECOND:
        raise ConfigError("second_class: the ports of this transport are lossless, and their PAUSE knows one class")
    plain, topology = topology, with_domains(topology)
    ports = reaches(plain, settings.mtu, settings.header)
    routes = None if plain.planes else routes_of(plain, settings.mtu)
    _refuse_too_many_switches(plain)
    lookahead, shortest = _shortest_delays(topology)
    extent = _Extent(plain, topology, ports, routes, hops, _batch_size(topology, lookahead), shards, services)
    network = _allocate(extent, settings.lossless)
    written = [network.ports, network.queues, network.wires, network.in_links, network.outgoing, network.next_hops]
    host_memory.require(written, f"{topology.links:,} links and {topology.nics:,} NICs")
    _init_rules(network, settings, len(ports), lookahead, shortest)
    network.config[0].services = services
    column(network.class_shares, "share")[:] = settings.second_class_share
    _init_lists(network)
    parts = [slice(first, min(first + PART, topology.links)) for first in range(0, topology.links, PART)]
    with ThreadPoolExecutor(shards) as pool:  # most of the time is the kernel's, to supply the pages that a part fills
        list(pool.map(lambda part: _init_ports(network, topology, settings, ports, seed, part), parts))
    _init_nodes(network, topology, seed)
    if settings.lossless:
        _init_queues(network, topology, settings)
    _init_routing(network, extent)
    _init_shards(network, extent)
    return network


def _allocate(extent: _Extent, lossless: bool) -> Network:
    topology, ports, routes = extent.topology, extent.ports, extent.routes
    services, shards, batch = extent.services, extent.shards, extent.batch
    return Network(
        hops=table(network_tables.Hop, extent.hops),
        channels=table(network_tables.LinkFifo, topology.links * services),
        outgoing=table(network_tables.Outgoing, topology.links * services * 2),
        ports=table(network_tables.EgressPort, topology.links),
        class_shares=table(network_tables.ClassShares, topology.links if services > Service.SECOND else 1),
        queues=table(network_tables.Queue, topology.links if lossless else 1),
        port_timers=table(network_tables.PortTimer, topology.links if lossless else 1),
        wires=table(network_tables.Wire, topology.links),
        link_impairments=table(network_tables.LinkImpairments, topology.links),
        link_losses=table(network_tables.LinkLosses, topology.links),
        nodes=table(network_tables.Node, topology.nodes),
        mails=table(network_tables.Mail, topology.nodes * 2),
        link_mails=table(network_tables.Mail, topology.links * 2),
        in_links=table(network_tables.InLink, topology.links),
        nics=table(network_tables.SimulatedNic, topology.nics),
        nic_ports=table(network_tables.NicPort, topology.nics * len(ports)),
        scale_up_ports=table(network_tables.ScaleUpPort, topology.nics if extent.has_scale_up else 0),
        routes=table(network_tables.SwitchRoute, len(routes.first) if routes else 0),
        next_hops=table(network_tables.NextHop, len(routes.links) if routes else 0),
        probes=table(network_tables.SimulatedProbe, 0),
        probe_links=table(network_tables.ProbeLink, 0),
        flows=table(network_tables.Flow, 0),
        releases=table(network_tables.Release, 0),
        signals=table(network_tables.ReleaseSignal, 0),
        config=table(network_tables.NetworkConfig, 1),
        shards=table(network_tables.Shard, shards),
        members=table(network_tables.Member, topology.nodes),
        batch=table(network_tables.BatchEntry, batch * shards),
        buckets=table(network_tables.Bucket, (2 * batch + 2) * shards),
        follows=table(network_tables.Follow, FOLLOWED * shards),
    )


def _refuse_too_many_switches(topology: Topology) -> None:
    for shape in topology.planes:
        if shape.t0_count > LARGEST:
            name = topology.fabric.name
            raise ConfigError(f"{name}: {shape.t0_count:,} T0s in a plane; at most {LARGEST:,} can be simulated")


def _shortest_delays(topology: Topology) -> tuple[int, int]:
    """Return the shortest delay (ps) of links that do not end at a NIC, and of all.

    The former bounds a window: NICs are served after the switches that send to them.
    """
    delays, to_nics = topology.delays(), topology.link_destination < topology.nics
    if delays.min() <= 0:
        raise ConfigError(f"{topology.fabric.name}: a link of 0 ns; every link needs a propagation delay above 0")
    if (to_nics & (topology.link_source < topology.nics)).any():
        raise ConfigError(f"{topology.fabric.name}: a link joins two NICs; put a switch between them")
    return int(delays[~to_nics].min()), int(delays.min())


def _batch_size(topology: Topology, lookahead: int) -> int:
    """Return the largest number of packets that can reach one node in a window."""
    per_link = lookahead * (topology.link_rate / 8e12) / _SMALLEST + 4
    at_nodes = np.bincount(topology.link_destination, weights=2 * per_link, minlength=topology.nodes)
    return int(at_nodes.max()) + 1


def _init_rules(network: Network, settings: NetworkSettings, ports: int, lookahead: int, shortest: int) -> None:
    rules = network.config[0]
    for name in ("routing", "trim_size", "trim_to_sender", "control_size", "header", "lossless"):
        setattr(rules, name, getattr(settings, name))
    rules.planes = ports
    rules.lookahead = lookahead
    rules.shortest_delay = shortest


def _init_lists(network: Network) -> None:
    for lists in (network.channels, network.outgoing):
        np.asarray(lists).view(np.int32)[:] = NONE
    column(network.nics, "pending")[:] = NONE
    column(network.nics, "wake")[:] = NEVER
    column(network.nodes, "next_at")[:] = NEVER
    column(network.in_links, "due")[:] = NEVER


def _bdps(topology: Topology, ports: list[NicReach], links: slice) -> NDArray[np.float64]:
    """Return the bandwidth-delay products of links (bytes): the rate times the round-trip time of the plane."""
    rate = topology.link_rate[links]
    if not topology.planes:
        return np.asarray(rate * (ports[0].round_trip / PS_PER_S_AND_BITS), np.float64)
    products, rates = (
        np.array(each)[topology.link_plane[links]] for each in zip(*((p.bdp, p.rate) for p in ports), strict=True)
    )
    # On a link faster or slower than the NIC's port, a full buffer takes the same time to drain.
    return np.asarray(products * (rate / rates), np.float64)


def _init_ports(
    network: Network, topology: Topology, settings: NetworkSettings, reach: list[NicReach], seed: int, links: slice
) -> None:
    ports, wires = np.asarray(network.ports)[links], np.asarray(network.wires)[links]
    bdp = _bdps(topology, reach, links)
    last_hop = topology.link_destination[links] < topology.nics
    byte_time = (PS_PER_S_AND_BITS << BYTE_TIME_BITS) // topology.link_rate[links]
    column(ports, "byte_time")[:] = byte_time
    column(ports, "delay")[:] = topology.delays(links)
    column(ports, "destination")[:] = topology.link_destination[links]
    column(ports, "last_hop")[:] = last_hop
    column(ports, "trimming")[:] = settings.trimming
    column(ports, "tail")[:] = NONE
    column(ports, "random")[:] = _seeds(seed, 1, links)
    column(wires, "random")[:] = _seeds(seed, 2, links)
    packet = settings.mtu + settings.header
    share = np.where(last_hop, settings.last_hop_buffer_bdp, settings.buffer_bdp)
    buffers = np.ceil(bdp * share / packet) * packet if settings.buffer_bdp > 0 else topology.link_buffer[links]
    column(ports, "capacity")[:] = _drain_times(buffers, byte_time)
    column(ports, "control_capacity")[:] = _drain_times(bdp * settings.control_buffer_bdp, byte_time)
    senders = topology.node_kind[topology.link_source[links]]
    for name in ("capacity", "control_capacity"):
        column(ports, name)[senders == NodeKind.NIC] = NEVER
    marks = (settings.ecn_high_bdp > 0) & (settings.ecn_last_hop | ~last_hop) & (senders == NodeKind.SWITCH)
    column(wires, "ecn_low")[:] = np.where(marks, np.ceil(bdp * settings.ecn_low_bdp / packet) * packet, NONE)
    column(wires, "ecn_high")[:] = np.where(marks, np.ceil(bdp * settings.ecn_high_bdp / packet) * packet, 0)


def _init_queues(network: Network, topology: Topology, settings: NetworkSettings) -> None:
    """Give every port a real queue without limit; the port marks packets, not the receiver of its link."""
    queues, wires, ports = network.queues, network.wires, network.ports
    packet = settings.mtu + settings.header
    for name in ("head", "tail", "serving"):
        column(queues, name)[:] = NONE
    for name in ("departs_at", "check_at"):
        column(queues, name)[:] = NEVER
    column(network.port_timers, "slot")[:] = NONE
    column(queues, "reverse")[:] = topology.link_reverse
    column(queues, "pause_above")[:] = settings.pause_packets * packet
    column(queues, "resume_below")[:] = settings.resume_packets * packet
    for name in ("ecn_low", "ecn_high"):
        column(queues, name)[:] = column(wires, name)
    column(wires, "ecn_low")[:] = NONE
    column(ports, "control_capacity")[:] = NEVER
    counts = np.bincount(topology.link_source, minlength=topology.nodes)
    column(network.nodes, "heap_base")[:] = np.cumsum(counts) - counts


def _drain_times(buffers: NDArray[Any], byte_time: Ints) -> Ints:
    """Return the drain time of full buffers (ps); 0 bytes: no limit."""
    times = buffers * (byte_time / (1 << BYTE_TIME_BITS))
    return np.where(buffers > 0, times, NEVER).astype(np.int64)


def _seeds(seed: int, stream: int, numbers: slice) -> Ints:
    """Return initial states of random generators, none of them 0 (splitmix64's mixer, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        value = np.arange(numbers.start + 1, numbers.stop + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        value += np.uint64(rng.seeded(seed, stream)) << np.uint64(16)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((value >> np.uint64(32)) | np.uint64(1)).astype(np.int64)


def _init_nodes(network: Network, topology: Topology, seed: int) -> None:
    nodes = network.nodes
    order = np.argsort(topology.link_destination, kind="stable")
    counts = np.bincount(topology.link_destination, minlength=topology.nodes)
    column(network.in_links, "link")[:] = order
    column(nodes, "first_in")[:] = np.cumsum(counts) - counts
    column(nodes, "in_count")[:] = counts
    column(nodes, "tier")[:] = topology.node_tier
    column(nodes, "plane")[:] = topology.node_plane
    column(nodes, "salt")[:] = _seeds(seed, 3, slice(0, topology.nodes)) >> 1
    for shape in topology.planes:
        _init_plane(network, shape)


def _init_plane(network: Network, shape: PlaneShape) -> None:
    """Set the forwarding data of a plane's switches: the subtree below, and the first links down and up."""
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
    if tier == shape.tiers - 1 and shape.long:  # the second site's switches use the reverse links
        far = index >= shape.top_per_site
        back: Ints = shape.long_back + (index - shape.top_per_site) * ups
        return np.where(far, back, shape.long_out + index * ups)
    return up + index * ups


def _t1_down(shape: PlaneShape, t1: Ints) -> Ints:
    """Return the link from a T1 to T0 0 as if it were in its pod: offsets count T0s of the whole plane."""
    first: Ints = shape.fabric_down + t1 % max(1, shape.t1_per_pod) * shape.t0_bundle
    return first


def _t2_down(shape: PlaneShape, t2: Ints) -> Ints:
    row, position = np.divmod(t2 % max(1, shape.t2_per_site), max(1, shape.t1_per_pod))
    first: Ints = shape.core_down + position * shape.t1_up + row * shape.t1_bundle
    return first


def _init_nics(network: Network, topology: Topology) -> None:
    nic = np.arange(topology.nics, dtype=np.int64)
    column(network.nics, "ports")[:] = len(topology.planes)
    for plane, shape in enumerate(topology.planes):
        here = slice(plane, None, len(topology.planes))
        t0 = shape.t0_of(nic)
        column(network.nic_ports, "link")[here] = shape.host_up + nic
        column(network.nic_ports, "t0")[here] = t0
        column(network.nic_ports, "pod")[here] = shape.pod_of(t0)
        column(network.nic_ports, "site")[here] = nic // shape.nics_per_site


def _init_routing(network: Network, extent: _Extent) -> None:
    """Set what leads packets to their destinations: routes, or the shape of planes; the ports of NICs and domains."""
    if extent.routes:
        _init_routes(network, extent.routes)
        _init_nics_by_links(network, extent.plain, len(extent.ports))
    else:
        _init_nics(network, extent.plain)
    network.config[0].first_scale_up = extent.plain.links
    if extent.has_scale_up:
        _init_domains(network, extent.plain)


def _init_routes(network: Network, routes: Routes) -> None:
    for name in ("first", "count", "ways"):
        column(network.routes, name)[:] = getattr(routes, name)
    column(network.next_hops, "link")[:] = routes.links
    network.config[0].routed = len(routes.first) // len(network.nics)


def _init_nics_by_links(network: Network, topology: Topology, ports: int) -> None:
    """Assign the ports of every NIC, in the order of its links."""
    own = np.flatnonzero(topology.link_source < topology.nics)
    place = topology.link_source[own].astype(np.int64) * ports + topology.link_port[own]
    column(network.nic_ports, "free_at")[:] = NEVER
    column(network.nic_ports, "free_at")[place] = 0
    column(network.nic_ports, "link")[place] = own
    column(network.nics, "ports")[:] = np.bincount(topology.link_source[own], minlength=topology.nics)


def _init_domains(network: Network, topology: Topology) -> None:
    """Connect the ports of the scale-up domains; their switches find a NIC by its number."""
    nics = topology.nics
    column(network.scale_up_ports, "link")[:] = topology.links + np.arange(nics)
    for name in ("head", "tail"):
        column(network.scale_up_ports, name)[:] = NONE
    column(network.nodes, "down_base")[topology.nodes :] = topology.links + nics
    column(network.nodes, "down_stride")[topology.nodes :] = 1
    here = slice(topology.links, None)
    for name in ("capacity", "control_capacity"):
        column(network.ports, name)[here] = NEVER
    column(network.wires, "ecn_low")[here] = NONE
    if len(network.queues) > 1:
        column(network.queues, "ecn_low")[here] = NONE


def _init_shards(network: Network, extent: _Extent) -> None:
    """Give each shard an equal range of the NICs and of every tier of every plane."""
    topology, count, batch = extent.topology, extent.shards, extent.batch
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
    column(shards, "nic_count")[:] = np.bincount(shard_of[: topology.nics], minlength=count)
    edges = np.arange(count + 1) * extent.hops // count
    column(shards, "fresh")[:] = edges[:-1]
    column(shards, "fresh_end")[:] = edges[1:]
    column(shards, "free")[:] = NONE
    column(shards, "earliest")[:] = NEVER
    column(shards, "batch_base")[:] = np.arange(count) * batch
    column(shards, "batch_size")[:] = batch
    column(shards, "bucket_base")[:] = np.arange(count) * (2 * batch + 2)
    column(shards, "follow_base")[:] = np.arange(count) * FOLLOWED
