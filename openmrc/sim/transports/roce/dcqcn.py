"""DCQCN: the rate of one queue pair (Zhu et al., SIGCOMM 2015, §5). Each has its own alpha."""

from openmrc.core.jit import kernel
from openmrc.sim.transports.roce.tables import Roce
from openmrc.units import NEVER


@kernel
def begin(state: Roce, sender: int) -> None:
    """Start at line rate."""
    row = state.senders[sender]
    row.current = row.rate
    row.target = row.current
    row.alpha = 1.0
    row.alpha_at = NEVER
    row.increase_at = NEVER


@kernel
def on_cnp(state: Roce, now: int, sender: int) -> None:
    """Reduce the rate by alpha / 2 and start to recover."""
    row = state.senders[sender]
    params = state.params[0]
    state.nics[row.nic].cnps += 1
    row.target = row.current
    row.current = max(row.current * (1.0 - row.alpha / 2.0), row.rate / 1000.0)
    row.alpha = (1.0 - params.gain) * row.alpha + params.gain
    row.alpha_at = now + params.period
    row.increase_at = now + params.period
    row.timer_steps = 0
    row.byte_steps = 0
    row.sent_bytes = 0


@kernel
def on_sent(state: Roce, now: int, sender: int, size: int) -> None:
    """Count bytes; return when the next packet may leave."""
    row = state.senders[sender]
    params = state.params[0]
    row.send_at = now + int(size * 8e12 / row.current)
    if row.increase_at == NEVER:
        return
    row.sent_bytes += size
    if row.sent_bytes >= params.byte_counter:
        row.sent_bytes = 0
        row.byte_steps += 1
        _increase(state, sender)


@kernel
def expire(state: Roce, now: int, sender: int) -> None:
    """Update alpha and the rate, each at its own period."""
    row = state.senders[sender]
    params = state.params[0]
    if row.alpha_at <= now:
        row.alpha *= 1.0 - params.gain
        row.alpha_at = now + params.period
    if row.increase_at <= now:
        row.timer_steps += 1
        row.increase_at = now + params.period
        _increase(state, sender)


@kernel
def _increase(state: Roce, sender: int) -> None:
    row = state.senders[sender]
    params = state.params[0]
    steps = params.fast_steps
    if row.timer_steps > steps and row.byte_steps > steps:
        row.target += params.hyper_share * row.rate
    elif row.timer_steps > steps or row.byte_steps > steps:
        row.target += params.additive_share * row.rate
    row.target = min(row.target, row.rate)
    row.current = (row.current + row.target) / 2.0
    if row.current > 0.999 * row.rate and row.target >= row.rate:
        row.current = row.rate
        row.increase_at = NEVER
        row.alpha_at = NEVER
