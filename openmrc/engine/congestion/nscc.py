"""NSCC, the window-based congestion control of Ultra Ethernet that MRC uses (UEC 1.0.3 §3.6.13; MRC §8).

The inputs are ECN marks and queueing delay (the round trip minus its base). Their four combinations (MRC Table 8-1)
select proportional increase, fair increase, multiplicative decrease or no change. A trim or a loss decreases the window
by one packet. When few bytes of a full window are delivered in a period, quick adapt sets the window to those.

NSCC relies on switches that mark and trim. Where nothing trims, switches may not mark either, so a delay above the
threshold of quick adapt counts as marked there, and losses count as trims: a queue of a switch that only drops would
otherwise stay full, and most of what is sent be lost in it.

Where the rate of the network is not known, NSCC's constants may be far too large for it: one unmarked answer would open
the whole window. There the window is bounded by what the network has delivered: doubled each round trip at first
(RFC 5681, 3.1), then twice the product of the rate seen and the base round trip plus the target delay.

Where the path is not known either, the base follows it. The largest window is what the receiver can hold and what is
under way on a path that is longer than supposed, and delays count by that length: on a path of 100 ms a process that
waits for its processor is no queue, and a window that grew by some packets in a round trip would take minutes. A
smaller sample lowers the base at once. To raise it needs a window at which no queue is ours: when no sample of
`REMEASURED` came near the base, the window is at its least for `NARROW_ROUNDS` round trips, and the least sample of
that time is the base from then on (as the ProbeRTT of BBR; RFC 9002, 5.2, says why a stale least has to be measured
again). A path that became longer would else be a queue for ever.
"""

from openmrc.core.jit import kernel
from openmrc.engine.state.queue_pairs import params_of_peer
from openmrc.engine.state.tables import NONE, Engine, Params, Peer
from openmrc.units import PS_PER_S, PS_PER_US

DELAY_WEIGHT = 0.0125  # of a sample in the average delay
REMEASURED = PS_PER_S  # ps; ten times as often as BBR: windows are narrow for milliseconds, or a tenth of the time
NARROW_ROUNDS = 3  # one until what was in flight has arrived, and two to measure
LEAST_PACKETS = 2  # of each queue pair that wants to send: with one a lost packet leaves nothing that shows it
_MOST_WIDE = (1 << 31) - 1  # bytes
BLAMELESS_SHARE = 0.25  # of the base RTT: what a long delay without a mark counts, an old queue


@kernel
def begin(engine: Engine, now: int, peer: int) -> None:
    """Initialise the state of a new peer: the window starts at line rate unless configured."""
    row = engine.peers[peer]
    params = params_of_peer(engine, peer)
    row.base_rtt = params.base_rtt
    row.achieved = 0
    row.delivery_rate = 0.0
    _size_window(row, params)
    row.cwnd = row.max_cwnd if params.initial_cwnd == 0 else float(params.initial_cwnd)
    row.saved_cwnd = 0.0
    row.average_delay = 0.0
    row.inc_bytes = 0.0
    row.received = 0
    row.adjusted_at = now
    row.eta_at = now
    row.decreased_at = now
    row.fast_bytes = 0
    row.is_fast = False
    row.qa_end = 0
    row.qa_began = now
    row.qa_trigger = False
    row.qa_blocked = False
    row.qa_trimmed = 0
    row.bytes_to_ignore = 0
    row.bytes_ignored = 0
    row.srtt = 0
    row.rttvar = 0
    row.base_timer = 0
    row.is_narrow = False
    row.narrow_us = 0
    row.wide_cwnd = 0


@kernel
def on_ack(engine: Engine, now: int, peer: int, size: int, marked: int, rtt: int, penalty: int, restore: int) -> None:
    """Process `size` newly received bytes, the ECN mark and an RTT sample (ps, 0: none)."""
    row = engine.peers[peer]
    params = params_of_peer(engine, peer)
    row.achieved += size
    row.received += size
    row.bytes_ignored += size
    if params.base_rtt_followed:
        _follow_base(row, params, now, rtt)
        if row.is_narrow:
            return
    if params.bound_by_delivery:
        _size_window(row, params)
    if _is_standing_queue(row, params, rtt):
        marked = 1
    delay = _measure_delay(row, params, marked, rtt)
    if not _quick_adapt(row, params, now, marked, 0, delay):
        _quadrant(row, params, now, size, marked, delay)
        _clamp(row, params)
        _fulfil(row, params, now)
    _obey_receiver(row, params, size, penalty, restore)  # last: an increase is the larger, the smaller the window


@kernel
def on_nack(engine: Engine, now: int, peer: int, size: int) -> None:
    """Process a trimmed packet: it counts as a delay of one more base RTT, because some queue was full."""
    row = engine.peers[peer]
    params = params_of_peer(engine, peer)
    row.bytes_ignored += size
    row.qa_trimmed += size
    _feed_average(row, row.base_rtt + params.base_rtt)
    if not _quick_adapt(row, params, now, 1, 1, row.base_rtt):
        row.cwnd -= size
    _clamp(row, params)


@kernel
def on_loss(engine: Engine, now: int, peer: int, size: int) -> None:
    """Process a lost packet: decrease the window by it (UEC 1.0.3; MRC Table 8-2 OnInferredLoss)."""
    row = engine.peers[peer]
    params = params_of_peer(engine, peer)
    if not params.trimming:
        row.qa_trimmed += size
    row.cwnd -= size
    _clamp(row, params)


@kernel
def _measure_delay(row: Peer, params: Params, marked: int, rtt: int) -> int:
    """Return the queueing delay (ps) to act on, and update the average."""
    if rtt == 0:
        return int(row.average_delay)
    if rtt < row.base_rtt and params.base_rtt_measured:
        row.base_rtt = rtt
        _size_window(row, params)
    delay = max(rtt - row.base_rtt, 0)
    if marked == 0 and delay > _target(row, params):
        _feed_average(row, int(BLAMELESS_SHARE * row.base_rtt))
    else:
        _feed_average(row, delay)
    return delay


@kernel
def _follow_base(row: Peer, params: Params, now: int, rtt: int) -> None:
    """Lower the base round trip to a sample (ps, 0: none), or begin, continue or end to measure it again."""
    if rtt > 0 and (row.base_timer == 0 or rtt < row.base_rtt):
        row.base_rtt = max(rtt, params.base_rtt)
    if row.is_narrow:
        _measure_base(row, params, now, rtt)
    elif row.base_timer == 0 or (rtt > 0 and rtt <= row.base_rtt + _target(row, params) // 2):
        row.base_timer = now
    elif rtt > 0 and now - row.base_timer >= max(REMEASURED, 10 * NARROW_ROUNDS * row.base_rtt):
        row.is_narrow = True
        row.base_timer = now + NARROW_ROUNDS * max(row.srtt, row.base_rtt)
        row.narrow_us = 0
        row.wide_cwnd = int(min(row.cwnd, _MOST_WIDE))
        row.cwnd = _least_window(row, params)


@kernel
def _measure_base(row: Peer, params: Params, now: int, rtt: int) -> None:
    """Take the least round trip at the least window; at the end it is the base.

    The window is then what it was before, and what was seen of queues until now does not count.
    """
    if rtt > 0 and (row.narrow_us == 0 or rtt < row.narrow_us * PS_PER_US):
        row.narrow_us = -(-rtt // PS_PER_US)
    row.cwnd = _least_window(row, params)
    if now < row.base_timer or row.narrow_us == 0:
        return
    row.is_narrow = False
    row.base_rtt = max(row.narrow_us * PS_PER_US, params.base_rtt)
    row.base_timer = now
    row.cwnd = float(row.wide_cwnd)
    row.average_delay = 0.0
    row.bytes_to_ignore = 0
    row.achieved = 0
    row.qa_end = 0
    row.qa_began = now
    _size_window(row, params)
    _clamp(row, params)


@kernel
def _least_window(row: Peer, params: Params) -> float:
    """Return the bytes below which the window does not go."""
    if params.bound_by_delivery:
        return float(params.min_cwnd * LEAST_PACKETS * max(row.ready_count, 1))
    return float(params.min_cwnd)


@kernel
def _longer(row: Peer, params: Params) -> int:
    """Return by how much (ps) the path is longer than supposed, where the base follows it."""
    return max(row.base_rtt - params.base_rtt, 0) if params.base_rtt_followed else 0


@kernel
def _target(row: Peer, params: Params) -> int:
    """Return the queueing delay (ps) to aim at: a quarter of a long path, where round trips vary by as much."""
    return int(max(params.target_delay, _longer(row, params) >> 2))


@kernel
def _is_standing_queue(row: Peer, params: Params, rtt: int) -> bool:
    """Return whether a sample shows a queue that a switch with ECN would have marked long ago."""
    return not params.trimming and rtt - row.base_rtt > max(params.qa_threshold, _longer(row, params))


@kernel
def _feed_average(row: Peer, delay: int) -> None:
    row.average_delay += DELAY_WEIGHT * (delay - row.average_delay)


@kernel
def _quadrant(row: Peer, params: Params, now: int, size: int, marked: int, delay: int) -> None:
    # MRC Table 8-1. The fourth combination, marked with little delay, only moves traffic to other paths.
    if marked == 0 and delay < _target(row, params):
        _increase_proportionally(row, params, size, delay)
    elif marked == 0:
        row.is_fast = False
        row.fast_bytes = 0
        row.inc_bytes += params.fi * size
    elif delay >= _target(row, params):
        _decrease(row, params, now)


@kernel
def _increase_proportionally(row: Peer, params: Params, size: int, delay: int) -> None:
    if delay < max(params.fast_delay, _longer(row, params) >> 3):
        row.fast_bytes += size
        if row.fast_bytes > row.cwnd or row.is_fast:
            row.cwnd += size * params.fi_scale
            row.is_fast = True
            return
    else:
        row.fast_bytes = 0
        row.is_fast = False
    target = _target(row, params)
    row.inc_bytes += params.alpha * size * (target - delay) * (params.target_delay / target)


@kernel
def _decrease(row: Peer, params: Params, now: int) -> None:
    row.is_fast = False
    row.fast_bytes = 0
    # Once per round trip. Without trimming queues are long, and the base is only a small part of the round trip.
    period = row.base_rtt if params.trimming else max(row.base_rtt, row.srtt)
    target = _target(row, params)
    if row.average_delay > target and now - row.decreased_at >= period:
        excess = (row.average_delay - target) / row.average_delay
        row.cwnd *= max(1.0 - params.gamma * excess, params.max_md_jump)
        row.decreased_at = now
        row.decreases += 1


@kernel
def _quick_adapt(row: Peer, params: Params, now: int, marked: int, lost: int, delay: int) -> bool:
    """Run quick adapt; return whether it has acted, or still ignores signals from before it acted."""
    if marked == 1 and row.bytes_ignored < row.bytes_to_ignore:
        _forget_increase(row)
        return True
    if params.disable_qa:
        return False
    if lost == 1 or (not params.trimming and delay > max(params.qa_threshold, _longer(row, params))):
        row.qa_trigger = True
    acted = False
    if now >= row.qa_end:
        is_judged = row.qa_end != 0 and _is_overfull(row, params)
        if params.bound_by_delivery:
            _learn_rate(row, now, is_judged)
        if is_judged and row.qa_trigger and row.achieved < int(row.max_cwnd) >> params.qa_gate:
            row.cwnd = max(float(row.achieved), _least_window(row, params))
            row.bytes_to_ignore = row.inflight
            row.bytes_ignored = 0
            row.quick_adapts += 1
            _forget_increase(row)
            acted = True
        row.qa_trigger = False
        row.qa_trimmed = 0
        row.qa_blocked = row.ready_tail != NONE and not row.listed
        row.achieved = 0
        row.qa_began = now
        row.qa_end = now + row.base_rtt + params.target_delay
    return acted


@kernel
def _learn_rate(row: Peer, now: int, is_judged: bool) -> None:
    """Update the rate that the network is known to deliver, at the end of a period.

    Only a period in which the network was the limit shows that it delivers no more. A single one may have been short
    of processor time, so it counts an eighth.
    """
    rate = row.achieved / max(now - row.qa_began, 1)
    if is_judged:
        row.delivery_rate = max(rate, row.delivery_rate + (rate - row.delivery_rate) / 8)
    elif row.delivery_rate > 0.0:
        row.delivery_rate = max(rate, row.delivery_rate)


@kernel
def _is_overfull(row: Peer, params: Params) -> bool:
    """Return whether the network, not the sender, may be why little was delivered in this period.

    The window kept packets back, or more was trimmed (without trimming: lost) than delivered. A sender that has little
    to send, or shares its ports with many others, delivers little through the best of networks, and a trim now and then
    says nothing else.
    """
    return row.qa_blocked or row.qa_trimmed > row.achieved + params.min_cwnd


@kernel
def _forget_increase(row: Peer) -> None:
    # Collected at the previous window: applied to a small one it would be a large step.
    row.inc_bytes = 0.0
    row.received = 0


@kernel
def _fulfil(row: Peer, params: Params, now: int) -> None:
    """Apply the collected increase to the window, once per `adjust_bytes` or per `adjust_period`."""
    if row.received > params.adjust_bytes or now - row.adjusted_at >= params.adjust_period:
        row.cwnd += row.inc_bytes / row.cwnd
        row.inc_bytes = 0.0
        row.received = 0
        row.adjusted_at = now
        if now - row.eta_at >= params.adjust_period:
            row.cwnd += params.eta
            row.eta_at = now
        _clamp(row, params)


@kernel
def _obey_receiver(row: Peer, params: Params, size: int, penalty: int, restore: int) -> None:
    # rcv_cwnd_pen: 127 leaves one packet per round trip, 64 halves the window over one (MRC §8.5).
    if penalty > 0:
        if restore == 1 and row.saved_cwnd == 0.0:
            row.saved_cwnd = row.cwnd
        row.cwnd = min(row.cwnd, float(max(row.inflight, params.min_cwnd))) - ((penalty * size) >> 7)
        _clamp(row, params)
    elif row.saved_cwnd > 0.0:
        row.cwnd = max(row.cwnd, row.saved_cwnd)
        row.saved_cwnd = 0.0
        _clamp(row, params)


@kernel
def _size_window(row: Peer, params: Params) -> None:
    if params.max_cwnd > 0:
        row.max_cwnd = float(params.max_cwnd)
    else:
        row.max_cwnd = 1.5 * (params.link_rate / 8e12) * row.base_rtt
    row.max_cwnd += row.delivery_rate * _longer(row, params)
    if params.bound_by_delivery:
        row.max_cwnd = max(min(row.max_cwnd, _deliverable(row, params)), _least_window(row, params))


@kernel
def _deliverable(row: Peer, params: Params) -> float:
    """Return the bytes that fill the network twice, as far as is known."""
    if row.delivery_rate == 0.0:
        return float(params.initial_cwnd + row.achieved)
    return 2.0 * row.delivery_rate * (row.base_rtt + params.target_delay)


@kernel
def _clamp(row: Peer, params: Params) -> None:
    row.cwnd = max(min(row.cwnd, row.max_cwnd), _least_window(row, params))
