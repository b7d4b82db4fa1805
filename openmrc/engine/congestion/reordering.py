"""How far packets to a peer overtake each other: what a hole in its reports says about a loss (after RFC 8985, RACK).

The paths of a spray differ in delay, so a packet may be reported after one that was sent later. The requester measures
by how much, in sending time. A packet that is missing though one sent longer after it has arrived is lost, and need not
wait as long as the fullest queue of the fabric would hold it back.
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine.state.queue_pairs import params_of_peer
from openmrc.engine.state.tables import Engine

_FADE = 3  # a round trip without takes an eighth from what was seen: it halves in five or six


@kernel
def begin(engine: Engine, now: int, peer: int) -> None:
    """Expect a new peer's packets to overtake each other by as much as a full queue holds one of them back."""
    row = engine.peers[peer]
    row.reordering = params_of_peer(engine, peer).base_rtt
    row.reordering_at = now


@kernel
def on_overtaken(engine: Engine, now: int, peer: int, by: int) -> None:
    """Record that a packet has arrived that was missing when one sent `by` ps after it was reported."""
    row = engine.peers[peer]
    if by >= _faded(row.reordering):
        row.reordering = max(row.reordering, min(by, _most(engine, peer)))
        row.reordering_at = now


@rare_kernel
def on_retransmitted_in_vain(engine: Engine, now: int, peer: int) -> None:
    """Expect twice as much: the first copy of a packet declared lost has arrived, at an unknown time."""
    row = engine.peers[peer]
    row.reordering = min(2 * row.reordering + (row.srtt >> 2), _most(engine, peer))
    row.reordering_at = now


@kernel
def on_round_trip(engine: Engine, now: int, peer: int) -> None:
    """Forget some of what was not seen again for a round trip: queues drain, and slow paths leave the rotation."""
    row = engine.peers[peer]
    if now - row.reordering_at >= row.srtt:
        row.reordering = _faded(row.reordering)
        row.reordering_at = now


@kernel
def window(engine: Engine, peer: int) -> int:
    """Return by how much (ps) a packet must have been overtaken to be lost.

    A quarter more than what was seen, and at least a quarter of the round trip, the first window of RACK; at most a
    round trip, or the delay of a full queue if that is longer.
    """
    row = engine.peers[peer]
    seen = row.reordering + (row.reordering >> 2)
    return int(min(max(seen, row.srtt >> 2), _most(engine, peer)))


@kernel
def is_known(engine: Engine, peer: int) -> bool:
    """Return whether packets overtake each other by less than a full queue would hold one of them back.

    On a path that is longer than supposed by less than its length: the first window of RACK alone is a quarter of that.
    """
    return window(engine, peer) < max(params_of_peer(engine, peer).base_rtt, engine.peers[peer].base_rtt)


@kernel
def explains(engine: Engine, peer: int, by: int) -> bool:
    """Return whether a packet may have been overtaken by `by` ps and not be lost.

    Always, as long as full queues have to be reckoned with: one may hold a packet back at each switch.
    """
    return by < window(engine, peer) or not is_known(engine, peer)


@kernel
def _faded(seen: int) -> int:
    return seen - (seen >> _FADE)


@kernel
def _most(engine: Engine, peer: int) -> int:
    return int(max(engine.peers[peer].srtt, params_of_peer(engine, peer).base_rtt))
