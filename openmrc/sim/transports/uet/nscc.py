"""NSCC as in UEC 1.0.3 §3.6.13 and in uet-htsim: the window of one connection."""

from openmrc.core.jit import kernel
from openmrc.sim.transports.uet.tables import Uet

FAST_DELAY = 1_000_000  # ps of queueing below which fast increase may run
GAMMA = 0.8  # of the distance above the target, in a decrease
WEIGHT = 0.0125  # of a new delay sample
QA_GATE = 3  # bits by which what is delivered must be below the largest window for a quick adaptation


@kernel
def begin(state: Uet, now: int, sender: int) -> None:
    """Open the window: 1.5 bandwidth-delay products, at line rate from the start."""
    row = state.senders[sender]
    row.base_rtt = state.params[0].network_rtt
    _fit_window(state, sender)
    row.cwnd = row.max_cwnd
    row.adjusted_at = now
    row.eta_at = now
    row.decreased_at = -(1 << 60)
    row.qa_end = 0


@kernel
def on_ack(state: Uet, now: int, sender: int, newly: int, marked: bool, rtt: int) -> None:
    """Process `newly` received bytes; `rtt` in ps, 0: no valid sample."""
    row = state.senders[sender]
    params = state.params[0]
    row.achieved += newly
    row.received += newly
    row.ignored += newly
    delay = _sample(state, sender, marked, rtt)
    if _quick_adapt(state, now, sender, marked, False, delay):
        return
    if not marked and delay < params.target:
        _proportional(state, sender, newly, delay)
    elif not marked:
        row.increase += params.fair * newly
        row.fast_bytes = 0
        row.is_fast = False
    elif delay >= params.target:
        _decrease(state, now, sender)
    _clamp(state, sender)
    _fulfil(state, now, sender)


@kernel
def on_nack(state: Uet, now: int, sender: int, size: int) -> None:
    """Process a trimmed packet."""
    row = state.senders[sender]
    params = state.params[0]
    row.trim_seen = True
    row.ignored += size
    _average(state, sender, params.network_rtt)
    if not _quick_adapt(state, now, sender, True, True, int(row.average_delay)):
        row.cwnd -= size
        _clamp(state, sender)


@kernel
def on_timeout(state: Uet, sender: int, size: int) -> None:
    """Process a lost packet."""
    row = state.senders[sender]
    row.cwnd -= size
    _clamp(state, sender)


@kernel
def _sample(state: Uet, sender: int, marked: bool, rtt: int) -> int:
    """Return the queueing delay (ps) of a round trip, and update base and average."""
    row = state.senders[sender]
    if rtt == 0:
        return int(row.average_delay)
    if rtt < row.base_rtt:
        row.base_rtt = rtt
        _fit_window(state, sender)
    delay = rtt - row.base_rtt
    # Delay without a mark is old congestion: it counts as little.
    _average(state, sender, row.base_rtt // 4 if not marked and delay > state.params[0].target else delay)
    return delay


@kernel
def _average(state: Uet, sender: int, delay: int) -> None:
    row = state.senders[sender]
    row.average_delay = WEIGHT * delay + (1.0 - WEIGHT) * row.average_delay


@kernel
def _fit_window(state: Uet, sender: int) -> None:
    row = state.senders[sender]
    row.max_cwnd = 1.5 * row.base_rtt * (state.params[0].rate / 8e12)


@kernel
def _proportional(state: Uet, sender: int, newly: int, delay: int) -> None:
    """Increase the window by the distance below the target; faster after more than a window without a queue."""
    row = state.senders[sender]
    params = state.params[0]
    if delay < FAST_DELAY:
        row.fast_bytes += newly
        if row.is_fast or row.fast_bytes > row.cwnd:
            row.is_fast = True
            row.cwnd += newly * params.fast_scale
            return
    else:
        row.fast_bytes = 0
        row.is_fast = False
    row.increase += params.alpha * newly * (params.target - delay)


@kernel
def _decrease(state: Uet, now: int, sender: int) -> None:
    """Decrease the window by the distance above the target, once per round trip."""
    row = state.senders[sender]
    params = state.params[0]
    row.fast_bytes = 0
    row.is_fast = False
    if now - row.decreased_at <= row.base_rtt or row.average_delay <= params.target:
        return
    row.cwnd *= max(1.0 - GAMMA * (row.average_delay - params.target) / row.average_delay, 0.5)
    row.decreased_at = now
    row.decreases += 1


@kernel
def _fulfil(state: Uet, now: int, sender: int) -> None:
    """Apply the collected increase to the window."""
    row = state.senders[sender]
    params = state.params[0]
    if row.received > params.adjust_bytes or now - row.adjusted_at > params.network_rtt:
        row.cwnd += row.increase / row.cwnd
        row.increase = 0.0
        row.received = 0
        row.adjusted_at = now
    if now - row.eta_at > params.network_rtt:
        row.cwnd += params.eta
        row.eta_at = now
    _clamp(state, sender)


@kernel
def _quick_adapt(state: Uet, now: int, sender: int, marked: bool, lost: bool, delay: int) -> bool:
    """Once per period: reduce the window to the delivered bytes if those are few and congestion is heavy."""
    row = state.senders[sender]
    params = state.params[0]
    if row.ignored < row.to_ignore and marked:
        return True
    acted = False
    if now > row.qa_end:
        heavy = row.trim_seen or lost or delay > params.qa_threshold
        if row.qa_end != 0 and heavy and row.achieved < int(row.max_cwnd) >> QA_GATE:
            row.cwnd = max(float(row.achieved), float(params.packet))
            row.to_ignore = row.in_flight
            row.ignored = 0
            row.increase = 0.0
            acted = True
        row.trim_seen = False
        row.achieved = 0
        row.qa_end = now + row.base_rtt + params.target
    return acted


@kernel
def _clamp(state: Uet, sender: int) -> None:
    row = state.senders[sender]
    row.cwnd = min(max(row.cwnd, float(state.params[0].packet)), row.max_cwnd)
