"""Serves the expired timers of an endpoint and determines its next deadline.

The timers of a queue pair are the members of `Deadline`. A peer has two: for Port Status Updates to it, and for probes
of ports that it reports as down. The endpoint has one, for local port changes that are not in effect yet.
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine import user_timeout
from openmrc.engine.paths import ports
from openmrc.engine.requester import loss, probes, transmission
from openmrc.engine.responder import reverse
from openmrc.engine.state import timers
from openmrc.engine.state.queue_pairs import receives_data
from openmrc.engine.state.tables import DEADLINES, QPS_PER_BLOCK, Deadline, Engine
from openmrc.units import NEVER


@kernel
def expire(engine: Engine, now: int, endpoint: int) -> None:
    """Serve every timer that is due at `now` and update the endpoint's deadline."""
    node = engine.endpoints[endpoint]
    if now - node.deadline > user_timeout.STALL:
        user_timeout.pardon(engine, now, endpoint, now - node.deadline)
    node.deadline = NEVER
    if node.remap_at <= now:
        ports.apply_local(engine, now, endpoint)
    if node.peer_deadline <= now:
        _expire_peers(engine, now, endpoint)
    following = min(node.remap_at, node.peer_deadline)
    for number in range(node.qp_block_count):
        block = engine.qp_blocks[node.qp_block_base + number]
        if block.deadline <= now:
            _expire_block(engine, now, endpoint, number)
        following = min(following, block.deadline)
    node.deadline = min(node.deadline, following)


@rare_kernel
def _expire_peers(engine: Engine, now: int, endpoint: int) -> None:
    node = engine.endpoints[endpoint]
    node.peer_deadline = NEVER
    following = NEVER
    for peer in range(node.peer_base, node.peer_base + node.peer_count):
        if engine.peers[peer].status_deadline <= now:
            ports.tell(engine, now, peer)
        if engine.peers[peer].check_deadline <= now:
            ports.check(engine, now, peer)
        following = min(following, min(engine.peers[peer].status_deadline, engine.peers[peer].check_deadline))
    node.peer_deadline = min(node.peer_deadline, following)


@kernel
def _expire_block(engine: Engine, now: int, endpoint: int, number: int) -> None:
    node = engine.endpoints[endpoint]
    block = engine.qp_blocks[node.qp_block_base + number]
    block.deadline = NEVER
    following = NEVER
    first = node.qp_base + number * QPS_PER_BLOCK
    for qp in range(first, min(first + QPS_PER_BLOCK, node.qp_base + node.qp_count)):
        if engine.qps[qp].deadline <= now:
            _expire_qp(engine, now, qp)
        following = min(following, engine.qps[qp].deadline)
    block.deadline = min(block.deadline, following)


@rare_kernel
def _expire_qp(engine: Engine, now: int, qp: int) -> None:
    row = engine.qps[qp]
    row.deadline = NEVER
    for kind in range(DEADLINES):
        if timers.due(engine, qp, kind) <= now:
            _serve(engine, now, qp, kind)
    if receives_data(row.state):
        row.deadline = timers.earliest(engine, qp)


@kernel
def _serve(engine: Engine, now: int, qp: int, kind: int) -> None:
    match kind:
        case Deadline.REORDERING:
            loss.scan(engine, now, qp)
        case Deadline.RTO:
            transmission.on_rto(engine, now, qp)
        case Deadline.PTO:
            transmission.on_pto(engine, now, qp)
        case Deadline.PROBE:
            probes.send_due(engine, now, qp)
        case Deadline.REVERSE:
            reverse.on_deadline(engine, now, qp)
