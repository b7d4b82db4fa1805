"""The states of a fault as a table, and the counts of a window without those that known faults explain.

A part is suspected while one host alone speaks against it, and doubted once packets of others contradict that host. It
is named when a fault explains the losses of several hosts, denied when every host avoids it, and repaired when packets
pass again; then its penalty decays, and it is lifted: used like any other part, as at the beginning.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from openmrc.operations.diagnosis.localise import Counts, Floats, Localiser, Named


class FaultState(IntEnum):
    """What a controller holds of a part."""

    LIFTED = 0  # not faulty, or no longer
    SUSPECTED = 1
    DOUBTED = 2
    NAMED = 3  # not denied: a budget, or a last path
    DENIED = 4  # in a dry run: would be
    REPAIRED = 5  # still denied


class FaultEvent(IntEnum):
    LONE_WORD = 0  # only one host reports losses that the part explains
    CONTRADICTED = 1  # it goes on although packets of others pass
    FORGOTTEN = 2  # it reports no more losses there, or its reports count again
    EXPLAINED = 3  # a fault of the part explains the losses, and denying it was refused
    DENY = 4  # the same, and the part is denied
    PASSES = 5  # packets pass again, or the part is tried
    DECAYED = 6  # the penalty is low enough


_UNNAMED = (FaultState.LIFTED, FaultState.SUSPECTED, FaultState.DOUBTED)
FAULT_TRANSITIONS: dict[tuple[IntEnum, IntEnum], IntEnum] = {
    (FaultState.LIFTED, FaultEvent.LONE_WORD): FaultState.SUSPECTED,
    (FaultState.DOUBTED, FaultEvent.LONE_WORD): FaultState.SUSPECTED,
    **{(state, FaultEvent.CONTRADICTED): FaultState.DOUBTED for state in _UNNAMED},
    (FaultState.SUSPECTED, FaultEvent.FORGOTTEN): FaultState.LIFTED,
    (FaultState.DOUBTED, FaultEvent.FORGOTTEN): FaultState.LIFTED,
    **{(state, FaultEvent.EXPLAINED): FaultState.NAMED for state in _UNNAMED},
    **{(state, FaultEvent.DENY): FaultState.DENIED for state in FaultState},
    (FaultState.NAMED, FaultEvent.PASSES): FaultState.LIFTED,
    (FaultState.DENIED, FaultEvent.PASSES): FaultState.REPAIRED,
    (FaultState.REPAIRED, FaultEvent.DECAYED): FaultState.LIFTED,
}


def fault_after(state: FaultState, event: FaultEvent) -> FaultState:
    """Return the next state; an event without a transition changes nothing."""
    return FaultState(FAULT_TRANSITIONS.get((state, event), state))


@dataclass
class KnownFault:
    """A part that was named, and when."""

    named: Named
    at: float  # on the clock of the windows


def news(
    localiser: Localiser, sent: Floats, lost: Counts, faults: Iterable[KnownFault], begin: float
) -> tuple[Floats, Counts]:
    """Return a window's counts without the rows over parts that were named after its begin.

    What they lost is not spread over the window as one rate would spread it: it began with the fault, and ended with
    the traffic, which leaves the part. The rest would be found at other parts that the same paths cross.
    """
    rows = [localiser.rows_of(fault.named.part) for fault in faults if fault.at > begin]
    if not rows:
        return sent, lost
    kept = np.ones(len(sent), dtype=bool)
    kept[np.concatenate(rows)] = False
    return sent * kept, lost * kept
