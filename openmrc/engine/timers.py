"""Deadlines: who wants to be woken when. What is then done stands in `deadlines`.

Rows keep the earliest of their own deadlines; the endpoint keeps a bound that is never late and
may be early, so pushing a deadline back costs nothing.
"""

from openmrc.core.jit import kernel
from openmrc.engine.tables import Engine


@kernel
def arm(engine: Engine, qp: int, at: int) -> None:
    """Make sure the queue pair is looked at by `at` (ps)."""
    row = engine.qps[qp]
    if at < row.deadline:
        row.deadline = at
        arm_endpoint(engine, row.endpoint, at)


@kernel
def arm_endpoint(engine: Engine, endpoint: int, at: int) -> None:
    """Make sure the endpoint is looked at by `at` (ps)."""
    if at < engine.endpoints[endpoint].deadline:
        engine.endpoints[endpoint].deadline = at
