"""What time makes due: every deadline of the engine, on one screen.

| deadline | of | when it has come |
|---|---|---|
| ack | queue pair | `requester.on_timeout`, and one retry is spent |
| loss | queue pair | `loss.scan`: holes that waited long enough |
| tail | queue pair | `requester.on_tail`: ask by a probe |
| probe | queue pair | `probes.send_due`: bad EVs |
| reverse | queue pair | `reverse.on_deadline`: control paths |
| status | peer | `ports.tell`: Port Status Update |
| remap | endpoint | `ports.apply_local` |
"""

from openmrc.core.jit import kernel, rare_kernel
from openmrc.engine import loss, ports, probes, requester, retries, reverse, scheduler
from openmrc.engine.states import QpState
from openmrc.engine.tables import Engine
from openmrc.units import NEVER


@kernel
def expire(engine: Engine, now: int, endpoint: int) -> None:
    """Serve every deadline up to `now`, and find the next."""
    node = engine.endpoints[endpoint]
    node.deadline = NEVER
    if node.remap_at <= now:
        ports.apply_local(engine, now, endpoint)
    following = node.remap_at
    for peer in range(node.peer_base, node.peer_base + node.peer_count):
        if engine.peers[peer].status_deadline <= now:
            ports.tell(engine, now, peer)
        following = min(following, engine.peers[peer].status_deadline)
    for qp in range(node.qp_base, node.qp_base + node.qp_count):
        if engine.qps[qp].deadline <= now:
            _expire_qp(engine, now, qp)
        following = min(following, engine.qps[qp].deadline)
    node.deadline = min(node.deadline, following)


@rare_kernel
def _expire_qp(engine: Engine, now: int, qp: int) -> None:
    row = engine.qps[qp]
    row.deadline = NEVER
    if row.loss_deadline <= now:
        loss.scan(engine, now, qp)
    if row.ack_deadline <= now:
        _on_ack_deadline(engine, now, qp)
    if row.tail_deadline <= now:
        requester.on_tail(engine, now, qp)
    if row.probe_deadline <= now:
        probes.send_due(engine, now, qp)
    if row.reverse_deadline <= now:
        reverse.on_deadline(engine, now, qp)
    if row.state == QpState.RTS or row.state == QpState.RTR:
        own = min(min(row.ack_deadline, row.loss_deadline), min(row.tail_deadline, row.probe_deadline))
        row.deadline = min(own, row.reverse_deadline)


@kernel
def _on_ack_deadline(engine: Engine, now: int, qp: int) -> None:
    row = engine.qps[qp]
    if requester.on_timeout(engine, now, qp, retries.patience(engine, qp)) == 1:
        row.timeouts += 1
        if retries.spend(engine, now, qp):
            scheduler.wake(engine, qp)
