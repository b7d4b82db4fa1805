"""Congestion window of a peer (QPCC), independent of the algorithm.

Another algorithm is another module with the same `on_*` functions, and a branch here.
"""

from openmrc.core.jit import kernel
from openmrc.engine.congestion import nscc, reordering
from openmrc.engine.state.params import CongestionAlgorithm
from openmrc.engine.state.queue_pairs import params_of_peer, round_trip
from openmrc.engine.state.tables import Engine
from openmrc.units import NEVER

_OPEN = 1 << 62  # bytes


@kernel
def begin(engine: Engine, now: int, peer: int) -> None:
    row = engine.peers[peer]
    row.inflight = 0
    row.least_rtt = NEVER
    reordering.begin(engine, now, peer)
    nscc.begin(engine, now, peer)


@kernel
def may_send(engine: Engine, peer: int, size: int) -> bool:
    """Return whether `size` bytes fit the window; one packet always does when nothing is in flight."""
    row = engine.peers[peer]
    return row.inflight <= 0 or row.inflight + size <= row.cwnd or _algorithm(engine, peer) == CongestionAlgorithm.NONE


@kernel
def window(engine: Engine, peer: int) -> int:
    """Return the window in bytes; without an algorithm it never closes."""
    return _OPEN if _algorithm(engine, peer) == CongestionAlgorithm.NONE else int(engine.peers[peer].cwnd)


@kernel
def on_blocked(engine: Engine, peer: int) -> None:
    """Record that the window, and nothing else, keeps a packet back."""
    engine.peers[peer].qa_blocked = True


@kernel
def on_ack(engine: Engine, now: int, peer: int, size: int, marked: int, rtt: int, penalty: int, restore: int) -> None:
    """Account for `size` newly received bytes; `rtt` is a round-trip sample (ps), 0 for none."""
    if rtt > 0:
        _smooth(engine, peer, rtt)
        reordering.on_round_trip(engine, now, peer)
        engine.peers[peer].least_rtt = min(engine.peers[peer].least_rtt, rtt)
    if _algorithm(engine, peer) == CongestionAlgorithm.NSCC:
        nscc.on_ack(engine, now, peer, size, marked, rtt, penalty, restore)


@kernel
def on_nack(engine: Engine, now: int, peer: int, size: int) -> None:
    """Account for `size` bytes that were trimmed or refused."""
    if _algorithm(engine, peer) == CongestionAlgorithm.NSCC:
        nscc.on_nack(engine, now, peer, size)


@kernel
def on_loss(engine: Engine, now: int, peer: int, size: int) -> None:
    """Account for `size` lost bytes."""
    if _algorithm(engine, peer) == CongestionAlgorithm.NSCC:
        nscc.on_loss(engine, now, peer, size)


@kernel
def loss_delay(engine: Engine, peer: int) -> int:
    """Return how long (ps) after sending a packet may stay unreported while later ones are reported.

    The round trip plus the delay of a full queue, by which a packet may lag behind packets on other paths. Switch
    queues are sized by the longest round trip of the fabric (UEC 1.0.3 pp. 418-419), so this applies to near peers too.
    """
    return max(reordering_delay(engine, peer), params_of_peer(engine, peer).loss_delay_floor)


@kernel
def pto(engine: Engine, peer: int) -> int:
    """Return how long (ps) nothing may be heard before a probe asks what has arrived.

    The loss delay. Without trimming it is processes that make round trips vary, so two round trips bound it, as in
    RFC 8985 (7.2). With trimming it is queues, and one of them may hold a packet back for as long as they show.
    """
    params = params_of_peer(engine, peer)
    delay = reordering_delay(engine, peer)
    if engine.peers[peer].srtt > 0 and not params.trimming:
        delay = min(delay, 2 * round_trip(engine, peer))
    return int(max(delay, params.loss_delay_floor))


@kernel
def reordering_delay(engine: Engine, peer: int) -> int:
    """Return the loss delay (ps) as round trips show it, without its floor."""
    variation = max(4 * engine.peers[peer].rttvar, params_of_peer(engine, peer).base_rtt)
    return int(round_trip(engine, peer) + variation)


@kernel
def shortest_round_trip(engine: Engine, peer: int) -> int:
    """Return the time (ps) before which no answer of a peer comes, 0 if none has come yet.

    An eighth less than the shortest that was measured: samples are multiples of the timestamp unit, rounded up.
    """
    row = engine.peers[peer]
    least = int(min(row.least_rtt, row.base_rtt))
    return 0 if row.least_rtt == NEVER else least - (least >> 3)


@kernel
def report_age(engine: Engine, peer: int) -> int:
    """Return how long ago (ps) a report that arrives now was made, as far as queues stand; 0 where hardly any do.

    Where packets wait at one switch they may wait at two, longer than the loss delay, and still be on their way when
    the report was made. Without queues such a packet is lost, and its repair does not wait for a later report.
    """
    row = engine.peers[peer]
    queueing = row.srtt - row.base_rtt - (row.base_rtt >> 3)
    return int(min(max(queueing, 0), row.base_rtt >> 1))


@kernel
def _algorithm(engine: Engine, peer: int) -> int:
    return params_of_peer(engine, peer).algorithm


@kernel
def _smooth(engine: Engine, peer: int, rtt: int) -> None:
    # RFC 6298 (2.2, 2.3), except that a sample below the average adds less to the variance; otherwise the end of an
    # idle period would double the time until a loss is detected.
    row = engine.peers[peer]
    if row.srtt == 0:
        row.srtt = rtt
        row.rttvar = rtt >> 1
        return
    surprise = (abs(row.srtt - rtt) - row.rttvar) >> 2
    if rtt < row.srtt and surprise > 0:
        surprise >>= 3
    row.rttvar += surprise
    row.srtt += (rtt - row.srtt) >> 3
