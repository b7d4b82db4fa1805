"""RoCEv2 RC as a transport: its entry points and its setup.

A message is divided into one slice per queue pair between two NICs. Each slice has one path, by ECMP over its own
entropy, unless switches route packets individually (`adaptive`). With several planes a queue pair uses one: the first
between two NICs by a hash of the two, as with a bond, the others on the planes after it.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openmrc.base.ranges import ABOVE_ZERO, AT_LEAST_ZERO, refuse_outside
from openmrc.core import host_memory, rng
from openmrc.core.arrays import Ints
from openmrc.core.jit import kernel
from openmrc.core.rows import column, table
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop.failures import ConnectionFailure
from openmrc.sim.network import completed, transport_api
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.network.forwarding import reroute
from openmrc.sim.network.network_tables import BYTE_TIME_BITS, NONE, Network, Routing, Service, Trimming
from openmrc.sim.transports import senders
from openmrc.sim.transports.roce import receiver, sender, tables
from openmrc.sim.transports.roce.tables import Recovery, Roce, RocePacketKind
from openmrc.sim.workloads.traffic import Traffic
from openmrc.units import NEVER, ps_from_us

# Bytes on the wire: Ethernet with preamble and gap (38), IPv6 (40), UDP (8), BTH (12) and ICRC (4), of data in the
# middle of a message; an acknowledgement has an AETH as well (4).
_HEADER, _ACK = 102, 106


def _lossless(routing: Routing = Routing.HASH) -> NetworkSettings:
    return NetworkSettings(header=_HEADER, control_size=_ACK, routing=routing, trimming=Trimming.NEVER, lossless=True)


@dataclass(frozen=True)
class RoceTransport:
    """RoCEv2 with PFC and DCQCN; constants of uet-htsim."""

    network: NetworkSettings = field(default_factory=_lossless)
    qps: int = 1  # queue pairs per message
    recovery: Recovery = Recovery.GO_BACK_N
    spray: bool = False  # per-packet adaptive routing needs out-of-order receivers: SELECTIVE
    dcqcn: bool = True
    reorder: int = 0  # packets beyond a hole before a NAK; adaptive routing needs some, from `window` on there is none
    ack_every: int = 16
    window: int = 4096  # packets
    # An assumption in favour of RoCE: RC uses 4.096 us * 2**n (IBTA volume 1, 12.7.34), and NCCL sets n = 20, 4.3 s.
    timeout_us: float = 1000.0
    # The maximum of RC (12.7.38), and NCCL's default. Doubling the timeout is another assumption, after the adaptive
    # retransmission of NVIDIA's NICs.
    retries: int = 7
    cnp_interval_us: float = 50.0
    period_us: float = 55.0
    byte_counter: int = 10_000_000
    fast_steps: int = 5
    gain: float = 1 / 256
    additive_share: float = 1 / 20  # of the line rate
    hyper_share: float = 1 / 10
    name: str = "roce"

    def __post_init__(self) -> None:
        """Refuse invalid settings, naming the field."""
        refuse_outside(self, qps=(1, 1 << 10), reorder=AT_LEAST_ZERO, ack_every=(1, 1 << 20), window=(1, 1 << 20))
        refuse_outside(self, timeout_us=(1, 10**9), retries=(0, 32), period_us=ABOVE_ZERO, byte_counter=ABOVE_ZERO)
        refuse_outside(self, cnp_interval_us=AT_LEAST_ZERO, fast_steps=AT_LEAST_ZERO, gain=(0, 1))
        refuse_outside(self, additive_share=(0, 1), hyper_share=(0, 1))

    def build(self, topology: Topology, traffic: Traffic, network: Network, seed: int) -> Roce:
        slices = _Slices(traffic, self.qps, self.network.mtu)
        keeps = int(slices.packets.sum()) if self.recovery == Recovery.SELECTIVE else 1
        timers, rings, links = senders.idle_senders(len(slices.flow), topology.nics * network.config[0].planes)
        state = Roce(
            params=table(tables.RoceParams, 1),
            nics=senders.idle_nics(tables.RoceNic, topology.nics, traffic.source[slices.flow], seed),
            rings=rings,
            links=links,
            timers=timers,
            senders=table(tables.RoceSender, len(slices.flow)),
            receivers=table(tables.RoceReceiver, len(slices.flow)),
            arrivals=table(tables.RoceArrival, keeps),
            messages=table(tables.RoceMessage, traffic.messages),
            frames=table(tables.RoceFrame, len(network.hops)),
        )
        written = [state.timers, state.senders, state.receivers, state.arrivals, state.messages]
        host_memory.require(written, f"{len(slices.flow):,} queue pairs")
        _init_pairs(state, slices, traffic, self, network, seed)
        _init_params(state, self)
        return state

    def counters(self, state: Roce) -> dict[str, Any]:
        """Return totals over queue pairs."""
        totals: dict[str, Any] = self.series(state)
        totals["qp_errors"] = int(column(state.senders, "error").sum())
        totals["sent_packets"] = int(column(state.senders, "highest").sum())
        totals["duplicates"] = int(column(state.receivers, "duplicates").sum())
        return totals

    def series(self, state: Roce) -> dict[str, int]:
        """Return the NICs' counters so far."""
        return {name: int(column(state.nics, name).sum()) for name in ("retransmitted", "timeouts", "naks", "cnps")}

    def windows(self, state: Roce, network: Network, flows: Ints) -> dict[str, NDArray[Any]]:
        """Return DCQCN's rate of each message, and its unacknowledged bytes; 0 when it is done."""
        shown = [_shown(state, int(flow), self.network.mtu) for flow in flows]
        rate, in_flight = np.array(shown, np.float64).reshape(len(flows), 2).T
        return {"rate_gbps": rate / 1e9, "inflight_bytes": in_flight.astype(np.int64)}

    def failures(self, state: Roce, network: Network) -> list[ConnectionFailure]:
        """Return the queue pairs whose retries are spent."""
        return senders.failures(state, network)


def _shown(state: Roce, flow: int, mtu: int) -> tuple[float, int]:
    """Return rate (bit/s) and unacknowledged bytes of all queue pairs of a message that are not done."""
    message = state.messages[flow]
    rows = np.asarray(state.senders)[message.first : message.first + message.slices]
    rows = rows[rows["begun"]]
    return float(rows["current"].sum()), int((rows["highest"] - rows["acked"]).sum()) * mtu


def adaptive(qps: int = 1, dcqcn: bool = True) -> RoceTransport:
    """Return RoCEv2 with per-packet adaptive routing by the switches, and receivers that accept any order."""
    return RoceTransport(
        network=_lossless(Routing.ADAPTIVE), qps=qps, recovery=Recovery.SELECTIVE, spray=True, dcqcn=dcqcn, reorder=256
    )


class _Slices:
    """Divides messages into slices of whole packets, one per queue pair; small messages need fewer."""

    def __init__(self, traffic: Traffic, qps: int, mtu: int) -> None:
        packets = -(-traffic.size // mtu)
        self.count = np.minimum(np.where(traffic.single_path == 1, 1, qps), packets)
        self.first = np.cumsum(self.count) - self.count
        self.flow = np.repeat(np.arange(traffic.messages), self.count)
        index = np.arange(len(self.flow)) - self.first[self.flow]
        whole, left = packets[self.flow] // self.count[self.flow], packets[self.flow] % self.count[self.flow]
        self.packets = whole + (index < left)
        is_last = index == self.count[self.flow] - 1
        rest = traffic.size[self.flow] - (packets[self.flow] - 1) * mtu
        self.last_payload = np.where(is_last, rest, mtu)
        self.index = index


def _init_pairs(
    state: Roce, slices: _Slices, traffic: Traffic, transport: RoceTransport, network: Network, seed: int
) -> None:
    senders, flow = state.senders, slices.flow
    column(senders, "flow")[:] = flow
    column(senders, "nic")[:] = traffic.source[flow]
    column(senders, "destination")[:] = traffic.destination[flow]
    column(senders, "first")[:] = np.cumsum(slices.packets) - slices.packets
    column(senders, "packets")[:] = slices.packets
    column(senders, "last_payload")[:] = slices.last_payload
    column(senders, "resend")[:] = NONE
    column(senders, "single_path")[:] = traffic.single_path[flow]
    first_plane = _hashed(traffic.source[flow] * len(network.nics) + traffic.destination[flow], seed)
    plane = (first_plane + slices.index) % column(network.nics, "ports")[traffic.source[flow]]
    column(senders, "plane")[:] = plane
    column(senders, "rate")[:] = _port_rates(network, traffic.source[flow], plane)
    # Paths belong to the connection: the entropy depends on the two NICs and the queue pair, not on the message.
    generator = np.random.default_rng(seed)
    by_pair = traffic.source[flow] * 1_000_003 + traffic.destination[flow] * 4_099 + slices.index * 31
    salt = int(generator.integers(1 << 30))
    column(senders, "entropy")[:] = ((by_pair + salt) * 0x9E3779B1 >> 7) & 0x3FFFFFFF
    for name in ("deadline", "alpha_at", "increase_at"):
        column(senders, name)[:] = NEVER
    column(state.receivers, "hole")[:] = NONE
    column(state.receivers, "cnp_at")[:] = -(1 << 60)
    for name in ("unsent", "unreceived", "slices"):
        column(state.messages, name)[:] = slices.count
    column(state.messages, "first")[:] = slices.first


def _hashed(values: Ints, seed: int) -> Ints:
    """Return a hash of each value in 0 .. 2**31 - 1 (splitmix64's mixer, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        mixed = (values.astype(np.uint64) + np.uint64(rng.seeded(seed, 9))) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed >> np.uint64(33)).astype(np.int64)


def _port_rates(network: Network, nic: Ints, port: Ints) -> NDArray[np.float64]:
    """Return the rates of NICs' ports (bit/s)."""
    link = column(network.nic_ports, "link")[nic * network.config[0].planes + port]
    rates: NDArray[np.float64] = (8e12 * (1 << BYTE_TIME_BITS)) / column(network.ports, "byte_time")[link]
    return rates


def _init_params(state: Roce, transport: RoceTransport) -> None:
    row = state.params[0]
    row.mtu, row.header = transport.network.mtu, transport.network.header
    for name in (
        "recovery", "reorder", "ack_every", "window", "retries", "spray", "dcqcn", "byte_counter", "fast_steps", "gain",
        "additive_share", "hyper_share",
    ):  # fmt: skip
        setattr(row, name, getattr(transport, name))
    row.retransmit_after = ps_from_us(transport.timeout_us)
    row.cnp_interval = ps_from_us(transport.cnp_interval_us)
    row.period = ps_from_us(transport.period_us)


@transport_api.receive.variant(Roce)
def _receive(state: Roce, network: Network, shard: int, now: int, nic: int, hop: int) -> None:
    frame = network.hops[hop].frame
    match state.frames[frame].kind:
        case RocePacketKind.DATA:
            receiver.on_data(state, network, now, nic, hop)
        case RocePacketKind.ACK:
            sender.on_ack(state, network, now, nic, frame)
        case RocePacketKind.NAK:
            sender.on_nak(state, network, now, nic, frame)
        case RocePacketKind.CNP:
            sender.on_cnp(state, network, now, nic, state.frames[frame].pair)


@transport_api.next_packet.variant(Roce)
def _next_packet(state: Roce, network: Network, shard: int, now: int, nic: int, free_ports: int, hop: int) -> bool:
    node = state.nics[nic]
    if node.answer & receiver.CNP != 0:
        node.answer &= ~receiver.CNP
        _fill_answer(state, network, nic, hop, RocePacketKind.CNP)
        return True
    if node.answer != 0:
        node.answer = 0
        _fill_answer(state, network, nic, hop, node.answer_kind)
        return True
    return sender.next_data(state, network, now, nic, free_ports, hop)


@kernel
def _fill_answer(state: Roce, network: Network, nic: int, hop: int, kind: int) -> None:
    row = network.hops[hop]
    pair = state.nics[nic].answer_to
    sender = state.senders[pair]
    frame = state.frames[row.frame]
    frame.pair = pair
    frame.kind = kind
    frame.psn = state.receivers[pair].expected
    row.destination = sender.nic
    row.size = network.config[0].control_size
    row.service = Service.CONTROL
    row.trimmable = False
    row.entropy = sender.entropy
    row.plane = reroute.plane_for(network, nic, sender.nic, sender.plane, pair)


@transport_api.next_done.variant(Roce)
def _next_done(state: Roce, nic: int) -> int:
    return completed.take(state.nics, nic, state.messages)


transport_api.next_deadline.variant(Roce)(senders.next_deadline)
