"""The receiving half of UET: acceptance of packets, and replies (uet-htsim, sim/uec.cpp)."""

from openmrc.core.jit import kernel
from openmrc.sim.network.network_tables import Network
from openmrc.sim.transports.uet.tables import Uet, UetPacketKind
from openmrc.wire.codes import Trim

_BITMAP = 64


@kernel
def on_data(state: Uet, network: Network, nic: int, hop: int) -> None:
    """Process a data packet, whole or trimmed, and queue a reply if due."""
    packet = network.hops[hop]
    frame = state.frames[packet.frame]
    row = state.receivers[frame.flow]
    known = frame.psn < row.expected or state.arrivals[_slot(state, frame.flow, frame.psn)].here
    if packet.trimmed != Trim.WHOLE and not known:
        row.trimmed += 1
        _queue_reply(state, network, nic, hop, UetPacketKind.NACK)
    elif known:
        row.duplicates += 1
        _queue_reply(state, network, nic, hop, UetPacketKind.ACK)
    elif _accept(state, nic, packet.frame) or packet.marked:
        _queue_reply(state, network, nic, hop, UetPacketKind.ACK)


@kernel
def _slot(state: Uet, flow: int, psn: int) -> int:
    return state.senders[flow].first + psn


@kernel
def _accept(state: Uet, nic: int, frame: int) -> bool:
    """Record a new packet; return whether an acknowledgement is due for it."""
    arrived = state.frames[frame]
    row = state.receivers[arrived.flow]
    is_first = row.bytes == 0
    size = arrived.payload + state.params[0].header
    row.bytes += size
    row.unacknowledged += size
    row.highest = max(row.highest, arrived.psn)
    row.beyond += 1
    state.arrivals[_slot(state, arrived.flow, arrived.psn)].here = True
    packets = state.senders[arrived.flow].packets
    while row.expected < packets and state.arrivals[_slot(state, arrived.flow, row.expected)].here:
        row.expected += 1
        row.beyond -= 1
    if row.expected == packets:
        state.nics[nic].received = arrived.flow
    if arrived.asks and row.beyond > 0:
        row.asked = True
    closed = row.asked and row.beyond == 0
    if closed:
        row.asked = False
    return is_first or closed or arrived.asks or row.unacknowledged >= state.params[0].ack_bytes


@kernel
def _queue_reply(state: Uet, network: Network, nic: int, hop: int, kind: int) -> None:
    packet = network.hops[hop]
    arrived = state.frames[packet.frame]
    row = state.receivers[arrived.flow]
    answer = state.answers[nic]
    answer.flow = arrived.flow
    answer.psn = arrived.psn
    answer.kind = kind
    answer.entropy = packet.entropy
    answer.plane = packet.plane
    answer.marked = packet.marked
    answer.repeated = arrived.repeated
    answer.last_hop = packet.trimmed == Trim.TRIMMED_LASTHOP
    answer.cumulative = row.expected
    answer.received = row.bytes
    if kind == UetPacketKind.ACK:
        row.unacknowledged = 0
        exact = packet.marked or arrived.asks
        answer.base = arrived.psn if exact else max(arrived.psn - _BITMAP + 1, row.expected + 1)
        answer.bitmap = _bitmap(state, arrived.flow, answer.base)
    state.nics[nic].answer = True


@kernel
def _bitmap(state: Uet, flow: int, base: int) -> int:
    bits = 0
    last = min(base + _BITMAP - 1, state.receivers[flow].highest + 1)
    for psn in range(base, last):
        bits |= int(state.arrivals[_slot(state, flow, psn)].here) << (psn - base)
    return bits
