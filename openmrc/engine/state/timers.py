"""Timers of queue pairs; `deadlines` serves them.

A queue pair has one timer of each kind in `Deadline`. Its `deadline` is no later than the earliest of them, its
block's no later than that of any queue pair in it, and the endpoint's no later than that of any block or peer. All may
be early, so pushing a timer back costs nothing.
"""

from openmrc.core.jit import kernel
from openmrc.engine.state.tables import DEADLINES, QPS_PER_BLOCK, Engine
from openmrc.units import NEVER


@kernel
def due(engine: Engine, qp: int, kind: int) -> int:
    """Return the time (ps) of a timer, NEVER if it is not armed."""
    return int(engine.qps[qp].deadlines[kind])


@kernel
def arm(engine: Engine, qp: int, kind: int, at: int) -> None:
    """Set a timer to `at` (ps), whatever it was; NEVER disarms it."""
    row = engine.qps[qp]
    row.deadlines[kind] = at
    if at < row.deadline:
        row.deadline = at
        node = engine.endpoints[row.endpoint]
        block = engine.qp_blocks[node.qp_block_base + (qp - node.qp_base) // QPS_PER_BLOCK]
        block.deadline = min(block.deadline, at)
        arm_endpoint(engine, row.endpoint, at)


@kernel
def arm_by(engine: Engine, qp: int, kind: int, at: int) -> None:
    """Set a timer to `at` (ps), unless it is armed for an earlier time."""
    arm(engine, qp, kind, min(due(engine, qp, kind), at))


@kernel
def disarm(engine: Engine, qp: int, kind: int) -> None:
    engine.qps[qp].deadlines[kind] = NEVER


@kernel
def disarm_all(engine: Engine, qp: int) -> None:
    """Stop every timer of a queue pair."""
    engine.qps[qp].deadline = NEVER
    for kind in range(DEADLINES):
        disarm(engine, qp, kind)


@kernel
def earliest(engine: Engine, qp: int) -> int:
    """Return the time (ps) of the timer that is due first, NEVER if none is armed."""
    at = NEVER
    for kind in range(DEADLINES):
        at = min(at, due(engine, qp, kind))
    return at


@kernel
def arm_peers(engine: Engine, endpoint: int, at: int) -> None:
    """Bring the deadline of the endpoint's peers forward to `at` (ps) at the latest."""
    node = engine.endpoints[endpoint]
    node.peer_deadline = min(node.peer_deadline, at)
    arm_endpoint(engine, endpoint, at)


@kernel
def arm_endpoint(engine: Engine, endpoint: int, at: int) -> None:
    """Bring the deadline of the endpoint forward to `at` (ps) at the latest."""
    if at < engine.endpoints[endpoint].deadline:
        engine.endpoints[endpoint].deadline = at
