"""What windows of time still say about other parts, once some parts are known to be faulty."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from openmrc.operations.diagnosis.localise import Counts, Floats, Localiser, Named


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
