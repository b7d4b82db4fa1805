"""Transmission order: round robin over peers, deficit round robin over the queue pairs that share a peer's window.

A turn of a queue pair is one burst (`Params.ev_burst`): a packet of full size in the simulator, as much as fits one
system call over sockets. Deficit round robin: Shreedhar and Varghese, SIGCOMM 1995.

Both are rings linked through the rows, so insertion, removal and rotation take constant time. A queue pair is listed
while it wants to send; a peer is listed while it has such queue pairs and its window is open.
"""

from openmrc.core.jit import kernel
from openmrc.engine.state.queue_pairs import nominal_size, params_of, wants_to_send
from openmrc.engine.state.tables import NONE, Engine


@kernel
def wake(engine: Engine, qp: int) -> None:
    """List a queue pair that may want to send, and its peer."""
    row = engine.qps[qp]
    if row.listed == 0 and wants_to_send(engine, qp):
        peer = engine.peers[row.peer]
        if peer.ready_tail == NONE:
            row.next_ready = qp
        else:
            last = engine.qps[peer.ready_tail]
            row.next_ready = last.next_ready
            last.next_ready = qp
        peer.ready_tail = qp
        peer.ready_count += 1
        row.listed = 1
        row.deficit = quantum(engine, qp) - nominal_size(row.path_mtu)
    if row.peer != NONE:
        wake_peer(engine, row.peer)


@kernel
def quantum(engine: Engine, qp: int) -> int:
    """Return the bytes that a turn adds to the deficit: a burst, or a packet of full size."""
    return max(params_of(engine, qp).ev_burst, nominal_size(engine.qps[qp].path_mtu))


@kernel
def wake_peer(engine: Engine, peer: int) -> None:
    """List a peer whose window may have opened."""
    row = engine.peers[peer]
    if row.listed == 1 or row.ready_tail == NONE:
        return
    node = engine.endpoints[row.endpoint]
    if node.ready_tail == NONE:
        row.next_ready = peer
    else:
        last = engine.peers[node.ready_tail]
        row.next_ready = last.next_ready
        last.next_ready = peer
    node.ready_tail = peer
    node.ready_count += 1
    row.listed = 1


@kernel
def front_peer(engine: Engine, endpoint: int) -> int:
    """Return the peer whose turn it is, or NONE."""
    tail = engine.endpoints[endpoint].ready_tail
    if tail == NONE:
        return NONE
    return engine.peers[tail].next_ready


@kernel
def turn_peers(engine: Engine, endpoint: int) -> None:
    """Move the front peer to the back."""
    node = engine.endpoints[endpoint]
    node.ready_tail = engine.peers[node.ready_tail].next_ready


@kernel
def drop_front_peer(engine: Engine, endpoint: int) -> None:
    """Take the front peer off the ring: it has nothing it may send."""
    node = engine.endpoints[endpoint]
    last = engine.peers[node.ready_tail]
    front = last.next_ready
    if front == node.ready_tail:
        node.ready_tail = NONE
    else:
        last.next_ready = engine.peers[front].next_ready
    engine.peers[front].listed = 0
    engine.peers[front].next_ready = NONE
    node.ready_count -= 1


@kernel
def front_qp(engine: Engine, peer: int) -> int:
    """Return the queue pair of this peer whose turn it is, or NONE."""
    tail = engine.peers[peer].ready_tail
    if tail == NONE:
        return NONE
    return engine.qps[tail].next_ready


@kernel
def turn_qps(engine: Engine, peer: int) -> None:
    """Move the front queue pair to the back."""
    row = engine.peers[peer]
    row.ready_tail = engine.qps[row.ready_tail].next_ready


@kernel
def drop_front_qp(engine: Engine, peer: int) -> None:
    """Take the front queue pair off the ring; an idle one keeps no deficit."""
    row = engine.peers[peer]
    last = engine.qps[row.ready_tail]
    front = last.next_ready
    if front == row.ready_tail:
        row.ready_tail = NONE
    else:
        last.next_ready = engine.qps[front].next_ready
    gone = engine.qps[front]
    gone.listed = 0
    gone.next_ready = NONE
    gone.deficit = 0
    row.ready_count -= 1


@kernel
def forget(engine: Engine, qp: int) -> None:
    """Take a queue pair off its peer's ring, wherever it stands."""
    row = engine.qps[qp]
    if row.listed == 0:
        return
    for _ in range(engine.peers[row.peer].ready_count):
        if front_qp(engine, row.peer) == qp:
            drop_front_qp(engine, row.peer)
            return
        turn_qps(engine, row.peer)
