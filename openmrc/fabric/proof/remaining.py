"""What remains of a fabric without some of its cables, for every pair of NICs, before they are taken out.

Steps of the proof along a missing cable become bad, and the paths between two T0s are counted as products of steps: one
matrix product a plane instead of one walk a path. A switch is missing when all its cables are.
"""

import dataclasses

import msgspec
import numpy as np

from openmrc.core.arrays import Ints
from openmrc.fabric.addressing.sid_tables import Tables, build_tables
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.fabric.addressing.walk import Cabling
from openmrc.fabric.proof.classes import Bools, Floats, PlaneProof, Steps, prove_plane, ways, whole

_MOVES = ("down0", "up0", "down1", "up1", "down2", "over")  # steps along a cable out of a switch


class Remaining(msgspec.Struct, frozen=True, kw_only=True):
    """What remains, over all ordered pairs of NICs."""

    cables: int  # taken out, at least in one direction
    pairs: int
    pairs_cut: int  # that keep no path
    pairs_reduced: int  # that lose some
    worst_pair: tuple[str, str]  # that keeps the smallest share of its paths
    fewest: int  # paths of this pair
    of: int  # its paths in the whole fabric
    worst_share: float
    planes_left: int  # on which the worst NIC can send and receive

    @property
    def proven(self) -> bool:
        """Whether every pair of NICs keeps a path."""
        return self.pairs_cut == 0


def remaining(plan: UsidPlan, links: Ints, tables: Tables | None = None) -> Remaining:
    """Count what remains without these directed links; `tables` are the planned ones if not given."""
    topology, cabling = plan.topology, Cabling(plan.topology)
    tables = build_tables(plan) if tables is None else tables
    proofs = [prove_plane(plan, tables, cabling, plane) for plane in range(len(plan.planes))]
    gone = np.zeros(topology.links, dtype=bool)
    gone[links] = True
    left = [_without(cabling, proof, gone) for proof in proofs]
    groups = _Groups(proofs, left)
    before = np.zeros((len(groups.size), len(groups.size)), dtype=np.float32)
    after = before.copy()
    for index, proof in enumerate(proofs):
        had = groups.pairs(index, ways(proof.shape, whole(proof.shape, proof.sids)))
        has = groups.pairs(index, ways(proof.shape, left[index]))
        has *= groups.enter[:, index, None] * groups.down0[None, :, index]
        before += had
        after += has
    row, column = _worst(before, after, groups.size)
    fewest, of, worst = int(after[row, column]), int(before[row, column]), groups.example(row, column)
    return Remaining(
        cables=int((gone | gone[topology.link_reverse]).sum()) // 2,
        pairs=topology.nics * (topology.nics - 1),
        pairs_cut=groups.count(after == 0),
        pairs_reduced=groups.count(after < before),
        worst_pair=(topology.name(worst[0]), topology.name(worst[1])),
        fewest=fewest,
        of=of,
        worst_share=round(fewest / of, 4) if of else 0.0,
        planes_left=int((groups.enter & groups.down0).sum(axis=1).min()),
    )


def _without(cabling: Cabling, proof: PlaneProof, gone: Bools) -> Steps:
    """Return a plane's steps, bad where they move along a missing cable."""
    changed = {}
    for name in _MOVES:
        reading, good = proof.readings[name], getattr(proof.steps, name)
        changed[name] = good & ~gone[cabling.link(reading.switch, reading.port)].reshape(good.shape)
    nic = np.arange(proof.shape.nics, dtype=np.int64)
    cut = gone[cabling.link(nic, np.full_like(nic, proof.shape.plane))]
    return dataclasses.replace(proof.steps, enter=proof.steps.enter & ~cut, **changed)


class _Groups:
    """NICs that share their T0 and the state of their cable in every plane."""

    def __init__(self, proofs: list[PlaneProof], left: list[Steps]) -> None:
        nic = np.arange(proofs[0].shape.nics, dtype=np.int64)
        homes = np.stack([proof.shape.t0_of(nic) for proof in proofs], axis=1)
        state = np.stack([steps.enter * 2 + steps.down0 for steps in left], axis=1)
        kinds, self.of, size = np.unique(homes * 4 + state, axis=0, return_inverse=True, return_counts=True)
        self.of = self.of.ravel()
        self.size = size.astype(np.int64)
        self.home, self.enter, self.down0 = kinds // 4, kinds & 2 != 0, kinds & 1 != 0

    def pairs(self, index: int, ways: Floats) -> Floats:
        """Return a plane's paths between NICs of each two groups."""
        home = self.home[:, index]
        return ways[np.ix_(home, home)]

    def count(self, which: Bools) -> int:
        """Count the ordered pairs of different NICs in these pairs of groups."""
        counted = self.size @ which.astype(np.int64) @ self.size - (np.diag(which) * self.size).sum()
        return int(counted)

    def example(self, row: int, column: int) -> tuple[int, int]:
        """Return two different NICs, one of each group."""
        source = int(np.flatnonzero(self.of == row)[0])
        return source, next(int(nic) for nic in np.flatnonzero(self.of == column) if nic != source)


def _worst(before: Floats, after: Floats, size: Ints) -> tuple[int, int]:
    """Return the groups of the pair that keeps the smallest share of its paths; of equals, the fewest paths."""
    share = np.where(before > 0, after / np.maximum(before, 1), 1.0) + after.astype(np.float64) * 1e-9
    alone = np.flatnonzero(size < 2)
    share[alone, alone] = np.inf
    row, column = divmod(int(np.argmin(share)), len(size))
    return row, column
