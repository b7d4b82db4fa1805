"""Start messages, and process the releases that their completions trigger."""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.sim.network import transport_api
from openmrc.sim.network.completed import flow_of, side_of
from openmrc.sim.network.forwarding import scale_up
from openmrc.sim.network.network_tables import NONE, Network
from openmrc.sim.workloads.traffic import CompletionSide
from openmrc.units import NEVER


@kernel
def next_start(network: Network, nic: int) -> int:
    """Return when the NIC's next waiting message may start (ps), or NEVER."""
    flow = network.nics[nic].pending
    return network.flows[flow].start if flow != NONE else NEVER


@kernel
def settle(state: transport_api.State, network: Network, shard: int, now: int, nic: int) -> None:
    """Process completions and start messages, until no more are due."""
    while True:
        done = transport_api.next_done(state, nic)
        while done != NONE:
            _complete(network, shard, now, nic, flow_of(done), side_of(done))
            done = transport_api.next_done(state, nic)
        if next_start(network, nic) > now:
            return
        _start(
            state, network, shard, now, nic
        )  # some complete immediately: computations, and messages of a failed connection


@rare_kernel
def _start(state: transport_api.State, network: Network, shard: int, now: int, nic: int) -> None:
    """Post the messages whose start time has come."""
    row = network.nics[nic]
    while row.pending != NONE and network.flows[row.pending].start <= now:
        flow = row.pending
        message = network.flows[flow]
        if message.size == 0:
            row.pending = message.next
            message.posted_at = now
            _complete(network, shard, now, nic, flow, CompletionSide.SENDER)
            _complete(network, shard, now, nic, flow, CompletionSide.RECEIVER)
        elif message.inside:
            row.pending = message.next
            message.posted_at = now
            scale_up.post(network, nic, flow)
        elif transport_api.post(state, network, now, flow):
            row.pending = message.next
            message.posted_at = now
        else:
            message.start = now + network.config[0].shortest_delay  # the send queue is full: retry later
            row.pending = message.next
            insert(network, nic, flow)


@rare_kernel
def settle_scale_up(network: Network, shard: int, now: int, nic: int, hop: int) -> None:
    """Process a packet of the scale-up network, and the completion it may bring."""
    done = scale_up.receive(network, shard, now, nic, hop)
    if done != NONE:
        _complete(network, shard, now, nic, flow_of(done), side_of(done))


@rare_kernel
def _complete(network: Network, shard: int, now: int, nic: int, flow: int, side: int) -> None:
    """Record a completion and release the messages that wait for it."""
    message = network.flows[flow]
    if side == CompletionSide.RECEIVER:
        message.received_at = now
    else:
        network.shards[shard].finished += 1
        if side == CompletionSide.SENDER:
            message.sent_at = now
        else:
            message.failed_at = now
    for index in range(message.first_release, message.first_release + message.release_count):
        release = network.releases[index]
        if release.side == side:
            _release(network, shard, now, nic, release.flow, release.delay)


@kernel
def _release(network: Network, shard: int, now: int, nic: int, flow: int, delay: int) -> None:
    """Release a message: locally, or on another NIC by a signal between windows."""
    if network.flows[flow].source == nic:
        release(network, flow, now + delay)
        return
    owner = network.shards[shard]
    signal = network.signals[owner.signal_base + owner.signals]
    signal.at = now + max(delay, network.config[0].lookahead)
    signal.flow = flow
    owner.signals += 1


@rare_kernel
def release(network: Network, flow: int, at: int) -> None:
    """Count one release of a message; the last one starts it."""
    message = network.flows[flow]
    message.waits -= 1
    if message.waits < 0:
        return
    message.start = max(message.start, at)
    if message.waits == 0:
        nic = message.source
        insert(network, nic, flow)
        network.nics[nic].wake = min(network.nics[nic].wake, message.start)
        network.nodes[nic].next_at = min(network.nodes[nic].next_at, message.start)


@rare_kernel
def insert(network: Network, nic: int, flow: int) -> None:
    """Insert a message into its NIC's list, after those that start no later."""
    row = network.nics[nic]
    start = network.flows[flow].start
    before, after = NONE, row.pending
    while after != NONE and network.flows[after].start <= start:
        before, after = after, network.flows[after].next
    network.flows[flow].next = after
    if before == NONE:
        row.pending = flow
    else:
        network.flows[before].next = flow
