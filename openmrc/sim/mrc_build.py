"""Sets up MRC for a traffic: an engine with a queue pair at both ends of every connection, brought to RTS.

A connection carries data one way. Its source's queue pair has the full set of EVs; the twin at the destination only
answers, so a few EVs a plane do. Windows are no longer than the connection's traffic, so that memory follows need.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.core import rng
from openmrc.core.jit import entry, kernel
from openmrc.core.rows import Int, Table, table
from openmrc.engine import lifecycle, messages, paths, regions
from openmrc.engine.build import MPR_UNIT, Layout, build
from openmrc.engine.params import Settings
from openmrc.engine.states import QpEvent
from openmrc.engine.tables import Engine
from openmrc.errors import ConfigError
from openmrc.fabric.topology import Topology
from openmrc.sim.connections import Connections, connections
from openmrc.sim.mrc import R_KEY, Mrc, Tally
from openmrc.sim.mrc_frames import Frame
from openmrc.sim.network import NetworkSettings, column, longest_round_trip
from openmrc.sim.switch import T0_DIGIT
from openmrc.sim.tables import Network, Routing
from openmrc.sim.traffic import Traffic
from openmrc.units import ps_from_us, us_from_ps

Ints = NDArray[np.int64]

_PD = 1
_COUNTERS = (
    "sent_packets", "retransmitted", "timeouts", "inferred_losses", "spurious", "nacks_received", "sacks_received",
    "trimmed_arrivals", "marked_arrivals", "duplicates", "sacks_sent", "probes_sent",
)  # fmt: skip


@dataclass(frozen=True)
class MrcTransport:
    """MRC with the engine's defaults, fitted to the fabric. EVs are per queue pair, spread over its planes."""

    settings: Settings | None = None  # None: base RTT and rate from the fabric
    network: NetworkSettings = field(default_factory=lambda: NetworkSettings(ecn_last_hop=False))
    evs: int = 128
    reserve: float = 0.25  # share of EVs that wait for others to fail
    timeout_us: float = 131.0
    linear_count: int = 7
    exponential_count: int = 7
    name: str = "mrc"

    def network_settings(self) -> NetworkSettings:
        """Return what MRC asks of switches: marks in mid-fabric only (arXiv 2605.04333)."""
        return self.network

    def build(self, topology: Topology, traffic: Traffic, network: Network, seed: int) -> Mrc:
        """Return the state, every queue pair ready to send."""
        return _build(self, topology, traffic, network, seed)

    def counters(self, state: Mrc) -> dict[str, Any]:
        """Return totals of the queue pairs' counters, and the windows at this moment."""
        totals: dict[str, Any] = {name: int(column(state.engine.qps, name).sum()) for name in _COUNTERS}
        for name in Tally.__annotations__:
            totals["qp_errors" if name == "qp_errors" else f"ev_{name}"] = int(column(state.tallies, name).sum())
        totals["cwnd_mean"] = float(column(state.engine.peers, "cwnd").mean())
        return totals


def fitted(topology: Topology, network: NetworkSettings, settings: Settings | None) -> Settings:
    """Return settings with the fabric's rate and longest round trip, unless given."""
    if settings is not None:
        return settings
    rates = [int(topology.link_rate[shape.host_up]) for shape in topology.planes]
    longest = max(longest_round_trip(topology, shape, network) for shape in topology.planes)
    return Settings(
        mtu=network.mtu, link_gbps=sum(rates) / 1e9, base_rtt_us=us_from_ps(longest), trimming=network.trimming > 0
    )


class Opening:
    """How to bring up one queue pair; one row each."""

    peer: Int
    twin: Int  # row of the queue pair at the other end
    mpr: Int  # ours
    mpr_dest: Int
    active: Int  # EVs a lane in rotation
    receives: Int
    ev_seed: Int


class Common:
    """What all queue pairs share; one row."""

    mtu: Int
    timeout: Int  # ps
    linear_count: Int
    exponential_count: Int
    trims: Int
    routing: Int
    paths_t0: Int  # uplinks a T0 has
    paths: Int  # ways between two NICs in a plane


def _build(transport: MrcTransport, topology: Topology, traffic: Traffic, network: Network, seed: int) -> Mrc:
    plan = transport.network
    settings = fitted(topology, plan, transport.settings)
    wires = connections(traffic, settings.mtu)
    if len(traffic.size) and int(traffic.size.max()) > messages.MAX_MESSAGE:
        raise ConfigError(f"size {int(traffic.size.max())}: an MRC message has at most {messages.MAX_MESSAGE} bytes")
    ends = _Ends(topology, wires)
    layout = _layout(transport, topology, wires, ends)
    engine = build(layout, settings, packets=len(network.shards), seed=seed)
    openings, common = _openings(transport, topology, wires, ends, settings, network, seed)
    _open_peers(engine, ends)
    _open_all(engine, openings, common)
    column(network.flows, "handle")[:] = np.where(wires.of_message >= 0, ends.row_of_source[wires.of_message], -1)
    return Mrc(engine, table(Frame, len(network.hops)), table(Tally, topology.nics))


class _Ends:
    """Both ends of every connection, ordered by the NIC they are at: the rows of queue pairs and peers."""

    def __init__(self, topology: Topology, wires: Connections) -> None:
        count = wires.count
        at = np.concatenate([wires.source, wires.destination])
        remote = np.concatenate([wires.destination, wires.source])
        order = np.argsort(at, kind="stable")
        row_of = np.empty(2 * count, dtype=np.int64)
        row_of[order] = np.arange(2 * count)
        self.connection = order % count  # by row
        self.is_source = order < count
        self.row_of_source, self.row_of_destination = row_of[:count], row_of[count:]
        self.twin = row_of[(order + count) % (2 * count)] if count else order
        self.qps = np.bincount(at, minlength=topology.nics)
        pairs = at[order] * topology.nics + remote[order]
        unique, self.peer = np.unique(pairs, return_inverse=True)
        self.peers = np.bincount(unique // topology.nics, minlength=topology.nics)
        self.peer_address = unique % topology.nics


def _layout(transport: MrcTransport, topology: Topology, wires: Connections, ends: _Ends) -> Layout:
    planes = len(topology.planes)
    mpr = _mprs(wires)[ends.connection]
    source = ends.is_source
    evs = max(1, transport.evs // planes)
    return Layout(
        endpoints=topology.nics,
        ports=planes,
        peers=ends.peers,
        qps=ends.qps,
        regions=1,
        controls=64,
        events=16,
        sends=np.where(source, wires.messages[ends.connection], 1),
        receives=np.where(source, 1, np.maximum(1, wires.watched[ends.connection])),
        window=np.where(source, mpr * MPR_UNIT, 1),
        tracked=np.where(source, 1, mpr * MPR_UNIT),
        wimms=np.where(source | (wires.watched[ends.connection] == 0), 1, 32),
        evs_per_lane=np.where(source, evs, min(evs, 2)),
    )


def _mprs(wires: Connections) -> Ints:
    """Return each connection's window (unit 128 PSNs): 1,024 PSNs, or all it will ever send."""
    units = np.clip(-(-wires.packets // MPR_UNIT), 1, 8)
    return np.left_shift(1, np.ceil(np.log2(units)).astype(np.int64))


def _openings(
    transport: MrcTransport,
    topology: Topology,
    wires: Connections,
    ends: _Ends,
    settings: Settings,
    network: Network,
    seed: int,
) -> tuple[Table[Opening], Table[Common]]:
    rows, common = table(Opening, 2 * wires.count), table(Common, 1)
    mpr = _mprs(wires)[ends.connection]
    evs = max(1, transport.evs // len(topology.planes))
    active = max(1, evs - int(evs * transport.reserve))
    column(rows, "peer")[:] = ends.peer
    column(rows, "twin")[:] = ends.twin
    column(rows, "mpr")[:] = column(rows, "mpr_dest")[:] = mpr
    column(rows, "active")[:] = np.where(ends.is_source, active, min(evs, 2))
    column(rows, "receives")[:] = np.where(ends.is_source, 0, wires.watched[ends.connection])
    column(rows, "ev_seed")[:] = rng.seeded(seed, 7) ^ (np.arange(2 * wires.count) * 0x9E3779B1 & 0xFFFFFFFF)
    one = common[0]
    one.mtu = settings.mtu
    one.timeout = ps_from_us(transport.timeout_us)
    one.linear_count = transport.linear_count
    one.exponential_count = transport.exponential_count
    one.trims = int(settings.trimming)
    one.routing = network.rules[0].routing
    one.paths_t0 = max(1, min(shape.t0_up for shape in topology.planes))
    one.paths = min(shape.paths for shape in topology.planes)
    return rows, common


def _open_peers(engine: Engine, ends: _Ends) -> None:
    _open_peer_rows(engine, ends.peer_address)


@entry
def _open_peer_rows(engine: Engine, addresses: Ints) -> None:
    for peer in range(len(addresses)):
        lifecycle.open_peer(engine, 0, peer, addresses[peer])
    for nic in range(len(engine.endpoints)):
        regions.register(engine, nic, R_KEY, 0, 1 << 62, regions.Access.REMOTE_WRITE.value, _PD, 0)


@entry
def _open_all(engine: Engine, openings: Table[Opening], common: Table[Common]) -> None:
    """Bring every queue pair to RTS."""
    for qp in range(len(openings)):
        _open(engine, openings, common, qp)


@kernel
def _open(engine: Engine, openings: Table[Opening], common: Table[Common], qp: int) -> None:
    opening = openings[qp]
    shared = common[0]
    row = engine.qps[qp]
    row.peer = opening.peer
    row.dest_qpn = engine.qps[opening.twin].qpn
    row.pd = _PD
    row.access = regions.Access.REMOTE_WRITE.value
    row.path_mtu = shared.mtu
    row.timeout = shared.timeout
    row.linear_count = shared.linear_count
    row.exponential_count = shared.exponential_count
    row.mpr = opening.mpr
    row.mpr_dest = opening.mpr_dest
    row.max_wimm = 32
    row.max_wimm_dest = 32
    row.trim_nack_dest = shared.trims
    _give_evs(engine, openings, common, qp)
    for event in (QpEvent.TO_INIT.value, QpEvent.TO_RTR.value, QpEvent.TO_RTS.value):
        lifecycle.move(engine, 0, qp, event)
    for receive in range(opening.receives):
        messages.post_receive(engine, qp, receive)


@kernel
def _give_evs(engine: Engine, openings: Table[Opening], common: Table[Common], qp: int) -> None:
    """Give every lane a random subset of the plane's paths, none twice as long as there are enough."""
    row = engine.qps[qp]
    shared = common[0]
    random = openings[qp].ev_seed
    for lane in range(row.lane_count):
        random = rng.following(random | 1)
        first = random
        random = rng.following(random)
        stride = _coprime(random, shared.paths)
        for k in range(engine.lanes[row.lane_base + lane].total):
            path = (first + k * stride) % shared.paths
            value = path % shared.paths_t0 | (path // shared.paths_t0) << T0_DIGIT
            if shared.routing != Routing.ENTROPY:
                random = rng.following(random)
                value = random
            paths.set_ev(engine, qp, lane, k, value)
    active = openings[qp].active
    paths.begin(engine, 0, qp, active, max(1, active * row.lane_count // 4))


@kernel
def _coprime(random: int, count: int) -> int:
    """Return a stride that visits all of `count` paths."""
    stride = random % count | 1
    while _common_divisor(stride, count) != 1:
        stride += 2
    return stride


@kernel
def _common_divisor(a: int, b: int) -> int:
    while b != 0:
        a, b = b, a % b
    return a
