"""What of a step's traffic the step waits for: by kind of collective its share of the step, exposed part, slack.

The step is timed on an ideal network: a message takes its bytes at the NIC's rate, messages of a NIC follow each other,
and nothing waits anywhere else. It is timed again without the messages of one kind, with nothing but them, and with
them `LONGER` times longer; the differences are what is asked for.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from openmrc.errors import ConfigError
from openmrc.sim.workloads.plan import NOWHERE, UNLABELLED, Ids, WorkloadGraph
from openmrc.units import PS_PER_S, PS_PER_US

LONGER = 4.0  # added to the length of a kind's messages, to see how much of that is hidden
LATENCY = 2 * PS_PER_US  # ps, of a message through an idle fabric; assumption
MOST_NODES = 2_000_000  # that are timed; a minute
_POINT_TO_POINT, _ALL_TO_ALL, _ALL_REDUCE = "point_to_point", "all_to_all", "all_reduce"


@dataclass(frozen=True)
class Exposure:
    """The traffic of one kind."""

    collective: str  # all_reduce (and its halves, and trees), all_to_all, point_to_point
    share: float  # of the step, if nothing else took time
    exposed: float  # part of it that the step waits for
    slack: float  # how much longer the rest may take before the step waits for it, too, as a share
    bytes: int  # of all NICs


def exposures(plan: WorkloadGraph, nic_bits_per_s: int) -> list[Exposure]:
    """Return what each kind of collective is to a step; a ConfigError if nothing moves between NICs."""
    nodes = plan.nodes()
    kinds, moves = _kinds(plan), nodes.destination != NOWHERE
    if not moves.any():
        raise ConfigError("the trace moves nothing between NICs: such a job loses nothing to a network")
    if plan.count > MOST_NODES:
        raise ConfigError(f"{plan.count:,} messages and computations, at most {MOST_NODES:,}; take fewer layers")
    timed = _Timed(plan, np.where(moves, nodes.size * (8 * PS_PER_S / nic_bits_per_s), 0) + nodes.length)
    whole = timed.length(np.ones(plan.count))
    return [_exposure(timed, whole, kind, moves & (kinds == kind)) for kind in sorted(set(kinds[moves].tolist()))]


def _exposure(timed: _Timed, whole: float, kind: str, mine: NDArray[np.bool_]) -> Exposure:
    alone = timed.length(mine.astype(np.float64))
    without = timed.length((~mine).astype(np.float64))
    longer = timed.length(np.where(mine, 1 + LONGER, 1.0))
    exposed = min(1.0, max(0.0, (whole - without) / alone))
    hidden = 1 - exposed
    late = ((longer - whole) / alone - LONGER * exposed) / hidden if hidden > 0 else LONGER
    slack = min(LONGER, max(0.0, LONGER - late))
    return Exposure(kind, min(1.0, alone / whole), exposed, slack, int(timed.sizes[mine].sum()))


def _kinds(plan: WorkloadGraph) -> NDArray[np.str_]:
    """Return the kind of collective of each node: by its label, or point to point."""
    by_label = [_kind(plan.kinds.get(name, "")) for name in plan.labels]
    names = np.array([*by_label, _POINT_TO_POINT])
    label = plan.nodes().label
    return names[np.where(label == UNLABELLED, len(by_label), label)]


def _kind(collective: str) -> str:
    if collective in ("", _ALL_TO_ALL):
        return collective or _POINT_TO_POINT
    return _ALL_REDUCE


class _Timed:
    """A plan that is timed several times, with other lengths of its nodes."""

    def __init__(self, plan: WorkloadGraph, lengths: NDArray[np.float64]) -> None:
        nodes, (before, after, _) = plan.nodes(), plan.edges()
        order = np.argsort(before, kind="stable")
        first = np.zeros(plan.count + 1, np.int64)
        np.cumsum(np.bincount(before, minlength=plan.count), out=first[1:])
        waits = np.bincount(after, minlength=plan.count)
        self._first, self._after = first.tolist(), after[order].tolist()
        self._waits: Ids = np.where(nodes.need > 0, nodes.need, waits)
        self._source, self._moves = nodes.source.tolist(), (nodes.destination != NOWHERE).tolist()
        self._lengths, self._hosts, self.sizes = lengths, plan.hosts, nodes.size

    def length(self, factor: NDArray[np.float64]) -> float:
        """Return when the last node ends (ps), with the length of each node times its factor; 0: it takes no time."""
        lengths, latency = (self._lengths * factor).tolist(), (LATENCY * (factor > 0)).tolist()
        waits, ready, free = self._waits.tolist(), [0.0] * len(lengths), [0.0] * self._hosts
        heap = [(0.0, node) for node, count in enumerate(waits) if count == 0]
        ended = 0.0
        while heap:
            at, node = heapq.heappop(heap)
            if self._moves[node] and lengths[node] > 0:
                begins = max(at, free[self._source[node]])
                free[self._source[node]] = at = begins + lengths[node]
                at += latency[node]
            elif not self._moves[node]:
                at += lengths[node]
            ended = max(ended, at)
            for following in self._after[self._first[node] : self._first[node + 1]]:
                waits[following] -= 1
                ready[following] = max(ready[following], at)
                if waits[following] == 0:
                    heapq.heappush(heap, (ready[following], following))
        return ended
