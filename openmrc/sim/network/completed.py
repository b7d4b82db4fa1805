"""Completed flows, as transports report them: one number for the flow and the side on which it completed."""

from typing import Protocol

from openmrc.core.jit import kernel
from openmrc.core.rows import Int32, Table
from openmrc.sim.network.network_tables import NONE
from openmrc.sim.workloads.traffic import CompletionSide

_SIDES = 4  # room for every CompletionSide


class UnreportedFlows:
    """The flows that a NIC has not reported yet; NONE: none. A transport's NIC row begins with these."""

    sent: Int32  # completely acknowledged
    received: Int32  # completely received
    failed: Int32  # first of the failed ones; the others follow it in their own rows


class FailedFlow(Protocol):
    """The part of a flow's row that links failed flows."""

    next_failed: Int32  # NONE: the last


@kernel
def completed(flow: int, side: int) -> int:
    return flow * _SIDES + side


@kernel
def flow_of(completion: int) -> int:
    return completion // _SIDES


@kernel
def side_of(completion: int) -> int:
    return completion % _SIDES


@kernel
def take(nics: Table[UnreportedFlows], nic: int, flows: Table[FailedFlow]) -> int:
    """Remove the next completion of a NIC and return it, or NONE."""
    node = nics[nic]
    if node.received != NONE:
        done = completed(node.received, CompletionSide.RECEIVER.value)
        node.received = NONE
        return done
    if node.sent != NONE:
        done = completed(node.sent, CompletionSide.SENDER.value)
        node.sent = NONE
        return done
    if node.failed != NONE:
        done = completed(node.failed, CompletionSide.FAILED.value)
        node.failed = flows[node.failed].next_failed
        return done
    return NONE
