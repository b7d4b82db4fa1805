"""The verdict on a fabric's tables: what is delivered, and for each bad entry the switch, the reason and the pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from openmrc.fabric.paths import EvNumbers, Path, choices, path
from openmrc.fabric.proof import (
    Ends,
    PlaneProof,
    Steps,
    delivered,
    ends,
    prove_plane,
    whole,
    whole_pairs,
    without,
)
from openmrc.fabric.shape import Ints, PlaneShape
from openmrc.fabric.table_files import entry_text
from openmrc.fabric.tables import Action, Tables, build_tables
from openmrc.fabric.usid import DEEPEST, UsidPlan, prefix_text
from openmrc.fabric.walk import AMBIGUOUS, Cabling, Fate, Lookup, walk

MOST_LISTED = 100  # broken steps told in full; all are counted


@dataclass(frozen=True)
class Verdict:
    """Hold what was proven."""

    pairs: int  # ordered
    paths: int  # over all pairs and planes
    delivered: int  # paths
    pairs_delivered: int  # pairs all of whose paths are
    depth: int  # uSIDs of the longest path
    entries: int
    largest_table: int
    broken: list[dict[str, Any]]  # the first MOST_LISTED
    broken_count: int
    unexpected: list[dict[str, Any]]  # entries that no path uses; harmless, but not ours
    unexpected_count: int

    @property
    def proven(self) -> bool:
        return self.broken_count == 0 and self.unexpected_count == 0


def verify(plan: UsidPlan, tables: Tables | None = None, max_entries: int | None = None) -> Verdict:
    """Prove tables, by default those the plan makes."""
    tables = build_tables(plan) if tables is None else tables
    cabling = Cabling(plan.topology)
    found = _Findings(plan, tables, cabling, max_entries)
    paths = reached = 0
    states: list[tuple[PlaneShape, Ends]] = []
    for sids in plan.planes:
        proof = prove_plane(plan, tables, cabling, sids.shape.plane)
        paths += delivered(sids.shape, whole(sids.shape, sids))
        reached += delivered(sids.shape, proof.steps)
        states.append((sids.shape, ends(sids.shape, proof.steps)))
        found.read(proof)
    found.sizes()
    nics = plan.topology.nics
    return Verdict(
        pairs=nics * (nics - 1), paths=paths, delivered=reached, pairs_delivered=whole_pairs(plan, states),
        depth=plan.depth, entries=len(tables), largest_table=found.largest, broken=found.broken,
        broken_count=found.broken_count, unexpected=found.unexpected(), unexpected_count=found.unexpected_count(),
    )  # fmt: skip


class _Findings:
    """Collect what is wrong, in words."""

    def __init__(self, plan: UsidPlan, tables: Tables, cabling: Cabling, max_entries: int | None) -> None:
        self.plan = plan
        self.tables = tables
        self.cabling = cabling
        self.max_entries = max_entries
        self.broken: list[dict[str, Any]] = []
        self.broken_count = 0
        self.used = np.zeros(len(tables), dtype=bool)
        counts = np.bincount(tables.switch, minlength=plan.topology.nodes)
        self.counts: Ints = counts
        self.largest = int(counts.max(initial=0))

    def read(self, proof: PlaneProof) -> None:
        """Take in one plane."""
        for name, reading in proof.readings.items():
            self.used[reading.row[reading.row >= 0]] = True
            bad = np.flatnonzero(~getattr(proof.steps, name).ravel())
            self.used[proof.twice] = True
            self.broken_count += len(bad)
            for at in bad[: MOST_LISTED - len(self.broken)]:
                self.broken.append(self._step(proof, name, int(at)))
        strays = np.flatnonzero(~proof.steps.enter)
        self.broken_count += len(strays)
        for nic in strays[: MOST_LISTED - len(self.broken)]:
            self.broken.append(self._stray(proof, int(nic)))

    def sizes(self) -> None:
        """Find tables over the limit."""
        if self.max_entries is None:
            return
        over = np.flatnonzero(self.counts > self.max_entries)
        self.broken_count += len(over)
        for switch in over[: MOST_LISTED - len(self.broken)]:
            why = f"{int(self.counts[switch])} entries, more than {self.max_entries}"
            self.broken.append({"switch": self.plan.topology.name(int(switch)), "why": why, "pairs": 0, "paths": 0})

    def unexpected_count(self) -> int:
        return int((~self.used).sum())

    def unexpected(self) -> list[dict[str, Any]]:
        def told(row: int) -> dict[str, Any]:
            switch = self.plan.topology.name(int(self.tables.switch[row]))
            return {"switch": switch, "entry": entry_text(self.tables, row)}

        return [told(int(row)) for row in np.flatnonzero(~self.used)[:MOST_LISTED]]

    def _step(self, proof: PlaneProof, name: str, at: int) -> dict[str, Any]:
        reading, sids = proof.readings[name], proof.sids
        switch, usid, row = int(reading.switch[at]), int(reading.usid[at]), int(reading.row[at])
        cell = tuple(int(part) for part in np.unravel_index(at, getattr(proof.steps, name).shape))
        said = {
            "switch": self.plan.topology.name(switch),
            "plane": sids.shape.plane,
            "entry": prefix_text(sids.block, usid),
            "expected": self._expected(name, int(reading.port[at]), bool(sids.nic)),
            "found": self._found(row),
            "step": name,
        }
        said.update(self._cost(proof, without(sids.shape, sids, name, cell)))
        example = self._example(proof, name, cell)
        if example is not None:
            said.update(self._tell(example, proof))
        return said

    def _stray(self, proof: PlaneProof, nic: int) -> dict[str, Any]:
        shape, name = proof.shape, self.plan.topology.name
        said = {"switch": name(shape.first_t0 + shape.t0_of(nic)), "plane": shape.plane, "entry": "", "step": "enter"}
        lost = self._cost(proof, without(shape, proof.sids, "enter", (nic,)))
        return {**said, "expected": f"the cable of {name(nic)}", "found": "another node", **lost}

    @staticmethod
    def _expected(name: str, port: int, shifting: bool) -> str:
        if name.startswith("own"):
            return "un"
        return f"{'ua' if name == 'down0' and shifting else 'route'} {port}"

    def _found(self, row: int) -> str:
        if row == AMBIGUOUS:
            return "two entries"
        if row < 0:
            return "nothing"
        action = Action(int(self.tables.action[row])) if int(self.tables.action[row]) in set(Action) else None
        if action is None:
            return f"unknown action {int(self.tables.action[row])}"
        return entry_text(self.tables, row).split(" ", 1)[1]

    def _cost(self, proof: PlaneProof, steps: Steps) -> dict[str, int]:
        """Count what this one bad step takes from a whole plane."""
        shape, sids = proof.shape, proof.sids
        everything = whole(shape, sids)
        nics = self.plan.topology.nics
        lost = delivered(shape, everything) - delivered(shape, steps)
        return {"paths": lost, "pairs": nics * (nics - 1) - whole_pairs(self.plan, [(shape, ends(shape, steps))])}

    def _example(self, proof: PlaneProof, name: str, cell: tuple[int, ...]) -> Path | None:
        """Find a path that takes the step."""
        reading = proof.readings[name]
        at = int(np.ravel_multi_index(cell, getattr(proof.steps, name).shape))
        switch, usid = int(reading.switch[at]), int(reading.usid[at])
        shape, nics = proof.shape, self.plan.topology.nics
        near = [n for n in (shape.nic_at(t0, port) for t0 in _near(shape, switch) for port in (0, 1)) if n >= 0]
        if name == "down0":
            near = [cell[0], *near]
        others = [0, nics - 1, *near]
        for source, destination in [(a, b) for a in near for b in others] + [(a, b) for b in near for a in others]:
            if source == destination:
                continue
            for choice in choices(shape, source, destination):
                way = path(self.plan, source, destination, choice)
                if _reads(way, switch, usid):
                    return way
        return None

    def _tell(self, way: Path, proof: PlaneProof) -> dict[str, Any]:
        """Send one packet and say what becomes of it."""
        topology = self.plan.topology
        name = topology.name
        lookup = Lookup(topology, self.tables, proof.sids.block)
        stack = np.zeros((1, DEEPEST), dtype=np.int64)
        stack[0, : len(way.sids)] = way.sids
        start = np.array([way.nodes[0]], dtype=np.int64)
        walked = walk(topology, self.tables, lookup, self.cabling, start, way.choice.plane, stack)
        fate, last = Fate(int(walked.fate[0])), int(walked.last[0])
        if fate != Fate.ARRIVED:
            became = f"{fate.text}, at {name(last)}"
        elif last != way.nodes[-1]:
            became = f"arrives at {name(last)} instead"
        else:
            became = "arrives, but not on the path its name says"
        example = {"source": name(way.nodes[0]), "destination": name(way.nodes[-1])}
        ev = EvNumbers(self.plan).number(way.choice)
        return {"example": {**example, "ev": ev, "address": way.address, "becomes": became}}


def _near(shape: PlaneShape, switch: int) -> list[int]:
    """Return some T0s whose NICs have paths through a switch."""
    if switch < shape.first_t1:
        t0 = switch - shape.first_t0
        return [t0, (t0 + 1) % shape.t0_count, (t0 + shape.t0_per_pod) % shape.t0_count]
    if switch < shape.first_t2:
        pod = (switch - shape.first_t1) // shape.t1_per_pod
        site, local = divmod(pod, shape.pods_per_site)
        first = site * shape.t0_per_site + local * shape.t0_per_pod
        return [t0 for t0 in range(first, first + shape.t0_per_pod) if t0 < (site + 1) * shape.t0_per_site]
    return list(range(0, shape.t0_count, shape.t0_per_pod))


def _reads(way: Path, switch: int, usid: int) -> bool:
    """Tell whether a packet of a path has this uSID on top at this switch."""
    return any(node == switch and usid in way.sids[index : index + 2] for index, node in enumerate(way.nodes[1:-1]))
