"""The requesting half of a RoCEv2 queue pair: what leaves next at DCQCN's rate, and what answers mean."""

from __future__ import annotations

from openmrc.core import rng
from openmrc.core.jit import kernel
from openmrc.sim.network import reroute
from openmrc.sim.network.tables import FIXED_PATH, Network, Service
from openmrc.sim.transports.roce import dcqcn
from openmrc.sim.transports.roce.tables import NONE, Kind, Recovery, Roce
from openmrc.units import NEVER


@kernel
def post(state: Roce, now: int, nic: int, flow: int) -> None:
    """Begin a message on all its queue pairs."""
    message = state.messages[flow]
    for pair in range(message.first, message.first + message.slices):
        row = state.senders[pair]
        dcqcn.begin(state, pair)
        row.send_at = now
        row.deadline = NEVER
        row.begun = 1
        row.retries = 0
        row.progressed_at = now
        _list(state, nic, pair)


@kernel
def next_data(state: Roce, network: Network, now: int, nic: int, free_ports: int, hop: int) -> int:
    """Fill the next data packet, of the queue pairs in turn; 0: none may leave."""
    node = state.nics[nic]
    node.send_at = NEVER
    if node.ready_tail == NONE:
        return 0
    last = node.ready_tail
    while True:
        pair = state.senders[node.ready_tail].next_ready
        row = state.senders[pair]
        if not _wants(state, pair):
            is_last = pair == last
            _unlist_front(state, nic)
            if is_last or node.ready_tail == NONE:
                return 0
            continue
        node.ready_tail = pair
        plane = reroute.plane_for(network, nic, row.destination, row.plane, pair)
        if (free_ports >> plane) & 1 == 1:
            if row.send_at <= now:
                _send(state, network, now, nic, pair, plane, hop)
                return 1
            node.send_at = min(node.send_at, row.send_at)
        if pair == last:
            return 0


@kernel
def on_ack(state: Roce, now: int, nic: int, frame: int) -> None:
    """All before `psn` has arrived."""
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
    if row.acked == row.packets and row.begun == 1:
        row.begun = 0
        row.deadline = NEVER
        row.alpha_at = NEVER
        row.increase_at = NEVER
        state.messages[row.flow].unsent -= 1
        if state.messages[row.flow].unsent == 0:
            state.nics[nic].sent = row.flow
    elif row.begun == 1:
        _list(state, nic, answer.pair)


@kernel
def on_nak(state: Roce, now: int, nic: int, frame: int) -> None:
    """The packet `psn` is missing: from there on all goes again, or just that packet."""
    answer = state.frames[frame]
    row = state.senders[answer.pair]
    on_ack(state, now, nic, frame)
    state.nics[nic].naks += 1
    if row.begun == 1:
        _repeat(state, answer.pair, answer.psn)
        _list(state, nic, answer.pair)


@kernel
def expire(state: Roce, now: int, nic: int) -> None:
    """Serve the timers of the NIC's queue pairs."""
    node = state.nics[nic]
    node.deadline = NEVER
    if node.timed_tail == NONE:
        return
    before = last = node.timed_tail
    while True:
        pair = state.senders[before].next_timed
        row = state.senders[pair]
        dcqcn.expire(state, now, pair)
        if row.deadline <= now:
            _on_silence(state, now, nic, pair)
        at = min(row.deadline, dcqcn.next_timer(state, pair))
        if at == NEVER:
            state.senders[before].next_timed = row.next_timed
            row.timed = 0
            if pair == before:
                node.timed_tail = NONE
                return
            if pair == last:
                node.timed_tail = before
        else:
            node.deadline = min(node.deadline, at)
            before = pair
        if pair == last:
            return


@kernel
def watch(state: Roce, nic: int, pair: int) -> None:
    """Make sure the timers of a queue pair are looked at."""
    node = state.nics[nic]
    row = state.senders[pair]
    node.deadline = min(node.deadline, min(row.deadline, dcqcn.next_timer(state, pair)))
    if row.timed == 1:
        return
    row.timed = 1
    if node.timed_tail == NONE:
        row.next_timed = pair
    else:
        row.next_timed = state.senders[node.timed_tail].next_timed
        state.senders[node.timed_tail].next_timed = pair
    node.timed_tail = pair


@kernel
def _wants(state: Roce, pair: int) -> bool:
    row = state.senders[pair]
    if row.begun == 0:
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
    frame.payload = payload
    frame.kind = Kind.DATA
    frame.last = 1 if psn == row.packets - 1 else 0
    hops.destination = row.destination
    hops.size = payload + params.header
    hops.service = Service.DATA
    hops.trimmable = 0
    hops.plane = plane
    hops.entropy = row.entropy | FIXED_PATH
    if params.spray == 1 and row.single_path == 0:
        state.nics[nic].random = rng.following(state.nics[nic].random)
        hops.entropy = state.nics[nic].random
    dcqcn.on_sent(state, now, pair, hops.size)
    if row.deadline == NEVER:
        row.deadline = now + params.retransmit_after
    watch(state, nic, pair)


@kernel
def _repeat(state: Roce, pair: int, psn: int) -> None:
    row = state.senders[pair]
    if state.params[0].recovery == Recovery.SELECTIVE:
        row.resend = psn
    else:
        row.next = psn


@kernel
def _on_silence(state: Roce, now: int, nic: int, pair: int) -> None:
    """Repeat what is not acknowledged, and wait twice as long next time; give up when all retries are spent."""
    row = state.senders[pair]
    state.nics[nic].timeouts += 1
    row.retries += 1
    if row.retries > state.params[0].retries:
        row.error = 1
        _fail(state, nic, row.flow)
        return
    row.deadline = now + (state.params[0].retransmit_after << row.retries)
    _repeat(state, pair, row.acked)
    _list(state, nic, pair)


@kernel
def _fail(state: Roce, nic: int, flow: int) -> None:
    """A queue pair of the message is in error: none of them goes on."""
    message = state.messages[flow]
    for pair in range(message.first, message.first + message.slices):
        row = state.senders[pair]
        row.begun = 0
        row.deadline = NEVER
        row.alpha_at = NEVER
        row.increase_at = NEVER
    message.next_failed = state.nics[nic].failed
    state.nics[nic].failed = flow


@kernel
def _list(state: Roce, nic: int, pair: int) -> None:
    row = state.senders[pair]
    node = state.nics[nic]
    if row.listed == 1:
        return
    row.listed = 1
    if node.ready_tail == NONE:
        row.next_ready = pair
    else:
        row.next_ready = state.senders[node.ready_tail].next_ready
        state.senders[node.ready_tail].next_ready = pair
    node.ready_tail = pair


@kernel
def _unlist_front(state: Roce, nic: int) -> None:
    node = state.nics[nic]
    front = state.senders[node.ready_tail].next_ready
    state.senders[front].listed = 0
    if front == node.ready_tail:
        node.ready_tail = NONE
    else:
        state.senders[node.ready_tail].next_ready = state.senders[front].next_ready
