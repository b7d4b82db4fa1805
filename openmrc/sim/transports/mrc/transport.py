"""MRC in the simulator: the engine's own functions, and packets in flight as frames.

This module contains no protocol logic. A message is an RDMA write; it carries an immediate when its arrival releases
others, because only a WriteIMM is reported at the receiver (MRC §6.1).
"""

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from openmrc.core.jit import kernel, rare_kernel
from openmrc.core.rows import Bool, Table
from openmrc.engine import endpoint
from openmrc.engine.messages import PostStatus
from openmrc.engine.requester import prefetch
from openmrc.engine.state.machines import EvEvent
from openmrc.engine.state.queue_pairs import place_of
from openmrc.engine.state.tables import NONE, CompletionKind, Engine, EventKind, WcStatus, WriteRequest
from openmrc.sim.network import transport_api
from openmrc.sim.network.completed import completed
from openmrc.sim.network.network_tables import RETURNED, Network, Service
from openmrc.sim.transports.mrc import tap
from openmrc.sim.transports.mrc.frames import MrcFrame, pack, unpack
from openmrc.sim.workloads.traffic import CompletionSide
from openmrc.wire.codes import NackReason, Opcode, TrafficClass, Trim

R_KEY = 1  # of the memory region that every NIC registers


class Tally:
    """Counts of an endpoint's events."""

    kinds: Annotated[NDArray[np.int64], (np.int64, (len(EventKind),))]  # of SILENT_PORT those that begin a silence
    causes: Annotated[NDArray[np.int64], (np.int64, (len(EvEvent),))]  # of EV_STATE


class QpClass:
    """The class of a queue pair's data."""

    second: Bool


class Mrc(NamedTuple):
    """State of the transport: the engine, and the packets in flight."""

    engine: Engine
    frames: Table[MrcFrame]
    tallies: Table[Tally]
    tapped: tap.Taps
    writes: Table[WriteRequest]  # by NIC: the next request
    classes: Table[QpClass]  # by queue pair, both ends, if the network has two classes


@transport_api.receive.variant(Mrc)
def _receive(state: Mrc, network: Network, shard: int, now: int, nic: int, hop: int) -> None:
    row = network.hops[hop]
    engine = state.engine
    unpack(state.frames, engine.packets, row.frame, shard)
    packet = engine.packets[shard]
    packet.entropy = row.entropy
    packet.port = row.plane
    packet.source = row.source
    packet.marked = row.marked
    packet.trimmed = row.trimmed & ~RETURNED
    if len(state.tapped.taps) > 0:
        tap.arrived(state.tapped, engine, network, shard, now, nic, hop)
    if row.trimmed & RETURNED != 0:
        _make_nack(engine, shard)
    endpoint.receive(engine, now, nic, shard)


@rare_kernel
def _make_nack(engine: Engine, shard: int) -> None:
    """Turn the NIC's own packet, which a switch trimmed and sent back, into the NACK that its receiver would send."""
    packet = engine.packets[shard]
    last_hop = packet.trimmed == Trim.TRIMMED_LASTHOP
    packet.opcode = Opcode.NACK
    packet.nack_reason = NackReason.TRIMMED_LASTHOP if last_hop else NackReason.TRIMMED
    packet.nack_psn = packet.psn
    packet.reflected_entropy = packet.entropy
    packet.trimmed = Trim.WHOLE
    packet.dest_qpn = engine.qps[place_of(engine, packet.source, packet.dest_qpn)].dest_qpn


@transport_api.prefetch_nic.variant(Mrc)
def _prefetch_nic(state: Mrc, nic: int, step: int) -> None:
    if step == 0:
        prefetch.for_endpoint(state.engine, nic)
    else:
        prefetch.after_endpoint(state.engine, nic)


@transport_api.prefetch.variant(Mrc)
def _prefetch(state: Mrc, nic: int, frame: int, step: int) -> None:
    row = state.frames[frame]
    if step == 0:
        prefetch.for_arrival(state.engine, nic, row.dest_qpn, row.opcode)
    else:
        prefetch.after_queue_pair(state.engine, nic, row.dest_qpn, row.opcode, row.psn)


@transport_api.next_packet.variant(Mrc)
def _next_packet(state: Mrc, network: Network, shard: int, now: int, nic: int, free_ports: int, hop: int) -> bool:
    engine = state.engine
    if endpoint.next_packet(engine, now, nic, free_ports, shard) == 0:
        return False
    if len(state.tapped.taps) > 0:
        tap.sent(state.tapped, shard, now, nic)
    packet = engine.packets[shard]
    row = network.hops[hop]
    pack(engine.packets, state.frames, shard, row.frame)
    row.destination = packet.destination
    row.entropy = packet.entropy
    row.plane = packet.port
    row.trimmable = TrafficClass.TRIMMABLE <= packet.traffic_class <= TrafficClass.TRIMMABLE_RETX
    if packet.opcode <= Opcode.WRITE_ONLY_IMM:
        row.size = network.config[0].header + packet.payload_length
        row.service = Service.DATA
    else:
        row.size = network.config[0].control_size
        row.service = Service.CONTROL if packet.traffic_class == TrafficClass.CONTROL else Service.DATA
    if network.config[0].services > Service.SECOND and row.service == Service.DATA:
        row.service = _class_of(state, packet.destination, packet.dest_qpn)
    return True


@rare_kernel
def _class_of(state: Mrc, destination: int, dest_qpn: int) -> int:
    """Return the service of data to a queue pair, and of probes that are sent as data."""
    qp = place_of(state.engine, destination, dest_qpn)
    return Service.SECOND.value if qp != NONE and state.classes[qp].second else Service.DATA.value


@transport_api.next_deadline.variant(Mrc)
def _next_deadline(state: Mrc, nic: int) -> int:
    return endpoint.next_deadline(state.engine, nic)


@transport_api.expire.variant(Mrc)
def _expire(state: Mrc, network: Network, now: int, nic: int) -> None:
    endpoint.expire(state.engine, now, nic)


@transport_api.post.variant(Mrc)
def _post(state: Mrc, network: Network, now: int, flow: int) -> bool:
    row = network.flows[flow]
    write = state.writes[row.source]
    write.wr_id = flow
    write.length = row.size
    write.r_key = R_KEY
    write.immediate = flow
    write.has_immediate = row.watched
    write.signaled = 1
    status = endpoint.post_write(state.engine, now, row.handle, write)
    return status != PostStatus.FULL


@transport_api.next_done.variant(Mrc)
def _next_done(state: Mrc, nic: int) -> int:
    while True:
        done = endpoint.next_completion(state.engine, nic)
        if done == NONE:
            _count_events(state, nic)
            return NONE
        row = state.engine.completions[done]
        good = row.status == WcStatus.SUCCESS
        if row.kind == CompletionKind.SEND:
            return completed(row.wr_id, CompletionSide.SENDER.value if good else CompletionSide.FAILED.value)
        if good:  # else a flushed receive of a failed connection
            return completed(row.immediate, CompletionSide.RECEIVER.value)


@kernel
def _count_events(state: Mrc, nic: int) -> None:
    event = endpoint.next_event(state.engine, nic)
    while event != NONE:
        _count(state, nic, event)
        event = endpoint.next_event(state.engine, nic)


@rare_kernel
def _count(state: Mrc, nic: int, event: int) -> None:
    row, tally = state.engine.events[event], state.tallies[nic]
    tally.kinds[row.kind] += row.state if row.kind == EventKind.SILENT_PORT else 1
    if row.kind == EventKind.EV_STATE:
        tally.causes[row.cause] += 1


@transport_api.set_port.variant(Mrc)
def _set_port(state: Mrc, now: int, nic: int, port: int, up: bool) -> None:
    endpoint.set_port(state.engine, now, nic, port, int(up))
