"""The last reliability probe of a queue pair, which its own row keeps until another EV is probed.

Most probes ask for the report of a tail, once in the life of a short connection, on whatever EV is next. In the row of
that EV (`EvFailure`) each would take a page of memory of its own: 4 KB a connection in an all-to-all.
"""

from openmrc.core.jit import kernel
from openmrc.engine.state.tables import NONE, Engine

_MOST = 1 << 14  # probes, half of what a counter of 16 bits holds


@kernel
def on_sent(engine: Engine, now: int, qp: int, ev: int) -> None:
    """Record that a probe is sent on an EV."""
    row = engine.qps[qp]
    if row.last_probe_ev != ev - row.ev_base or row.last_probes == _MOST:
        settle(engine, qp)
        row.last_probe_ev = ev - row.ev_base
        row.last_probes = 0
    row.last_probes += 1
    row.last_probe_at = now
    row.last_probe_is_out = True


@kernel
def on_answered(engine: Engine, qp: int, ev: int) -> int:
    """Record that the probe of an EV was answered; return when it was sent (ps)."""
    row = engine.qps[qp]
    if row.last_probe_ev == ev - row.ev_base:
        row.last_probe_is_out = False
        return row.last_probe_at
    engine.ev_failures[ev].probe_is_out = False
    return engine.ev_failures[ev].probe_sent_at


@kernel
def is_out(engine: Engine, qp: int, ev: int) -> bool:
    """Return whether the probe of an EV is unanswered."""
    row = engine.qps[qp]
    if row.last_probe_ev == ev - row.ev_base:
        return row.last_probe_is_out
    return engine.ev_failures[ev].probe_is_out


@kernel
def count(engine: Engine, qp: int, ev: int) -> int:
    """Return how many probes an EV has carried."""
    row = engine.qps[qp]
    newest = row.last_probes if row.last_probe_ev == ev - row.ev_base else 0
    return int(engine.ev_failures[ev].probes + newest)


@kernel
def settle(engine: Engine, qp: int) -> None:
    """Move what is known about the last probe to the row of its EV."""
    row = engine.qps[qp]
    if row.last_probe_ev != NONE:
        record = engine.ev_failures[row.ev_base + row.last_probe_ev]
        record.probes += row.last_probes
        record.probe_sent_at = row.last_probe_at
        record.probe_is_out = row.last_probe_is_out
        row.last_probe_ev = NONE
