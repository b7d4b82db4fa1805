"""The requesting half of a RoCEv2 queue pair: sending at DCQCN's rate, and processing of replies."""

from openmrc.core import ring, rng
from openmrc.core.jit import kernel
from openmrc.sim.network import sharing, transport_api
from openmrc.sim.network.forwarding import reroute
from openmrc.sim.network.network_tables import FIXED_PATH, Network
from openmrc.sim.transports import senders
from openmrc.sim.transports.roce import dcqcn
from openmrc.sim.transports.roce.tables import NONE, Recovery, Roce, RocePacketKind
from openmrc.units import NEVER


@transport_api.post.variant(Roce)
def post(state: Roce, network: Network, now: int, flow: int) -> bool:
    """Start a message on all its queue pairs; return True, there is always room."""
    message = state.messages[flow]
    for pair in range(message.first, message.first + message.slices):
        row = state.senders[pair]
        dcqcn.begin(state, pair)
        row.send_at = now
        row.deadline = NEVER
        row.begun = True
        row.retries = 0
        row.progressed_at = now
        _schedule(state, network, now, row.nic, pair)
    return True


@kernel
def next_data(state: Roce, network: Network, now: int, nic: int, free_ports: int, hop: int) -> bool:
    """Fill the next data packet, round-robin over free ports and their queue pairs; return whether one may leave."""
    planes = network.config[0].planes
    first = state.nics[nic].port + 1
    for step in range(2 * planes):  # twice: a queue pair whose path has moved may be queued at a port already visited
        port = (first + step) % planes
        if (free_ports >> port) & 1 == 1:
            pair = _next_pair(state, network, nic, port)
            if pair != NONE:
                state.nics[nic].port = port
                _send(state, network, now, nic, pair, port, hop)
                _schedule(state, network, now, nic, pair)
                return True
    return False


@kernel
def _next_pair(state: Roce, network: Network, nic: int, port: int) -> int:
    """Remove the next queue pair that sends on a port from its ring, or return NONE."""
    queued = state.rings[nic * network.config[0].planes + port]
    while ring.front(queued, state.links) != NONE:
        pair = ring.drop_front(queued, state.links)
        if _wants(state, pair):
            if _port(state, network, nic, pair) == port:
                return pair
            _enqueue(state, network, nic, pair)  # routing has moved it since it was queued
    return NONE


@kernel
def _port(state: Roce, network: Network, nic: int, pair: int) -> int:
    row = state.senders[pair]
    return reroute.plane_for(network, nic, row.destination, row.plane, pair)


@kernel
def on_ack(state: Roce, network: Network, now: int, nic: int, frame: int) -> None:
    """Process an ACK: all packets before `psn` have arrived."""
    answer = state.frames[frame]
    row = state.senders[answer.pair]
    if answer.psn > row.acked:
        row.acked = answer.psn
        row.retries = 0
        row.progressed_at = now
        row.next = max(row.next, row.acked)
        row.deadline = now + state.params[0].retransmit_after if row.acked < row.highest else NEVER
        if row.resend != NONE and row.resend < row.acked:
            row.resend = NONE
    if row.acked == row.packets and row.begun:
        row.begun = False
        row.deadline = NEVER
        row.alpha_at = NEVER
        row.increase_at = NEVER
        state.messages[row.flow].unsent -= 1
        if state.messages[row.flow].unsent == 0:
            state.nics[nic].sent = row.flow
    _schedule(state, network, now, nic, answer.pair)


@kernel
def on_nak(state: Roce, network: Network, now: int, nic: int, frame: int) -> None:
    """Process a NAK: retransmit from `psn` on, or only that packet."""
    answer = state.frames[frame]
    row = state.senders[answer.pair]
    on_ack(state, network, now, nic, frame)
    state.nics[nic].naks += 1
    if row.begun:
        _retransmit(state, answer.pair, answer.psn)
        _schedule(state, network, now, nic, answer.pair)


@kernel
def on_cnp(state: Roce, network: Network, now: int, nic: int, pair: int) -> None:
    """Process a CNP: reduce the rate."""
    if state.senders[pair].begun:
        dcqcn.on_cnp(state, now, pair)
        _schedule(state, network, now, nic, pair)


@transport_api.expire.variant(Roce)
def expire(state: Roce, network: Network, now: int, nic: int) -> None:
    """Serve the queue pairs whose timers are due, or whose rate permits the next packet."""
    while True:
        pair = senders.take_due(state, nic, now)
        if pair == NONE:
            return
        dcqcn.expire(state, now, pair)
        if state.senders[pair].deadline <= now:
            _on_timeout(state, now, nic, pair)
        _schedule(state, network, now, nic, pair)


@kernel
def _schedule(state: Roce, network: Network, now: int, nic: int, pair: int) -> None:
    """Queue a queue pair that may send now; set its next timer."""
    row = state.senders[pair]
    at = min(row.deadline, min(row.alpha_at, row.increase_at))
    if not state.links[pair].listed and _wants(state, pair):
        # At line rate, it waits for the port only.
        if row.send_at > now and row.current < row.rate:
            at = min(at, row.send_at)
        else:
            _enqueue(state, network, nic, pair)
    senders.arm(state, nic, pair, at)


@kernel
def _wants(state: Roce, pair: int) -> bool:
    row = state.senders[pair]
    if not row.begun:
        return False
    return row.resend != NONE or (row.next < row.packets and row.next - row.acked < state.params[0].window)


@kernel
def _send(state: Roce, network: Network, now: int, nic: int, pair: int, plane: int, hop: int) -> None:
    row = state.senders[pair]
    params = state.params[0]
    psn = row.resend if row.resend != NONE else row.next
    if row.resend != NONE:
        row.resend = NONE
    else:
        row.next += 1
    state.nics[nic].retransmitted += 1 if psn < row.highest else 0
    row.highest = max(row.highest, psn + 1)
    payload = row.last_payload if psn == row.packets - 1 else params.mtu
    hops = network.hops[hop]
    frame = state.frames[hops.frame]
    frame.pair = pair
    frame.psn = psn
    frame.kind = RocePacketKind.DATA
    frame.last = psn == row.packets - 1
    hops.destination = row.destination
    hops.size = payload + params.header
    hops.service = sharing.data_service(network, row.flow)
    hops.trimmable = False
    hops.plane = plane
    hops.entropy = row.entropy | FIXED_PATH
    if params.spray and not row.single_path:
        state.nics[nic].random = rng.following(state.nics[nic].random)
        hops.entropy = state.nics[nic].random
    dcqcn.on_sent(state, now, pair, hops.size)
    if row.deadline == NEVER:
        row.deadline = now + params.retransmit_after


@kernel
def _retransmit(state: Roce, pair: int, psn: int) -> None:
    row = state.senders[pair]
    if state.params[0].recovery == Recovery.SELECTIVE:
        row.resend = psn
    else:
        row.next = psn


@kernel
def _on_timeout(state: Roce, now: int, nic: int, pair: int) -> None:
    """Retransmit unacknowledged packets and double the timeout; fail when all retries are spent."""
    row = state.senders[pair]
    state.nics[nic].timeouts += 1
    row.retries += 1
    if row.retries > state.params[0].retries:
        row.error = True
        _fail(state, nic, row.flow)
        return
    row.deadline = now + (state.params[0].retransmit_after << row.retries)
    _retransmit(state, pair, row.acked)


@kernel
def _fail(state: Roce, nic: int, flow: int) -> None:
    """Fail the message: all its queue pairs stop."""
    message = state.messages[flow]
    for pair in range(message.first, message.first + message.slices):
        row = state.senders[pair]
        row.begun = False
        row.deadline = NEVER
        row.alpha_at = NEVER
        row.increase_at = NEVER
    message.next_failed = state.nics[nic].failed
    state.nics[nic].failed = flow


@kernel
def _enqueue(state: Roce, network: Network, nic: int, pair: int) -> None:
    senders.append(state, nic * network.config[0].planes + _port(state, network, nic, pair), pair)
