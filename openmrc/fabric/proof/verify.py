"""Verify a fabric's tables: count delivered paths, and report switch, reason and affected pairs of each bad entry."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from openmrc.fabric.addressing.paths import Choice, EvNumbers, Path, path
from openmrc.fabric.addressing.sid_tables import Action, Tables, build_tables, entry_text
from openmrc.fabric.addressing.usid import DEEPEST, UsidPlan, prefix_text
from openmrc.fabric.addressing.walk import AMBIGUOUS, MARK, Cabling, Fate, Walked, walk
from openmrc.fabric.model.shape import PlaneShape
from openmrc.fabric.proof.classes import Floats, PlaneProof, Steps, over_pairs, prove_plane, ways, whole, without

MOST_LISTED = 100  # bad steps listed in full; all are counted
MOST_TRIED = 16  # packets sent through a bad step, to see whether it delivers all the same


@dataclass(frozen=True)
class Verdict:
    """Result of a verification."""

    pairs: int  # ordered
    paths: int  # over all pairs and planes
    delivered: int  # paths
    depth: int  # uSIDs of the longest path
    entries: int
    largest_table: int
    broken: list[dict[str, Any]]  # the first MOST_LISTED; `delivers`: packets tried through it arrive as named anyway
    broken_count: int
    unexpected: list[dict[str, Any]]  # entries that no path uses; harmless, but not planned
    unexpected_count: int

    @property
    def proven(self) -> bool:
        return self.broken_count == 0 and self.unexpected_count == 0


def verify(plan: UsidPlan, tables: Tables | None = None) -> Verdict:
    """Verify tables, by default the planned ones."""
    tables = build_tables(plan) if tables is None else tables
    cabling = Cabling(plan.topology)
    found = _Findings(plan, tables, cabling)
    paths = reached = 0
    for plane, sids in enumerate(plan.planes):
        proof, every = prove_plane(plan, tables, cabling, plane), whole(sids.shape, sids)
        had = ways(sids.shape, every)
        has = had if all(good.all() for good in vars(proof.steps).values()) else ways(sids.shape, proof.steps)
        total = over_pairs(sids.shape, every, had)
        paths += total
        reached += over_pairs(sids.shape, proof.steps, has)
        found.read(proof, had, total)
    nics = plan.topology.nics
    return Verdict(
        pairs=nics * (nics - 1), paths=paths, delivered=reached, depth=plan.depth, entries=len(tables),
        largest_table=int(np.bincount(tables.switch).max(initial=0)), broken=found.broken,
        broken_count=found.broken_count, unexpected=found.unexpected(), unexpected_count=int((~found.used).sum()),
    )  # fmt: skip


class _Findings:
    def __init__(self, plan: UsidPlan, tables: Tables, cabling: Cabling) -> None:
        self.plan = plan
        self.tables = tables
        self.cabling = cabling
        self.broken: list[dict[str, Any]] = []
        self.broken_count = 0
        self.used = np.zeros(len(tables), dtype=bool)
        self._had, self._total = np.zeros((0, 0), dtype=np.float32), 0  # of the plane that is read

    def read(self, proof: PlaneProof, had: Floats, total: int) -> None:
        """Take in a plane's bad steps; `had`, `total`: its paths if all were good, between T0s and over all pairs."""
        self._had, self._total = had, total
        for name, reading in proof.readings.items():
            self.used[reading.row[reading.row >= 0]] = True
            bad = np.flatnonzero(~getattr(proof.steps, name).ravel())
            self.used[proof.lookup.twice] = True
            self.broken_count += len(bad)
            for at in bad[: MOST_LISTED - len(self.broken)]:
                self.broken.append(self._step(proof, name, int(at)))
        strays = np.flatnonzero(~proof.steps.enter)
        self.broken_count += len(strays)
        for nic in strays[: MOST_LISTED - len(self.broken)]:
            self.broken.append(self._stray(proof, int(nic)))

    def unexpected(self) -> list[dict[str, Any]]:
        name, switch = self.plan.topology.name, self.tables.switch
        rows = np.flatnonzero(~self.used)[:MOST_LISTED].tolist()
        return [{"switch": name(int(switch[row])), "entry": entry_text(self.tables, row)} for row in rows]

    def _step(self, proof: PlaneProof, name: str, at: int) -> dict[str, Any]:
        reading, sids = proof.readings[name], proof.sids
        switch, usid, row = int(reading.switch[at]), int(reading.usid[at]), int(reading.row[at])
        cell = tuple(int(part) for part in np.unravel_index(at, getattr(proof.steps, name).shape))
        kind = "ua" if name == "down0" and sids.nic else "route"
        said = {
            "switch": self.plan.topology.name(switch),
            "plane": sids.shape.plane,
            "entry": prefix_text(sids.block, usid),
            "expected": "un" if name.startswith("own") else f"{kind} {int(reading.port[at])}",
            "found": self._found(row),
            "step": name,
        }
        said.update(self._cost(proof, without(sids.shape, sids, name, cell)))
        ways = list(itertools.islice(self._ways_through(proof, name, cell), MOST_TRIED))
        walked = [self._walk(way, proof) for way in ways]
        said["delivers"] = bool(ways) and all(map(_is_delivered, ways, walked))
        if ways:
            wrong = next((at for at, way in enumerate(ways) if not _is_delivered(way, walked[at])), 0)
            said.update(self._describe(ways[wrong], walked[wrong]))
        return said

    def _stray(self, proof: PlaneProof, nic: int) -> dict[str, Any]:
        shape, name = proof.shape, self.plan.topology.name
        said = {"switch": name(shape.first_t0 + shape.t0_of(nic)), "plane": shape.plane, "entry": "", "step": "enter"}
        lost = self._cost(proof, without(shape, proof.sids, "enter", (nic,)))
        found = {"expected": f"the cable of {name(nic)}", "found": "another node", "delivers": False}
        return {**said, **found, **lost}

    def _found(self, row: int) -> str:
        if row == AMBIGUOUS:
            return "two entries"
        if row < 0:
            return "nothing"
        if (action := int(self.tables.action[row])) not in set(Action):
            return f"unknown action {action}"
        return entry_text(self.tables, row).split(" ", 1)[1]

    def _cost(self, proof: PlaneProof, steps: Steps) -> dict[str, int]:
        """Count the paths that this one bad step breaks in an otherwise correct plane, and their pairs."""
        shape, nics = proof.shape, self.plan.topology.nics
        has = ways(shape, steps)
        paths, pairs = (over_pairs(shape, steps, each) for each in (has, has == self._had))
        return {"paths": self._total - paths, "pairs": nics * (nics - 1) - pairs}

    def _ways_through(self, proof: PlaneProof, name: str, cell: tuple[int, ...]) -> Iterator[Path]:
        """Yield paths that contain the step, from and to different T0s."""
        reading = proof.readings[name]
        at = int(np.ravel_multi_index(cell, getattr(proof.steps, name).shape))
        switch, usid = int(reading.switch[at]), int(reading.usid[at])
        shape = proof.shape
        near = [nic for t0 in _t0s_near(shape, name, cell) for nic in (shape.nic_at(t0, 0), shape.nic_at(t0, 1))]
        near = [nic for nic in ([cell[0], *near] if name == "down0" else near) if nic >= 0]
        pairs = [(a, b) for a in near for b in (*near, 0, shape.nics - 1) if a != b]
        for source, destination in [*pairs, *((b, a) for a, b in pairs)]:
            for choice in _choices_near(shape, name, cell):
                way = path(self.plan, source, destination, choice)
                tops = (way.sids[index : index + 2] for index, node in enumerate(way.nodes[1:-1]) if node == switch)
                if any(usid in top for top in tops):  # a packet has this uSID on top at this switch
                    yield way

    def _walk(self, way: Path, proof: PlaneProof) -> Walked:
        stack = np.zeros((1, DEEPEST), dtype=np.int64)
        stack[0, : len(way.sids)] = way.sids
        start = np.array([way.nodes[0]], dtype=np.int64)
        return walk(self.plan.topology, self.tables, proof.lookup, self.cabling, start, way.choice.plane, stack)

    def _describe(self, way: Path, walked: Walked) -> dict[str, Any]:
        name = self.plan.topology.name
        fate, last = Fate(int(walked.fate[0])), int(walked.last[0])
        if fate != Fate.ARRIVED:
            became = f"{fate.text}, at {name(last)}"
        elif last != way.nodes[-1]:
            became = f"arrives at {name(last)} instead"
        elif _is_delivered(way, walked):
            became = "arrives on the named path all the same"
        else:
            became = "arrives, but not on the named path"
        example = {"source": name(way.nodes[0]), "destination": name(way.nodes[-1])}
        ev = EvNumbers(self.plan).number(way.choice)
        return {"example": {**example, "ev": ev, "address": way.address, "becomes": became}}


def _is_delivered(way: Path, walked: Walked) -> bool:
    """Whether a packet left each node by the port that its path names, whatever it consumed there."""
    ports = [int(mark) // MARK for mark in walked.trace[0] if mark >= 0]
    return int(walked.fate[0]) == Fate.ARRIVED and tuple(ports) == way.ports and int(walked.last[0]) == way.nodes[-1]


def _t0s_near(shape: PlaneShape, name: str, cell: tuple[int, ...]) -> list[int]:
    """Return some T0s whose NICs have paths through a step, and some to pair them with."""
    index = cell[0]
    if name == "down0":
        index = shape.t0_of(cell[0])
    if name in ("own0", "up0", "down1", "down0") or shape.tiers == 1:
        return [index, *((index + away) % shape.t0_count for away in (1, shape.t0_per_pod, shape.t0_per_site))]
    pod = index // shape.t2_per_site * shape.pods_per_site if name == "own2" else index // shape.t1_per_pod
    site, local = divmod(pod, shape.pods_per_site)
    first = site * shape.t0_per_site + local * shape.t0_per_pod
    other = site * shape.t0_per_site + (local + 1) % shape.pods_per_site * shape.t0_per_pod
    return [first, *(t0 % shape.t0_count for t0 in (first + 1, other, first + shape.t0_per_site))]


def _choices_near(shape: PlaneShape, name: str, cell: tuple[int, ...]) -> list[Choice]:
    """Return choices among which one takes the step: its cell says which uplink, or which T1 or T2, or which alias."""
    index, part = cell[0], cell[-1]
    position = index % max(1, shape.t1_per_pod)
    uplinks, cores, longs = {0}, {0}, {0}
    if name in ("up0", "down1", "own0"):
        uplinks = {part, 0}
    if name in ("own1", "up1", "down2", "own2", "over"):
        uplinks = {position * shape.t0_bundle, position * shape.t0_bundle + (part if part < shape.t0_bundle else 0)}
    if name in ("own1", "up1", "down2"):
        cores = {0, part}
    if name == "own2":
        cores = {index % shape.t2_per_site // shape.t1_per_pod * shape.t1_bundle + part}
    if name in ("over", "own1", "own0"):
        longs = {0, part}
    limits = (max(1, shape.t0_up), max(1, shape.t1_up), max(1, shape.long))
    known = itertools.product(uplinks, cores, longs)
    ways = [way for way in known if all(value < limit for value, limit in zip(way, limits, strict=True))]
    return [Choice(shape.plane, *way) for way in ways] or [Choice(shape.plane)]
