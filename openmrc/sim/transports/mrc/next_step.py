"""What MRC's queue pairs need between two equal steps: receives for the immediates of the next, and their probes' age.

A queue pair keeps its windows, paths and sequence numbers. If steps between the two were left out, the probes of bad
EVs and silent ports would have been sent meanwhile: a missing answer doubles the interval up to its limit, so that the
interval is then about as long as the time that has passed. One probe follows at once: a path that came back meanwhile
would have been found.
"""

from __future__ import annotations

from collections.abc import Callable

from openmrc.core.arrays import Ints
from openmrc.core.jit import entry, kernel
from openmrc.core.rows import column
from openmrc.engine import messages
from openmrc.engine.state import timers
from openmrc.engine.state.machines import EvState
from openmrc.engine.state.queue_pairs import params_of
from openmrc.engine.state.tables import Deadline, Engine
from openmrc.sim.network.network_tables import Network
from openmrc.sim.transports.mrc.transport import Mrc
from openmrc.units import PS_PER_US


def next_step(begun: Mrc) -> Callable[[Mrc, Network, int, int], Mrc]:
    """Return what prepares queue pairs that have not carried anything yet for steps after the first."""
    receives = column(begun.engine.qps, "receive_tail") - column(begun.engine.qps, "receive_head")  # for one step

    def prepared(state: Mrc, network: Network, now: int, skipped: int) -> Mrc:
        """Prepare the next step; `skipped`: ps that were left out before it."""
        post_receives(state.engine, receives)
        if skipped > 0:
            age_probes(state.engine, now, skipped)
        return state

    return prepared


@entry
def post_receives(engine: Engine, wanted: Ints) -> int:
    """Post receives until each queue pair has as many as wanted; return how many were posted."""
    posted = 0
    for qp in range(len(engine.qps)):
        row = engine.qps[qp]
        while row.receive_tail - row.receive_head < wanted[qp]:
            messages.post_receive(engine, qp, row.receive_tail)
            posted += 1
    return posted


@entry
def age_probes(engine: Engine, now: int, skipped: int) -> int:
    """Let probes of bad EVs and silent ports be as old as time that was left out (ps) makes them; count the EVs."""
    aged = 0
    for qp in range(len(engine.qps)):
        row = engine.qps[qp]
        if row.good_evs < row.ev_count:
            aged += _age_evs(engine, now, qp, skipped)
        if row.silent_ports != 0:
            _age_rotations(engine, now, qp, skipped)
    return aged


@kernel
def _age_evs(engine: Engine, now: int, qp: int, skipped: int) -> int:
    row, longest, aged = engine.qps[qp], params_of(engine, qp).probe_interval_max, 0
    for ev in range(row.ev_base, row.ev_base + row.ev_count):
        if engine.evs[ev].state == EvState.ASSUMED_BAD:
            failure = engine.ev_failures[ev]
            failure.probe_gap = min(failure.probe_gap + skipped, longest)
            failure.probe_at = min(failure.probe_at, now + PS_PER_US * (1 + ev % 1000))  # not all at once
            timers.arm_by(engine, qp, Deadline.PROBE, failure.probe_at)
            aged += 1
    return aged


@kernel
def _age_rotations(engine: Engine, now: int, qp: int, skipped: int) -> None:
    row, longest = engine.qps[qp], params_of(engine, qp).probe_interval_max
    for index in range(row.rotation_base, row.rotation_base + row.rotation_count):
        if (row.silent_ports >> engine.rotations[index].port) & 1 == 1:
            probing = engine.port_returns[index]
            probing.check_gap = min(probing.check_gap + skipped, longest)
            probing.check_at = min(probing.check_at, now + PS_PER_US)
            timers.arm_by(engine, qp, Deadline.PROBE, probing.check_at)
