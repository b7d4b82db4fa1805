"""The transport without feedback: packets leave at line rate and are not acknowledged.

It measures the network alone, and serves as background traffic without congestion control. A message is done
at the sender when its last packet has left, at the receiver when all its bytes have arrived; lost packets are not
retransmitted. Each packet takes the next port in turn and a random entropy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from openmrc.core import rng
from openmrc.core.jit import kernel
from openmrc.core.rows import Int, Int32, Table, column, table
from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop.failures import ConnectionFailure
from openmrc.sim.network import completed, sharing, transport_api
from openmrc.sim.network.build import NetworkSettings
from openmrc.sim.network.completed import UnreportedFlows
from openmrc.sim.network.network_tables import NONE, Network
from openmrc.sim.workloads.traffic import Traffic
from openmrc.units import NEVER


class DatagramSource(UnreportedFlows):
    """The messages that a NIC sends, one after the other."""

    current: Int  # flow, or NONE
    last: Int
    random: Int


class DatagramTransfer:
    """Progress of a message."""

    sent: Int  # bytes
    arrived: Int  # bytes
    next: Int  # flow queued behind, or NONE
    next_failed: Int32  # none fails


class Content:
    flow: Int32
    payload: Int32


class DatagramState(NamedTuple):
    sources: Table[DatagramSource]
    transfers: Table[DatagramTransfer]
    frames: Table[Content]
    rules: Table[DatagramRules]


class DatagramRules:
    mtu: Int


@dataclass(frozen=True)
class DatagramTransport:
    """Messages without feedback: measures the network alone, and serves as load without congestion control."""

    network: NetworkSettings
    name: str = "datagrams"

    def build(self, topology: Topology, traffic: Traffic, network: Network, seed: int) -> DatagramState:
        """Return the state."""
        sources, transfers = table(DatagramSource, topology.nics), table(DatagramTransfer, traffic.messages)
        for name in ("current", "last", "sent", "received", "failed"):
            column(sources, name)[:] = NONE
        column(sources, "random")[:] = rng.seeded(seed, np.arange(topology.nics))
        column(transfers, "next")[:] = NONE
        rules = table(DatagramRules, 1)
        rules[0].mtu = self.network.mtu
        return DatagramState(sources, transfers, table(Content, len(network.hops)), rules)

    def counters(self, state: DatagramState) -> dict[str, Any]:
        return {"bytes_arrived": int(column(state.transfers, "arrived").sum())}

    def failures(self, state: DatagramState, network: Network) -> list[ConnectionFailure]:
        """Return nothing: senders expect no acknowledgements."""
        return []


@transport_api.receive.variant(DatagramState)
def _receive(state: DatagramState, network: Network, shard: int, now: int, nic: int, hop: int) -> None:
    row = network.hops[hop]
    if row.trimmed != 0:
        return
    content = state.frames[row.frame]
    transfer = state.transfers[content.flow]
    transfer.arrived += content.payload
    if transfer.arrived == network.flows[content.flow].size:
        state.sources[nic].received = content.flow


@transport_api.next_packet.variant(DatagramState)
def _next_packet(
    state: DatagramState, network: Network, shard: int, now: int, nic: int, free_ports: int, hop: int
) -> bool:
    source = state.sources[nic]
    flow = source.current
    if flow == NONE or free_ports == 0 or source.sent != NONE:
        return False
    rules = state.rules[0]
    transfer = state.transfers[flow]
    payload = min(rules.mtu, network.flows[flow].size - transfer.sent)
    transfer.sent += payload
    source.random = rng.following(source.random)
    row = network.hops[hop]
    content = state.frames[row.frame]
    content.flow = flow
    content.payload = payload
    row.destination = network.flows[flow].destination
    row.size = payload + network.config[0].header
    row.service = sharing.data_service(network, flow)
    row.trimmable = True
    row.entropy = source.random >> 2
    row.plane = _lowest(free_ports)
    if transfer.sent == network.flows[flow].size:
        source.current = transfer.next
        source.sent = flow
    return True


@kernel
def _lowest(mask: int) -> int:
    place = 0
    while (mask >> place) & 1 == 0:
        place += 1
    return place


@transport_api.next_deadline.variant(DatagramState)
def _next_deadline(state: DatagramState, nic: int) -> int:
    return NEVER if state.sources[nic].sent == NONE else 0


@transport_api.post.variant(DatagramState)
def _post(state: DatagramState, network: Network, now: int, flow: int) -> bool:
    source = state.sources[network.flows[flow].source]
    if source.current == NONE:
        source.current = flow
    else:
        state.transfers[source.last].next = flow
    source.last = flow
    return True


@transport_api.next_done.variant(DatagramState)
def _next_done(state: DatagramState, nic: int) -> int:
    return completed.take(state.sources, nic, state.transfers)
