"""UET-style transport with NSCC and several spraying schemes: its entry points and its setup.

A baseline to compare with MRC, and with uet-htsim's results. Not implemented: receiver credits, RTS, the packet
delivery context handshake, connection reuse (each message is a connection).
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from openmrc.base.ranges import refuse_outside
from openmrc.core import host_memory
from openmrc.core.jit import kernel
from openmrc.core.rows import column, table
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop.failures import ConnectionFailure
from openmrc.sim.network import completed, transport_api
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.network.forwarding import reroute
from openmrc.sim.network.network_tables import PS_PER_S_AND_BITS, RETURNED, Network, Routing, Service, Trimming
from openmrc.sim.network.reach import reaches
from openmrc.sim.transports import senders
from openmrc.sim.transports.uet import receiver, sender, tables
from openmrc.sim.transports.uet.spraying.names import LoadBalancing
from openmrc.sim.transports.uet.spraying.policies import POLICIES
from openmrc.sim.transports.uet.tables import Uet, UetPacketKind
from openmrc.sim.workloads.traffic import Traffic
from openmrc.units import NEVER, PS_PER_US, ps_from_us

# Bytes on the wire: Ethernet with preamble and gap (38), IPv6 (40), UDP (8) and CRC (4); then of a write the request of
# PDS (12) and the standard header of SES (44), or an acknowledgement with congestion state (32) and a response (12).
_HEADER, _ACK = 38 + 52 + 56, 38 + 52 + 44
_REFERENCE_BDP = 150_000  # bytes: 100 Gb/s x 12 us, where UEC states NSCC's constants
_REFERENCE_DELAY = 12 * PS_PER_US


@dataclass(frozen=True)
class UetTransport:
    """UET with trimming; defaults are uet-htsim's, but for the headers."""

    spraying: LoadBalancing = "mixed"
    network: NetworkSettings = field(
        default_factory=lambda: NetworkSettings(
            header=_HEADER, trim_size=_HEADER, control_size=_ACK, routing=Routing.HASH
        )
    )
    entropies: int = 64
    ack_bytes: int = 16_384
    give_up_us: float = 63_000.0  # a first timeout of 1 ms, doubled by each of 5 retries (UET PDS in the XDP2 project)
    name: str = "uet"

    def __post_init__(self) -> None:
        """Refuse invalid settings, naming the field."""
        refuse_outside(self, entropies=(1, 1 << 15), ack_bytes=(1, 1 << 30), give_up_us=(1, 10**9))

    def build(self, topology: Topology, traffic: Traffic, network: Network, seed: int) -> Uet:
        flows, nics, settings = traffic.messages, topology.nics, self.network
        packets = -(-traffic.size // settings.mtu)
        timers, rings, links = senders.idle_senders(flows, nics * (network.config[0].planes + 1))
        state = Uet(
            params=table(tables.UetParams, 1),
            nics=senders.idle_nics(tables.UetNic, nics, traffic.source, seed),
            rings=rings,
            links=links,
            timers=timers,
            senders=table(tables.UetSender, flows),
            receivers=table(tables.UetReceiver, flows),
            sent=table(tables.SentPacket, int(packets.sum())),
            arrivals=table(tables.UetArrival, int(packets.sum())),
            sprayers=table(tables.Sprayer, flows),
            notes=table(tables.SprayNote, flows * POLICIES[self.spraying].notes(self.entropies)),
            answers=table(tables.UetFrame, nics),
            frames=table(tables.UetFrame, len(network.hops)),
        )
        written = [state.timers, state.senders, state.receivers, state.sent, state.arrivals]
        host_memory.require(written, f"{flows:,} messages with {len(state.sent):,} packets")
        _init_flows(state, self, traffic, packets, network, seed)
        _init_params(state, self, topology)
        return state

    def counters(self, state: Uet) -> dict[str, Any]:
        senders = {name: int(column(state.senders, name).sum()) for name in ("retransmitted", "timeouts", "nacks")}
        new = int((column(state.sent, "transmissions") > 0).sum())
        return {
            "sent_packets": new,
            **senders,
            "qp_errors": int(column(state.senders, "error").sum()),
            "decreases": int(column(state.senders, "decreases").sum()),
            "duplicates": int(column(state.receivers, "duplicates").sum()),
            "trimmed_arrivals": int(column(state.receivers, "trimmed").sum()),
            "cwnd_mean": float(column(state.senders, "cwnd").mean()) if len(state.senders) else 0.0,
        }

    def series(self, state: Uet) -> dict[str, int]:
        return {"retransmitted": int(column(state.senders, "retransmitted").sum())}

    def windows(self, state: Uet, network: Network, flows: Any) -> dict[str, Any]:
        """Return each flow's window, and its bytes in flight."""
        return {
            "cwnd_bytes": column(state.senders, "cwnd")[flows],
            "inflight_bytes": np.maximum(column(state.senders, "in_flight")[flows], 0),
        }

    def failures(self, state: Uet, network: Network) -> list[ConnectionFailure]:
        return senders.failures(state, network)


def _init_single_paths(state: Uet, transport: UetTransport, traffic: Traffic, network: Network, seed: int) -> None:
    """Draw the plane and the entropy of messages with a single path."""
    draw = np.random.default_rng([seed, 5])
    column(state.senders, "single_path")[:] = traffic.single_path
    column(state.senders, "plane")[:] = draw.integers(0, column(network.nics, "ports")[traffic.source])
    column(state.senders, "entropy")[:] = draw.integers(0, transport.entropies, traffic.messages)


def _init_flows(
    state: Uet, transport: UetTransport, traffic: Traffic, packets: Any, network: Network, seed: int
) -> None:
    flows, mtu = traffic.messages, transport.network.mtu
    first = np.cumsum(packets) - packets
    column(state.senders, "flow")[:] = np.arange(flows)
    column(state.senders, "packets")[:] = packets
    column(state.senders, "first")[:] = first
    column(state.senders, "deadline")[:] = NEVER
    column(state.sprayers, "cursor")[:] = transport.entropies  # the first selection begins a round
    _init_single_paths(state, transport, traffic, network, seed)
    column(state.receivers, "highest")[:] = -1
    sizes = column(state.sent, "size")
    sizes[:] = mtu + transport.network.header
    some = packets > 0
    last = (first + packets - 1)[some]
    sizes[last] = (traffic.size - (packets - 1) * mtu)[some] + transport.network.header


def _init_params(state: Uet, transport: UetTransport, topology: Topology) -> None:
    """Write NSCC's constants: UEC 1.0.3 pp. 390-397, as uet-htsim evaluates them."""
    network, row = transport.network, state.params[0]
    ports = reaches(topology, network.mtu, network.header)
    rate = sum(port.rate for port in ports)
    row.network_rtt = max(port.round_trip for port in ports)
    row.mtu, row.header, row.packet = network.mtu, network.header, network.mtu + network.header
    row.rate = rate
    row.target = int(row.network_rtt * (0.75 if network.trimming != Trimming.NEVER else 1.0))
    scaling_a = row.network_rtt * rate / 8e12 / _REFERENCE_BDP
    row.alpha = 4.0 * row.mtu * scaling_a * (row.target / _REFERENCE_DELAY) / row.target
    row.fair = 5.0 * row.mtu * scaling_a
    row.eta = 0.15 * row.mtu * scaling_a
    row.fast_scale = 0.25 * scaling_a
    row.adjust_bytes = 8 * row.packet
    row.qa_threshold = 4 * row.target
    drain = max(port.bdp * PS_PER_S_AND_BITS // port.rate for port in ports)
    row.retransmit_after = 15 * PS_PER_US + 6 * drain
    row.ack_bytes = transport.ack_bytes
    row.spraying = list(POLICIES).index(transport.spraying)
    row.notes = POLICIES[transport.spraying].notes(transport.entropies)
    row.entropies = transport.entropies
    row.give_up_after = ps_from_us(transport.give_up_us)


@transport_api.receive.variant(Uet)
def _receive(state: Uet, network: Network, shard: int, now: int, nic: int, hop: int) -> None:
    row = network.hops[hop]
    frame = row.frame
    kind = state.frames[frame].kind
    if row.trimmed & RETURNED != 0:
        sender.on_returned(state, network, now, nic, hop)
    elif kind == UetPacketKind.DATA:
        receiver.on_data(state, network, nic, hop)
    elif kind == UetPacketKind.ACK:
        sender.on_ack(state, network, now, nic, frame)
    else:
        sender.on_nack(state, network, now, nic, frame)


@transport_api.next_packet.variant(Uet)
def _next_packet(state: Uet, network: Network, shard: int, now: int, nic: int, free_ports: int, hop: int) -> bool:
    if state.nics[nic].answer:
        state.nics[nic].answer = False
        _fill_answer(state, network, nic, hop)
        return True
    if free_ports == 0:
        return False
    return sender.next_data(state, network, now, nic, free_ports, hop)


@kernel
def _fill_answer(state: Uet, network: Network, nic: int, hop: int) -> None:
    row = network.hops[hop]
    answer = state.answers[nic]
    state.frames[row.frame] = answer
    row.destination = network.flows[answer.flow].source
    row.size = network.config[0].control_size
    row.service = Service.CONTROL
    row.trimmable = False
    row.entropy = answer.entropy
    row.plane = reroute.plane_for(network, nic, row.destination, answer.plane, answer.flow)


@transport_api.next_done.variant(Uet)
def _next_done(state: Uet, nic: int) -> int:
    return completed.take(state.nics, nic, state.senders)


transport_api.next_deadline.variant(Uet)(senders.next_deadline)
