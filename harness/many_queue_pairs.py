"""Many queue pairs between two processes: one context a side, one completion queue, attributes over one TCP channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from openmrc.engine.state.machines import QpState
from openmrc.verbs import (
    Access,
    CompletionQueue,
    Connection,
    ConnectionOptions,
    Context,
    ContextAttr,
    MemoryRegion,
    QpAttr,
    QpInitAttr,
    QueuePair,
)

FIRST_PSN = 7
SETUP_SECONDS = 120.0


@dataclass
class Group:
    """Queue pairs in RTS that share a completion queue."""

    cq: CompletionQueue
    qps: list[QueuePair]

    def close(self) -> None:
        """Give the queue pairs and their completion queue back."""
        for qp in self.qps:
            qp.destroy()
        self.cq.destroy()


def context_attr(count: int, depth: int, mpr: int) -> ContextAttr:
    """Return attributes of a context with room for `count` queue pairs beside the one that carries the exchange."""
    return ContextAttr(max_qp=count + 1, max_send_wr=max(depth, 256), max_mpr=mpr)


def open_group(
    context: Context, peer: Connection, region: MemoryRegion, count: int, depth: int, mpr: int, mtu: int
) -> Group:
    """Make `count` queue pairs, exchange their numbers with the peer, and move them to RTS; both sides call it."""
    cq = context.create_cq(count * depth)
    init = QpInitAttr(send_cq=cq, recv_cq=cq, max_send_wr=depth, max_recv_wr=1)
    qps = [context.create_qp(region.pd, init) for _ in range(count)]
    for qp in qps:
        qp.modify(state=QpState.INIT, access_flags=Access.REMOTE_WRITE)
    peer.tell([qp.qpn for qp in qps])
    theirs: list[int] = peer.hear(list[int], timeout=SETUP_SECONDS)
    for qp, number in zip(qps, theirs, strict=True):
        qp.modify(_ready_to_receive(peer, number, mpr, mtu))
        qp.modify(_ready_to_send(mpr))
    peer.barrier(SETUP_SECONDS)
    return Group(cq, qps)


def _ready_to_receive(peer: Connection, qpn: int, mpr: int, mtu: int) -> QpAttr:
    fields: dict[str, Any] = {"dest_qpn": qpn, "rq_psn": FIRST_PSN, "path_mtu": mtu, "mpr_dest": mpr, "mpr": mpr}
    return QpAttr(state=QpState.RTR, remote=peer.remote.address, max_wimm_dest=128, **fields)


def _ready_to_send(mpr: int) -> QpAttr:
    usual = ConnectionOptions()
    return QpAttr(
        state=QpState.RTS,
        sq_psn=FIRST_PSN,
        max_wimm=128,
        mpr=mpr,
        timeout=usual.timeout,
        linear_count=usual.linear_count,
        exponential_count=usual.exponential_count,
        user_timeout=usual.user_timeout,
    )
