"""The responding half of a RoCEv2 queue pair: in order only, or with out-of-order packets kept."""

from openmrc.core.jit import kernel
from openmrc.sim.network.network_tables import Network
from openmrc.sim.transports.roce.tables import NONE, Recovery, Roce, RocePacketKind

CNP = 2
ACKNOWLEDGE = 1


@kernel
def on_data(state: Roce, network: Network, now: int, nic: int, hop: int) -> None:
    """Process a data packet; queue an ACK or NAK, and a CNP, if due."""
    packet = network.hops[hop]
    frame = state.frames[packet.frame]
    if packet.marked:
        _notify(state, now, nic, frame.pair)
    row = state.receivers[frame.pair]
    selective = state.params[0].recovery == Recovery.SELECTIVE
    if frame.psn < row.expected or (selective and _has(state, frame.pair, frame.psn)):
        row.duplicates += 1
        _queue_reply(state, nic, frame.pair, RocePacketKind.ACK)
    elif frame.psn == row.expected:
        _advance(state, nic, packet.frame)
    else:
        _pass_hole(state, nic, packet.frame)


@kernel
def _advance(state: Roce, nic: int, frame: int) -> None:
    """Process the expected packet."""
    arrived = state.frames[frame]
    row = state.receivers[arrived.pair]
    packets = state.senders[arrived.pair].packets
    row.expected += 1
    row.highest = max(row.highest, arrived.psn)
    while row.beyond > 0 and row.expected < packets and _has(state, arrived.pair, row.expected):
        row.expected += 1
        row.beyond -= 1
    row.hole = NONE
    row.since_ack += 1
    if row.expected == packets:
        _finish(state, nic, arrived.pair)
    if row.since_ack >= state.params[0].ack_every or arrived.last or row.expected == packets:
        _queue_reply(state, nic, arrived.pair, RocePacketKind.ACK)


@kernel
def _pass_hole(state: Roce, nic: int, frame: int) -> None:
    """Process a packet beyond a hole, which counts as a loss if the packet is far enough beyond; one NAK per hole."""
    arrived = state.frames[frame]
    row = state.receivers[arrived.pair]
    row.highest = max(row.highest, arrived.psn)
    if state.params[0].recovery == Recovery.SELECTIVE:
        state.arrivals[state.senders[arrived.pair].first + arrived.psn].here = True
        row.beyond += 1
    if row.hole != row.expected and row.highest - row.expected > state.params[0].reorder:
        row.hole = row.expected
        _queue_reply(state, nic, arrived.pair, RocePacketKind.NAK)


@kernel
def _has(state: Roce, pair: int, psn: int) -> bool:
    return state.arrivals[state.senders[pair].first + psn].here


@kernel
def _finish(state: Roce, nic: int, pair: int) -> None:
    flow = state.senders[pair].flow
    state.messages[flow].unreceived -= 1
    if state.messages[flow].unreceived == 0:
        state.nics[nic].received = flow


@kernel
def _notify(state: Roce, now: int, nic: int, pair: int) -> None:
    """Queue a CNP for a marked packet, if none was sent recently."""
    row = state.receivers[pair]
    if state.params[0].dcqcn and now >= row.cnp_at + state.params[0].cnp_interval:
        row.cnp_at = now
        node = state.nics[nic]
        node.answer |= CNP
        node.answer_to = pair


@kernel
def _queue_reply(state: Roce, nic: int, pair: int, kind: int) -> None:
    node = state.nics[nic]
    node.answer |= ACKNOWLEDGE
    node.answer_to = pair
    node.answer_kind = kind
    state.receivers[pair].since_ack = 0
