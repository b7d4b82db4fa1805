"""State machines of the endpoint as tables: queue pairs, entropy values, and the actions for each NACK reason.

All state changes go through these tables. The diagrams of the documentation are generated from them, and a test covers
every state with every event. This module does not depend on rows or packets.
"""

from enum import IntEnum
from typing import Any

import numpy as np

from openmrc.core.jit import kernel
from openmrc.wire.codes import NackReason

ILLEGAL = -1


class QpState(IntEnum):
    """State of a queue pair (MRC §6.1; those of an InfiniBand RC queue pair without SQD and SQE)."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    ERROR = 4


class QpEvent(IntEnum):
    """Event that changes the state of a queue pair."""

    TO_INIT = 0
    TO_RTR = 1
    TO_RTS = 2
    FAIL = 3
    TO_RESET = 4


QP_TRANSITIONS: dict[tuple[IntEnum, IntEnum], IntEnum] = {
    (QpState.RESET, QpEvent.TO_INIT): QpState.INIT,
    (QpState.INIT, QpEvent.TO_INIT): QpState.INIT,
    (QpState.INIT, QpEvent.TO_RTR): QpState.RTR,
    (QpState.RTR, QpEvent.TO_RTS): QpState.RTS,
    (QpState.RTS, QpEvent.TO_RTS): QpState.RTS,
    **{(state, QpEvent.FAIL): QpState.ERROR for state in QpState if state != QpState.RESET},
    **{(state, QpEvent.TO_RESET): QpState.RESET for state in QpState},
}


class EvState(IntEnum):
    """State of an entropy value at the requester (MRC §9.3.1, Figure 5)."""

    GOOD = 0
    SKIP = 1
    ASSUMED_BAD = 2
    DENIED = 3


class EvEvent(IntEnum):
    """Event that changes the state of an entropy value (MRC §9.3.1, §11.2.2)."""

    SACK_SKIP_ONCE = 0  # the forward path was ECN-marked
    SACK_ALWAYS_SKIP = 1  # the responder judges the path persistently bad
    TRIMMED = 2  # a switch trimmed a packet, not on the last hop
    LOST = 3  # neither acknowledged nor trimmed
    ROTATION = 4  # skipped once by the rotation
    PROBES_ANSWERED = 5  # enough consecutive probes were answered without a mark
    PROBE_MARKED = 6  # a probe was answered with a mark
    DENY = 7  # by the controller
    ALLOW = 8  # by the controller
    LEAST_BAD = 9  # too few EVs are left: the one that failed longest ago is used again
    ARRIVED = 10  # so has the packet for whose loss it was left: it, or its report, was late


EV_TRANSITIONS: dict[tuple[IntEnum, IntEnum], IntEnum] = {
    (EvState.GOOD, EvEvent.SACK_SKIP_ONCE): EvState.SKIP,
    (EvState.GOOD, EvEvent.TRIMMED): EvState.SKIP,
    (EvState.GOOD, EvEvent.SACK_ALWAYS_SKIP): EvState.ASSUMED_BAD,
    (EvState.GOOD, EvEvent.LOST): EvState.ASSUMED_BAD,
    (EvState.SKIP, EvEvent.ROTATION): EvState.GOOD,
    (EvState.SKIP, EvEvent.SACK_ALWAYS_SKIP): EvState.ASSUMED_BAD,
    (EvState.SKIP, EvEvent.LOST): EvState.ASSUMED_BAD,
    (EvState.ASSUMED_BAD, EvEvent.PROBES_ANSWERED): EvState.GOOD,
    (EvState.ASSUMED_BAD, EvEvent.PROBE_MARKED): EvState.SKIP,
    (EvState.ASSUMED_BAD, EvEvent.LEAST_BAD): EvState.GOOD,
    (EvState.ASSUMED_BAD, EvEvent.ARRIVED): EvState.GOOD,
    **{(state, EvEvent.DENY): EvState.DENIED for state in EvState},
    **{(state, EvEvent.ALLOW): EvState.GOOD for state in EvState},
}


class NackAction(IntEnum):
    RESEND = 1  # queue the packet for retransmission
    SKIP_PATH = 2  # the path is congested: EvEvent.TRIMMED
    SPEND_RETRY = 4  # the responder lacks resources: counts against the retry budget
    FAIL = 8  # internal error of the responder: the queue pair goes to ERROR


# MRC Table 7-3, columns "requester action" and "path penalised".
NACK_ACTIONS: dict[int, int] = {
    NackReason.TRIMMED: NackAction.RESEND | NackAction.SKIP_PATH,
    NackReason.TRIMMED_LASTHOP: NackAction.RESEND,
    NackReason.NO_BITMAP: NackAction.RESEND | NackAction.SPEND_RETRY,
    NackReason.NO_PKT_BUFFER: NackAction.RESEND | NackAction.SPEND_RETRY,
    NackReason.NO_RESOURCE: NackAction.RESEND | NackAction.SPEND_RETRY,
    NackReason.PSN_OOR_WINDOW: NackAction.RESEND | NackAction.SPEND_RETRY,
    NackReason.UNEXP_EVENT: NackAction.FAIL,
}


def matrix(transitions: dict[tuple[IntEnum, IntEnum], IntEnum], states: type[IntEnum], events: type[IntEnum]) -> Any:
    """Return the next states by state and event, ILLEGAL where there is none."""
    found = np.full((len(states), len(events)), ILLEGAL, dtype=np.int64)
    for (state, happening), following in transitions.items():
        found[state, happening] = following
    return found


QP_NEXT: Any = matrix(QP_TRANSITIONS, QpState, QpEvent)
EV_NEXT: Any = matrix(EV_TRANSITIONS, EvState, EvEvent)
NACK_ACTION: Any = np.array([NACK_ACTIONS.get(code, 0) for code in range(256)], dtype=np.int64)


@kernel
def qp_after(state: int, event: int) -> int:
    """Return the next state of a queue pair, or ILLEGAL."""
    return int(QP_NEXT[state, event])


@kernel
def ev_after(state: int, event: int) -> int:
    """Return the next state of an EV, or ILLEGAL: the event has no effect in that state."""
    return int(EV_NEXT[state, event])


@kernel
def nack_action(reason: int) -> int:
    """Return the NackAction bits for a reason, 0 for an unknown one."""
    return int(NACK_ACTION[reason & 0xFF])
