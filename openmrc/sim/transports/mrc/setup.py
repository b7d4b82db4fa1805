"""Set up MRC for a traffic: an engine with a queue pair at both ends of every connection, in state RTS.

A connection carries data one way. Both ends have the full set of EVs: the destination finds a return path among all of
them. Windows are no longer than the connection's traffic, and rows of sent packets no
more than its packets, to limit memory.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.base.ranges import refuse_outside
from openmrc.core import rng
from openmrc.core.arrays import Ints
from openmrc.core.jit import entry, kernel
from openmrc.core.rows import Int, Table, column, table
from openmrc.engine import lifecycle, messages
from openmrc.engine.paths import ev_states
from openmrc.engine.requester.probes import MAX_EVS
from openmrc.engine.responder import regions
from openmrc.engine.state.build import MPR_UNIT, TableSizes, build
from openmrc.engine.state.machines import EvEvent, QpEvent, QpState
from openmrc.engine.state.params import Settings
from openmrc.engine.state.queue_pairs import INFINITE_RETRIES
from openmrc.engine.state.tables import Cause, Engine, EventKind, WriteRequest
from openmrc.errors import ConfigError
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop.failures import ConnectionFailure
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.network.forwarding import graph_routes
from openmrc.sim.network.forwarding.switch import T0_DIGIT, T1_DIGIT
from openmrc.sim.network.network_tables import Network, Routing, Service
from openmrc.sim.network.reach import reaches
from openmrc.sim.transports.mrc.connections import Connections, connections
from openmrc.sim.transports.mrc.frames import MrcFrame
from openmrc.sim.transports.mrc.tap import CaptureTap, taps
from openmrc.sim.transports.mrc.transport import R_KEY, Mrc, QpClass, Tally
from openmrc.sim.workloads.traffic import Traffic
from openmrc.units import NEVER, PS_PER_US, ps_from_us, us_from_ps
from openmrc.wire.entropy import on_plane

_PD = 1
# Bytes on the wire: Ethernet with preamble and gap (38), two IPv6 headers of SRv6 (80), UDP (8); then BTH, METH, TSETH,
# RETH and ICRC of a write (40), or BTH, SETH, CC_STATE and ICRC of a SACK (52). A trimmed packet keeps its headers.
_HEADER, _SACK = 38 + 80 + 8 + 40, 38 + 80 + 8 + 52
_WIMMS = 32  # writes with immediate of a queue pair that are out at once
_ENOUGH = 16  # EVs in rotation where they share paths: the loss of one EV still costs its path little
_COUNTERS = (
    "sent_packets", "retransmitted", "timeouts", "inferred_losses", "spurious", "nacks_received", "sacks_received",
    "trimmed_arrivals", "marked_arrivals", "duplicates", "sacks_sent", "probes_sent",
)  # fmt: skip
_TALLIED: dict[str, EventKind | EvEvent] = {
    "lost": EvEvent.LOST,  # EVs taken out of use after a loss
    "always_skip": EvEvent.SACK_ALWAYS_SKIP,  # ... at the responder's request
    "probes_answered": EvEvent.PROBES_ANSWERED,  # EVs restored
    "probe_marked": EvEvent.PROBE_MARKED,
    "least_bad": EvEvent.LEAST_BAD,
    "arrived": EvEvent.ARRIVED,  # ... whose loss was none
    "local_ports": EventKind.LOCAL_PORTS,  # changes of its own ports
    "peer_ports": EventKind.PEER_PORTS,  # Port Status Updates with an effect
    "qp_errors": EventKind.QP_ERROR,
    "silences": EventKind.SILENT_PORT,  # ports that a queue pair found silent
}


@dataclass(frozen=True)
class MrcTransport:
    """MRC with the engine's defaults, fitted to the fabric. EVs are per queue pair, spread over its planes.

    128 to 256 EVs in rotation are published as typical, with a backup set of unknown size (arXiv 2605.04333).
    """

    settings: Settings | None = None  # None: base RTT and rate from the fabric
    network: NetworkSettings = field(  # switches mark in mid-fabric only (arXiv 2605.04333)
        default_factory=lambda: NetworkSettings(
            header=_HEADER, trim_size=_HEADER, control_size=_SACK, ecn_last_hop=False
        )
    )
    evs: int = 128  # in rotation
    reserve: float = 0.25  # EVs in reserve, as a share of those in rotation
    timeout_us: float = 131.0
    linear_count: int = 7
    exponential_count: int = 7
    capture: CaptureTap = field(default_factory=CaptureTap)
    name: str = "mrc"

    def __post_init__(self) -> None:
        """Refuse invalid settings, naming the field."""
        refuse_outside(self, evs=(1, MAX_EVS // 2), reserve=(0, 1), timeout_us=(1, 10**9))
        refuse_outside(self, linear_count=(0, (1 << 15) - 1), exponential_count=(0, INFINITE_RETRIES))

    def build(self, topology: Topology, traffic: Traffic, network: Network, seed: int) -> Mrc:
        """Return the state, every queue pair ready to send."""
        plan = self.network
        settings = fitted(topology, plan, self.settings)
        wires = connections(traffic, settings.mtu)
        if len(traffic.size) and int(traffic.size.max()) > messages.MAX_MESSAGE:
            raise ConfigError(
                f"size {int(traffic.size.max())}: an MRC message has at most {messages.MAX_MESSAGE} bytes"
            )
        ends = _Ends(topology, wires)
        planes = network.config[0].planes
        fans = _fans(topology, network, wires, ends)
        active = _evs_in_rotation(max(1, self.evs // planes), fans, network.config[0].routing)
        layout = _layout(wires, ends, topology.nics, planes, active + int(active * self.reserve))
        engine = build(layout, settings, packets=len(network.shards), seed=seed, all_used=True)
        _connect(engine, self, settings, wires, ends)
        _open_peers(engine, ends.peer_address)
        openings = _openings(active, wires, ends, network, seed)
        _open_queue_pairs(engine, openings, fans, threads=len(network.shards))
        column(network.flows, "handle")[:] = np.append(ends.row_of_source, -1)[wires.of_message]
        kept = taps(engine, topology.nics, self.capture)
        return Mrc(
            engine,
            table(MrcFrame, len(network.hops)),
            table(Tally, topology.nics),
            kept,
            table(WriteRequest, topology.nics),
            _classes(wires, ends, network),
        )

    def counters(self, state: Mrc) -> dict[str, Any]:
        """Return totals of the queue pairs' counters, and the windows at this moment."""
        totals: dict[str, Any] = {name: int(column(state.engine.qps, name).sum()) for name in _COUNTERS}
        for name, count in _tallied(state).items():
            totals["qp_errors" if name == "qp_errors" else f"ev_{name}"] = count
        windows = column(state.engine.peers, "cwnd")
        totals["cwnd_mean"] = float(windows.mean()) if len(windows) else 0.0
        return totals

    def series(self, state: Mrc) -> dict[str, int]:
        """Return EV transitions and port changes by cause, and how many EVs are out of use now."""
        engine = state.engine
        summary = _tallied(state)
        summary["evs_out"] = int((column(engine.qps, "ev_count") - column(engine.qps, "good_evs")).sum())
        summary["retransmitted"] = int(column(engine.qps, "retransmitted").sum())
        return summary

    def windows(self, state: Mrc, network: Network, flows: Ints) -> dict[str, NDArray[Any]]:
        """Return the window towards each flow's destination, the bytes in flight, and the round-trip time."""
        qp = column(network.flows, "handle")[flows]
        peer = column(state.engine.qps, "peer")[qp]
        peers = state.engine.peers
        return {
            "cwnd_bytes": column(peers, "cwnd")[peer],
            "inflight_bytes": np.maximum(column(peers, "inflight")[peer], 0),
            "srtt_us": column(peers, "srtt")[peer] / PS_PER_US,
            "good_evs": column(state.engine.qps, "good_evs")[qp],
        }

    def failures(self, state: Mrc, network: Network) -> list[ConnectionFailure]:
        """Return the queue pairs in ERROR, with the path of the oldest packet that was never acknowledged."""
        engine = state.engine
        return [
            _failure(engine, network, int(qp)) for qp in np.flatnonzero(column(engine.qps, "state") == QpState.ERROR)
        ]


def _tallied(state: Mrc) -> dict[str, int]:
    """Return the events of all NICs by name."""
    kinds, causes = (column(state.tallies, name).sum(axis=0) for name in ("kinds", "causes"))
    return {name: int((causes if isinstance(event, EvEvent) else kinds)[event]) for name, event in _TALLIED.items()}


def _failure(engine: Engine, network: Network, qp: int) -> ConnectionFailure:
    row = engine.qps[qp]
    flows = np.flatnonzero((column(network.flows, "handle") == qp) & (column(network.flows, "failed_at") < NEVER))
    at = column(network.flows, "failed_at")[flows]
    waits = row.unack_psn < row.next_psn
    ev = engine.evs[engine.sent[row.sent_base + (row.unack_psn & row.sent_mask)].ev]
    return ConnectionFailure(
        cause=Cause(row.cause).name.lower().replace("_", " "),
        nic=row.endpoint,
        peer=engine.peers[row.peer].address,
        flow=int(flows[np.argmin(at)]) if len(flows) else -1,
        at=int(at.min()) if len(flows) else NEVER,
        progressed_at=row.heard_at,
        plane=ev.port if waits else -1,
        ev=ev.value if waits else -1,
    )


def fitted(topology: Topology, network: NetworkSettings, settings: Settings | None) -> Settings:
    """Return settings with the fabric's rate and longest round trip, unless given."""
    if settings is not None:
        return settings
    ports = reaches(topology, network.mtu, network.header)
    rate, longest = sum(port.rate for port in ports), max(port.round_trip for port in ports)
    return Settings(
        mtu=network.mtu, link_gbps=rate / 1e9, base_rtt_us=us_from_ps(longest), trimming=network.trimming > 0
    )


class Opening:
    """What a queue pair needs to be opened besides its columns; one row each."""

    active: Int  # active EVs per rotation
    receives: Int
    ev_seed: Int
    single_path: Int  # 1: an EV profile of one EV
    hashed: Int  # 1: switches hash, so that EVs are drawn at random


class Fan:
    """The paths of one rotation as numbers of choices per tier; one row per port, or per rotation."""

    first: Int
    second: Int
    third: Int


def _classes(wires: Connections, ends: _Ends, network: Network) -> Table[QpClass]:
    if network.config[0].services <= Service.SECOND:
        return table(QpClass, 1)
    classes = table(QpClass, 2 * wires.count)
    column(classes, "second")[:] = wires.second_class[ends.connection] == 1
    return classes


class _Ends:
    """Both ends of every connection, ordered by NIC: the rows of queue pairs and peers."""

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
        self.peer_row = row_of[(order + count) % (2 * count)] if count else order
        self.qps = np.bincount(at, minlength=topology.nics)
        pairs = at[order] * topology.nics + remote[order]
        unique, self.peer = np.unique(pairs, return_inverse=True)
        self.peers = np.bincount(unique // topology.nics, minlength=topology.nics)
        self.peer_address = unique % topology.nics


def _evs_in_rotation(most: int, fans: Table[Fan], routing: int) -> int:
    """Return how many EVs of a plane are in rotation, at most `most`.

    Where there are no more paths, each is in rotation equally often. Of EVs that share paths no more than `_ENOUGH`
    are: a mark acts when the rotation comes to its EV, and should not be older than a round trip.
    """
    paths = int((column(fans, "first") * column(fans, "second") * column(fans, "third")).max(initial=1))
    if paths > most or routing != Routing.ENTROPY:
        return most
    enough = max(paths, min(most, _ENOUGH))
    return enough - enough % paths


def _layout(wires: Connections, ends: _Ends, nics: int, planes: int, evs: int) -> TableSizes:
    mpr = _mprs(wires)[ends.connection]
    source, watched = ends.is_source, wires.watched[ends.connection]
    return TableSizes(
        endpoints=nics,
        ports=planes,
        peers=ends.peers,
        qps=ends.qps,
        regions=1,
        controls=32,
        events=16,
        sends=np.where(source, wires.messages[ends.connection], 0),
        receives=np.where(source, 0, watched),
        window=np.where(source, np.minimum(mpr * MPR_UNIT, wires.packets[ends.connection]), 0),
        tracked=np.where(source, 0, mpr * MPR_UNIT),
        wimms=np.where(source | (watched == 0), 0, _WIMMS),
        mark_rows=np.where(source, 0, 1),
        evs_per_rotation=evs,
    )


def _mprs(wires: Connections) -> Ints:
    """Return each connection's window (unit 128 PSNs): 1,024 PSNs, or all packets of the connection."""
    units = np.clip(-(-wires.packets // MPR_UNIT), 1, 8)
    return np.left_shift(1, np.ceil(np.log2(units)).astype(np.int64))


def _connect(engine: Engine, transport: MrcTransport, settings: Settings, wires: Connections, ends: _Ends) -> None:
    """Write what the ends of every connection have agreed on."""
    mpr = _mprs(wires)[ends.connection]
    agreed = {
        "peer": ends.peer,
        "dest_qpn": column(engine.qps, "qpn")[ends.peer_row],
        "pd": _PD,
        "access": regions.Access.REMOTE_WRITE,
        "path_mtu": settings.mtu,
        "timeout": ps_from_us(transport.timeout_us),
        "linear_count": transport.linear_count,
        "exponential_count": transport.exponential_count,
        "mpr": mpr,
        "mpr_dest": mpr,
        "max_wimm": _WIMMS,
        "max_wimm_dest": _WIMMS,
        "trim_nack_dest": settings.trimming,
    }
    for name, values in agreed.items():
        column(engine.qps, name)[:] = values


def _openings(active: int, wires: Connections, ends: _Ends, network: Network, seed: int) -> Table[Opening]:
    rows = table(Opening, 2 * wires.count)
    column(rows, "active")[:] = active
    column(rows, "receives")[:] = np.where(ends.is_source, 0, wires.watched[ends.connection])
    column(rows, "single_path")[:] = np.where(ends.is_source, wires.single_path[ends.connection], 0)
    column(rows, "ev_seed")[:] = rng.seeded(seed, 7) ^ (np.arange(2 * wires.count) * 0x9E3779B1 & 0xFFFFFFFF)
    column(rows, "hashed")[:] = network.config[0].routing != Routing.ENTROPY
    return rows


def _fans(topology: Topology, network: Network, wires: Connections, ends: _Ends) -> Table[Fan]:
    """Return the paths of every port of a regular fabric; of every rotation of an irregular one."""
    if topology.planes:
        fans = table(Fan, len(topology.planes))
        for row, shape in enumerate(topology.planes):
            choices = [shape.t0_up, shape.t1_up, 0]
            if max(choices) > 1 << T0_DIGIT:
                raise ConfigError(f"plane {row}: {max(choices)} uplinks; an EV names one of {1 << T0_DIGIT}")
            choices[shape.tiers - 1] = shape.long  # the highest tier chooses the link to the other site
            fans[row].first, fans[row].second, fans[row].third = (max(1, count) for count in choices)
        return fans
    here = np.where(ends.is_source, wires.source[ends.connection], wires.destination[ends.connection])
    there = np.where(ends.is_source, wires.destination[ends.connection], wires.source[ends.connection])
    ways = graph_routes.ways_between(network, here, there, network.config[0].planes)
    fans = table(Fan, ways.size)
    column(fans, "first")[:] = np.maximum(1, ways.ravel())
    for name in ("second", "third"):
        column(fans, name)[:] = 1
    return fans


@entry
def _open_peers(engine: Engine, addresses: Ints) -> None:
    for peer in range(len(addresses)):
        lifecycle.open_peer(engine, 0, peer, addresses[peer])
    for nic in range(len(engine.endpoints)):
        regions.register(engine, nic, R_KEY, 0, 1 << 62, regions.Access.REMOTE_WRITE.value, _PD, 0)


def _open_queue_pairs(engine: Engine, openings: Table[Opening], fans: Table[Fan], threads: int) -> None:
    """Bring every queue pair to RTS; each thread serves a range of NICs."""
    firsts = np.append(column(engine.endpoints, "qp_base"), len(openings))
    edges = firsts[np.arange(threads + 1) * len(engine.endpoints) // threads]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda first, end: _open_all(engine, openings, fans, first, end), edges[:-1], edges[1:]))


@entry
def _open_all(engine: Engine, openings: Table[Opening], fans: Table[Fan], first: int, end: int) -> None:
    for qp in range(first, end):
        _open(engine, openings, fans, qp)


@kernel
def _open(engine: Engine, openings: Table[Opening], fans: Table[Fan], qp: int) -> None:
    opening = openings[qp]
    _assign_evs(engine, openings, fans, qp)
    for event in (QpEvent.TO_INIT.value, QpEvent.TO_RTR.value, QpEvent.TO_RTS.value):
        lifecycle.move(engine, 0, qp, event)
    if opening.single_path == 1:
        _keep_one_ev(engine, qp, opening.ev_seed)
    for receive in range(opening.receives):
        messages.post_receive(engine, qp, receive)


@kernel
def _keep_one_ev(engine: Engine, qp: int, seed: int) -> None:
    """Deny all EVs except one: a queue pair on a single path, like a connection of TCP or plain RoCE."""
    row = engine.qps[qp]
    rotation = engine.rotations[row.rotation_base + (rng.following(seed | 1) >> 8) % row.rotation_count]
    kept = rotation.ev_base + engine.slots[rotation.ev_base].ev
    row.min_active_evs = 1
    for ev in range(row.ev_base, row.ev_base + row.ev_count):
        if ev != kept:
            ev_states.transition(engine, 0, ev, EvEvent.DENY.value)


@kernel
def _assign_evs(engine: Engine, openings: Table[Opening], fans: Table[Fan], qp: int) -> None:
    """Assign every rotation a random subset of its paths, without duplicates or evenly spaced."""
    row, opening = engine.qps[qp], openings[qp]
    random = opening.ev_seed
    for rotation in range(row.rotation_count):
        random = rng.following(random | 1)
        first = random
        random = rng.following(random)
        fan = fans[(qp * row.rotation_count + rotation) % len(fans)]  # a row per port: the same for every queue pair
        paths_here = fan.first * fan.second * fan.third
        stride = _coprime(random, paths_here)
        for k in range(engine.rotations[row.rotation_base + rotation].total):
            path = (first + k * stride) % paths_here
            above = path // fan.first
            value = path % fan.first | (above % fan.second) << T0_DIGIT | (above // fan.second) << (T0_DIGIT + T1_DIGIT)
            if opening.hashed == 1:
                random = rng.following(random)
                value = random
            ev_states.set_new_ev(engine, qp, rotation, k, on_plane(rotation, value))
    ev_states.begin(engine, 0, qp, opening.active, max(1, opening.active * row.rotation_count // 4))


@kernel
def _coprime(random: int, count: int) -> int:
    """Return a stride that visits all `count` paths."""
    stride = random % count | 1
    while math.gcd(stride, count) != 1:
        stride += 2
    return stride
