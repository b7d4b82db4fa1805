"""Send one packet along every path of every pair: what the proof is compared with, slow beyond 1,024 NICs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from openmrc.core.arrays import Ints
from openmrc.fabric.addressing.paths import Choice, Relation, Stop, choices_of, sid_of, stops
from openmrc.fabric.addressing.sid_tables import Tables
from openmrc.fabric.addressing.usid import DEEPEST, PlaneSids, UsidPlan
from openmrc.fabric.addressing.walk import Cabling, Fate, Lookup, mark, walk
from openmrc.fabric.model.shape import PlaneShape

_AT_ONCE = 1 << 18  # packets followed together; bounds memory


@dataclass(frozen=True)
class Count:
    """Counts of ordered pairs of NICs, their paths over all planes, and the deliveries on the named path."""

    pairs: int
    paths: int
    delivered: int  # paths
    pairs_delivered: int  # pairs all of whose paths are


def check_all(plan: UsidPlan, tables: Tables) -> Count:
    """Walk every path."""
    topology = plan.topology
    cabling = Cabling(topology)
    whole = np.ones((topology.nics, topology.nics), dtype=bool)
    paths = delivered = 0
    for sids in plan.planes:
        lookup = Lookup(topology, tables, sids.block)
        for how, source, destination in _pairs(sids.shape):
            for choice in choices_of(sids.shape, how):
                stack, trace = named(sids, source, destination, how, choice)
                walked = walk(topology, tables, lookup, cabling, source, sids.shape.plane, stack)
                good = (walked.fate == Fate.ARRIVED) & (walked.last == destination)
                good &= (walked.trace[:, : trace.shape[1]] == trace).all(axis=1)
                good &= (walked.trace[:, trace.shape[1] :] == -1).all(axis=1)
                paths += len(good)
                delivered += int(good.sum())
                whole[source[~good], destination[~good]] = False
    pairs = topology.nics * (topology.nics - 1)
    return Count(pairs, paths, delivered, int(whole.sum()) - int(np.trace(whole)))


def _pairs(shape: PlaneShape) -> Iterator[tuple[Relation, Ints, Ints]]:
    """Yield all ordered pairs of different NICs, sorted by how far apart they are, some at once."""
    nic = np.arange(shape.nics, dtype=np.int64)
    step = max(1, _AT_ONCE // shape.nics)
    for first in range(0, shape.nics, step):
        source, destination = (part.ravel() for part in np.meshgrid(nic[first : first + step], nic, indexing="ij"))
        here, there = shape.t0_of(source), shape.t0_of(destination)
        far = here // shape.t0_per_site != there // shape.t0_per_site
        pod = shape.pod_of(here) == shape.pod_of(there)
        how = np.where(far, Relation.FAR, np.where(pod, Relation.POD, Relation.SITE))
        how[here == there] = Relation.T0
        how[source == destination] = -1
        for each in Relation:
            which = how == each
            if which.any():
                yield each, source[which], destination[which]


def _packets(
    sids: PlaneSids, source: Ints, destination: Ints, how: Relation, choice: Choice
) -> tuple[Ints, list[Stop[Ints]]]:
    """Return the stack of a packet from each source, a row each, as `walk` takes them, and the stops that it names."""
    shape = sids.shape
    there, port = shape.t0_of(destination), shape.t0_port_of(destination)
    way = stops(shape, shape.t0_of(source), there, port, how, choice)
    stack = np.zeros((len(source), DEEPEST), dtype=np.int64)
    words = [*(sid_of(sids, stop) for stop in way), sids.downlink_sid(there, port), *sids.tail(there, port)]
    for index, word in enumerate(words):
        stack[:, index] = word
    return stack, way


def named(sids: PlaneSids, source: Ints, destination: Ints, how: Relation, choice: Choice) -> tuple[Ints, Ints]:
    """Return the stacks, and the traces that the path names imply: each stop consumes its own uSID."""
    shape = sids.shape
    stack, way = _packets(sids, source, destination, how, choice)
    marks = [np.full_like(source, mark(shape.plane, 0))]
    marks.extend(mark(stop.port, np.full_like(source, at + 1)) for at, stop in enumerate(way))
    marks[-1] = marks[-1] + (1 if sids.nic else 0)
    return stack, np.stack(marks, axis=1)
