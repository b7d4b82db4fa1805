"""When are two steps the same? The equivalence by which a step is not simulated again.

A step begins in a *condition*: which links are down, slow or lossy, and what its transport has learned. Two conditions
are equivalent if

- the same faults are present: for transports that spray packets over all paths, as many of each kind on links between
  the same tiers at the same value; for flows that stay on one path, on the same links;
- the transport's mean window differs by less than `WINDOW`, the share of EVs out of use by less than `PATHS`, and
  equally many ports are not in use;
- the step before repaired nothing. Losses show paths that are dead and not yet known to be: such a step is like no
  other, for it is on the way to a condition without losses. Where links lose packets at random, losses go on as long as
  the fault does, and any number is like any other.

A step may be left out if no fault changes in it, and if its length is known: `SETTLED` steps at least that began in its
condition also ended in it, and the standard error of their mean is at most `PRECISE`. Steps that vary too much for that
are all simulated.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from openmrc.fabric.model.topology import Topology
from openmrc.sim.loop.fault_events import FaultKind, Faults
from openmrc.sim.transports.next_step import TransportState

WINDOW, PATHS = 0.1, 0.005
ANY = -1
SETTLED = 4
PRECISE = 0.002  # of the mean length

_AT_RANDOM = (FaultKind.LINK_LOSS, FaultKind.LINK_BIT_ERRORS, FaultKind.LINK_TRIM, FaultKind.LINK_REORDER)
_OF_NICS = (FaultKind.PORT_DOWN, FaultKind.PORT_WITHDRAWN, FaultKind.BOND_LEFT)


@dataclass(frozen=True)
class Condition:
    """What a step begins with."""

    faults: Hashable
    transport: TransportState
    repaired: int  # packets that the step before sent again; ANY: as many as chance has it

    def is_like(self, other: Condition) -> bool:
        """Return whether a step in the other condition is the same, as defined above."""
        mine, its = self.transport, other.transport
        return (
            self.faults == other.faults
            and mine.ports_down == its.ports_down
            and abs(mine.window - its.window) <= WINDOW * max(mine.window, its.window)
            and abs(mine.paths_out - its.paths_out) <= PATHS
            and self.repaired == other.repaired <= 0
        )


class PresentFaults:
    """The faults that are present, as those of the schedule come and go."""

    def __init__(self, topology: Topology, by_link: bool) -> None:
        """Tell links apart, or only the tiers that they join."""
        self._topology, self._by_link = topology, by_link
        self._values: dict[tuple[int, int], int] = {}

    def apply(self, faults: Faults, first: int, end: int) -> None:
        """Note the faults `first` to `end` of a schedule."""
        for row in range(first, end):
            kind, subject, value = (int(part[row]) for part in (faults.kind, faults.subject, faults.value))
            if value == (self._topology.link_rate[subject] if kind == FaultKind.LINK_RATE else 0):
                self._values.pop((kind, subject), None)
            else:
                self._values[kind, subject] = value

    @property
    def count(self) -> int:
        return len(self._values)

    @property
    def are_random(self) -> bool:
        """Return whether links lose, trim or reorder packets at random."""
        return any(kind in _AT_RANDOM for kind, _ in self._values)

    def digest(self) -> Hashable:
        """Return equal values for equivalent faults."""
        return tuple(sorted(self._about(kind, subject, value) for (kind, subject), value in self._values.items()))

    def _about(self, kind: int, subject: int, value: int) -> tuple[int, ...]:
        if self._by_link:
            return kind, subject, value
        if kind in _OF_NICS:
            return kind, -1, value
        topology = self._topology
        ends = (topology.link_source[subject], topology.link_destination[subject])
        return kind, *(int(topology.node_tier[end]) for end in ends), int(topology.link_rate[subject]), value


@dataclass
class KnownStep:
    """Steps that began and ended in equivalent conditions."""

    condition: Condition
    lengths: list[int] = field(default_factory=list)  # ps

    @property
    def mean(self) -> float:
        """Return the mean length (ps)."""
        return float(np.mean(self.lengths))

    @property
    def spread(self) -> float:
        """Return the standard deviation of a single step (ps)."""
        return float(np.std(self.lengths, ddof=1)) if len(self.lengths) > 1 else 0.0

    @property
    def error(self) -> float:
        """Return the standard error of the mean (ps)."""
        return self.spread / math.sqrt(len(self.lengths))

    def is_settled(self) -> bool:
        """Return whether such a step may be left out."""
        return len(self.lengths) >= SETTLED and self.error <= PRECISE * self.mean


class KnownSteps:
    """All steps simulated so far that may stand for others."""

    def __init__(self) -> None:
        self._known: dict[Hashable, list[KnownStep]] = {}

    def find(self, condition: Condition) -> KnownStep | None:
        """Return the steps equivalent to one that begins in this condition, if there are any."""
        return next((step for step in self._known.get(condition.faults, []) if step.condition.is_like(condition)), None)

    def add(self, before: Condition, after: Condition, length: int) -> None:
        """Note the length (ps) of a step without a change of faults, if it ended as it began."""
        if not before.is_like(after):
            return
        known = self.find(before)
        if known is None:
            known = KnownStep(before)
            self._known.setdefault(before.faults, []).append(known)
        known.lengths.append(length)

    def calm(self) -> KnownStep | None:
        """Return the steps without faults, those simulated most often."""
        return max(self._known.get((), []), key=lambda step: len(step.lengths), default=None)
