"""The sending half of UET: packet selection, and processing of acknowledgements, trims and timeouts."""

from openmrc.core import ring
from openmrc.core.jit import kernel
from openmrc.sim.network import sharing, transport_api
from openmrc.sim.network.forwarding import reroute
from openmrc.sim.network.network_tables import RETURNED, Network
from openmrc.sim.transports import senders
from openmrc.sim.transports.uet import nscc
from openmrc.sim.transports.uet.spraying import policies
from openmrc.sim.transports.uet.tables import NONE, Feedback, PacketState, Uet, UetPacketKind
from openmrc.units import NEVER
from openmrc.wire.codes import Trim


@transport_api.post.variant(Uet)
def post(state: Uet, network: Network, now: int, flow: int) -> bool:
    """Start a message; return True, there is always room."""
    nscc.begin(state, now, flow)
    state.senders[flow].progressed_at = now
    state.senders[flow].deadline = NEVER
    _enqueue(state, network, network.flows[flow].source, flow)
    return True


@kernel
def next_data(state: Uet, network: Network, now: int, nic: int, free_ports: int, hop: int) -> bool:
    """Fill the next data packet, round-robin over connections; return whether one may leave."""
    planes = network.config[0].planes
    after = state.nics[nic].ring + 1
    for step in range(planes + 1):
        index = (after + step) % (planes + 1)
        is_single = index < planes
        if (not is_single or (free_ports >> index) & 1 == 1) and _next_of_ring(
            state, network, now, nic, index, free_ports, hop
        ):
            state.nics[nic].ring = index
            return True
    return False


@kernel
def _next_of_ring(state: Uet, network: Network, now: int, nic: int, index: int, free_ports: int, hop: int) -> bool:
    """Fill the next data packet of the connections of one ring; return whether there was one."""
    number = nic * (network.config[0].planes + 1) + index
    waits = NONE  # first connection whose ports are all busy
    while True:
        sender = ring.front(state.rings[number], state.links)
        if sender in (NONE, waits):
            return False
        ring.drop_front(state.rings[number], state.links)
        psn, row = _next_psn(state, sender), state.senders[sender]
        if psn == NONE or row.in_flight + state.sent[row.first + psn].size > row.cwnd:
            continue
        _enqueue(state, network, nic, sender)  # at the end of its ring, or of that of its new port
        ports = free_ports & _ports(state, network, nic, sender)
        if ports != 0:
            _send(state, network, now, nic, sender, psn, ports, hop)
            return True
        if waits == NONE:
            waits = sender


@kernel
def _ports(state: Uet, network: Network, nic: int, sender: int) -> int:
    """Return the mask of ports that a connection may use."""
    row = state.senders[sender]
    destination = network.flows[row.flow].destination
    if row.single_path:
        return 1 << reroute.plane_for(network, nic, destination, row.plane, sender)
    return reroute.open_ports(network, nic, destination)


@kernel
def on_ack(state: Uet, network: Network, now: int, nic: int, frame: int) -> None:
    """Process an acknowledgement.

    The byte counter may run ahead of the bitmap, which reaches 64 packets: `in_flight` then counts such a packet as
    arrived, and adds it anew if a timeout retransmits it. It is below zero for as long as more bytes are reported than
    are in flight; a limit at zero would forget the difference, and the window would never open again.
    """
    ack = state.frames[frame]
    sender = ack.flow
    row = state.senders[sender]
    if row.error:
        return
    row.progressed_at = now
    rtt = _round_trip(state, now, frame)
    newly = max(0, ack.received - row.reported)
    row.reported += newly
    row.in_flight -= newly
    while row.acked < ack.cumulative:
        _acknowledge(state, sender, row.acked)
        row.acked += 1
    bits = ack.bitmap
    psn = ack.base
    while bits != 0 and psn < row.packets:
        if bits & 1 == 1:
            _acknowledge(state, sender, psn)
        bits = (bits >> 1) & ((1 << 63) - 1)
        psn += 1
    policies.learn(state, now, sender, ack.entropy, Feedback.MARKED if ack.marked else Feedback.GOOD)
    nscc.on_ack(state, now, sender, newly, ack.marked, rtt)
    if row.acked == row.packets:
        state.nics[nic].sent = row.flow
        row.deadline = NEVER
        senders.arm(state, nic, sender, NEVER)
        row.packets = -row.packets  # reported once
    else:
        _enqueue(state, network, nic, sender)


@kernel
def on_nack(state: Uet, network: Network, now: int, nic: int, frame: int) -> None:
    """Process the report of a trimmed packet: retransmit it immediately."""
    nack = state.frames[frame]
    sender = nack.flow
    row = state.senders[sender]
    if nack.psn >= row.packets or row.error:
        return
    row.progressed_at = now
    packet = state.sent[row.first + nack.psn]
    row.nacks += 1
    if not nack.last_hop:
        policies.learn(state, now, sender, nack.entropy, Feedback.NACKED)
    else:
        policies.learn(state, now, sender, nack.entropy, Feedback.MARKED if nack.marked else Feedback.GOOD)
    if packet.state == PacketState.IN_FLIGHT:
        _mark_lost(state, sender, nack.psn)
        nscc.on_nack(state, now, sender, packet.size)
    _enqueue(state, network, nic, sender)


@kernel
def on_returned(state: Uet, network: Network, now: int, nic: int, hop: int) -> None:
    """Process a packet of its own that a switch trimmed and sent back: the NACK that its receiver would send."""
    row = network.hops[hop]
    packet = state.frames[row.frame]
    packet.entropy = row.entropy
    packet.marked = row.marked
    packet.last_hop = row.trimmed & ~RETURNED == Trim.TRIMMED_LASTHOP
    on_nack(state, network, now, nic, row.frame)


@transport_api.expire.variant(Uet)
def expire(state: Uet, network: Network, now: int, nic: int) -> None:
    """Serve the NIC's connections whose oldest packet is overdue."""
    while True:
        sender = senders.take_due(state, nic, now)
        if sender == NONE:
            return
        row = state.senders[sender]
        if row.deadline <= now:
            if now - row.progressed_at >= state.params[0].give_up_after:
                _fail(state, nic, sender)
            else:
                _on_timeout(state, network, now, nic, sender)
        senders.arm(state, nic, sender, row.deadline)


@kernel
def _next_psn(state: Uet, sender: int) -> int:
    """Return the oldest lost packet, else the next new one, else NONE."""
    row = state.senders[sender]
    if row.lost > 0:
        while state.sent[row.first + row.lost_from].state != PacketState.LOST:
            row.lost_from += 1
        return row.lost_from
    return row.next if row.next < row.packets else NONE


@kernel
def _send(state: Uet, network: Network, now: int, nic: int, sender: int, psn: int, free_ports: int, hop: int) -> None:
    row = state.senders[sender]
    packet = state.sent[row.first + psn]
    is_repeat = packet.state == PacketState.LOST
    if is_repeat:
        row.lost -= 1
        row.retransmitted += 1
    else:
        row.next += 1
    packet.state = PacketState.IN_FLIGHT
    packet.sent_at = now
    packet.transmissions = min(packet.transmissions + 1, 100)
    row.in_flight += packet.size
    if row.deadline == NEVER:
        row.deadline = now + state.params[0].retransmit_after
    senders.arm(state, nic, sender, row.deadline)
    hops = network.hops[hop]
    frame = state.frames[hops.frame]
    frame.flow = sender
    frame.psn = psn
    frame.kind = UetPacketKind.DATA
    frame.payload = packet.size - state.params[0].header
    frame.repeated = is_repeat
    closing = row.in_flight + state.params[0].packet > row.cwnd
    frame.asks = is_repeat or closing or row.next == row.packets
    hops.destination = network.flows[row.flow].destination
    hops.size = packet.size
    hops.service = sharing.data_service(network, row.flow)
    hops.trimmable = True
    if not row.single_path:
        row.entropy = policies.choose(state, now, nic, sender)
    hops.entropy = row.entropy
    hops.plane = _plane(state, network, nic, free_ports)
    if not row.single_path:
        row.plane = hops.plane


@kernel
def _plane(state: Uet, network: Network, nic: int, free_ports: int) -> int:
    """Return the next free port, round-robin."""
    node, planes = state.nics[nic], network.config[0].planes
    node.plane = (node.plane + 1) % planes
    while (free_ports >> node.plane) & 1 == 0:
        node.plane = (node.plane + 1) % planes
    return node.plane


@kernel
def _round_trip(state: Uet, now: int, frame: int) -> int:
    """Return the round-trip time of the acknowledged packet (ps), 0 if the copy is ambiguous."""
    ack = state.frames[frame]
    row = state.senders[ack.flow]
    if ack.psn >= row.packets:
        return 0
    packet = state.sent[row.first + ack.psn]
    if packet.state != PacketState.IN_FLIGHT or packet.transmissions != 1 + ack.repeated:
        return 0
    return now - packet.sent_at


@kernel
def _acknowledge(state: Uet, sender: int, psn: int) -> None:
    row = state.senders[sender]
    packet = state.sent[row.first + psn]
    if packet.state == PacketState.LOST:
        row.lost -= 1
        row.in_flight += packet.size  # subtracted twice: when it was marked lost, and by the receiver's byte counter
    packet.state = PacketState.ACKED


@kernel
def _mark_lost(state: Uet, sender: int, psn: int) -> None:
    row = state.senders[sender]
    packet = state.sent[row.first + psn]
    packet.state = PacketState.LOST
    row.in_flight -= packet.size
    row.lost += 1
    row.lost_from = min(row.lost_from, psn) if row.lost > 1 else psn


@kernel
def _on_timeout(state: Uet, network: Network, now: int, nic: int, sender: int) -> None:
    """Retransmit one overdue packet; set the timer for the next."""
    row = state.senders[sender]
    patience = state.params[0].retransmit_after
    row.deadline = NEVER
    lost = NONE
    for psn in range(row.acked, row.next):
        packet = state.sent[row.first + psn]
        if packet.state != PacketState.IN_FLIGHT:
            continue
        if lost == NONE and packet.sent_at + patience <= now:
            lost = psn
        else:
            row.deadline = min(row.deadline, packet.sent_at + patience)
    if lost != NONE:
        row.timeouts += 1
        _mark_lost(state, sender, lost)
        nscc.on_timeout(state, sender, state.sent[row.first + lost].size)
        policies.learn(state, now, sender, NONE, Feedback.TIMED_OUT)
        _enqueue(state, network, nic, sender)


@kernel
def _fail(state: Uet, nic: int, sender: int) -> None:
    """Fail a message: the peer has not responded for too long."""
    row = state.senders[sender]
    row.error = True
    row.deadline = NEVER
    row.lost = 0
    row.next = row.packets
    row.next_failed = state.nics[nic].failed
    state.nics[nic].failed = row.flow


@kernel
def _enqueue(state: Uet, network: Network, nic: int, sender: int) -> None:
    """Queue a connection that may have packets to send on its port, or on any."""
    row = state.senders[sender]
    planes = network.config[0].planes
    index = planes
    if row.single_path:
        index = reroute.plane_for(network, nic, network.flows[row.flow].destination, row.plane, sender)
    senders.append(state, nic * (planes + 1) + index, sender)
