"""Transmission order: round robin over peers, deficit round robin over the queue pairs that share a peer's window.

A turn of a queue pair is one burst (`Params.ev_burst`): a packet of full size in the simulator, as much as fits one
system call over sockets. Deficit round robin: Shreedhar and Varghese, SIGCOMM 1995.

Both orders are rings (`core.ring`): the endpoint holds that of peers, a peer that of its queue pairs. A queue pair is
listed while it wants to send; a peer is listed while it has such queue pairs and its window is open.
"""

from openmrc.core import ring
from openmrc.core.jit import kernel
from openmrc.engine.state.queue_pairs import nominal_size, params_of, wants_to_send
from openmrc.engine.state.tables import NONE, Engine


@kernel
def wake(engine: Engine, qp: int) -> None:
    """List a queue pair that may want to send, and its peer."""
    row = engine.qps[qp]
    if not row.listed and wants_to_send(engine, qp):
        ring.append(engine.peers[row.peer], engine.qps, qp)
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
    if not row.listed and row.ready_tail != NONE:
        ring.append(engine.endpoints[row.endpoint], engine.peers, peer)


@kernel
def drop_front_qp(engine: Engine, peer: int) -> None:
    """Take the front queue pair off the ring; an idle one keeps no deficit."""
    gone = ring.drop_front(engine.peers[peer], engine.qps)
    engine.qps[gone].deficit = 0


@kernel
def forget(engine: Engine, qp: int) -> None:
    """Take a queue pair off its peer's ring, wherever it stands."""
    row = engine.qps[qp]
    if not row.listed:
        return
    for _ in range(engine.peers[row.peer].ready_count):
        if ring.front(engine.peers[row.peer], engine.qps) == qp:
            drop_front_qp(engine, row.peer)
            return
        ring.turn(engine.peers[row.peer], engine.qps)
