"""Maintenance, proven before anything is touched: what every pair keeps without some links, and rolling plans.

A drained link is one that no EV uses: hosts deny the EVs over it, so packets in flight arrive and nothing is lost. The
proof is that of the tables (`fabric.proof.remaining`): it counts the paths of every ordered pair of NICs. As packets
are spread evenly over paths, the share of paths that a pair keeps is its share of capacity between the T0s.
"""

import functools
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from openmrc.core.arrays import Ints
from openmrc.errors import ConfigError
from openmrc.fabric.addressing.sid_tables import Tables, build_tables
from openmrc.fabric.addressing.usid import UsidPlan
from openmrc.fabric.proof.remaining import Remaining, remaining


class DrainProof(Remaining, frozen=True, kw_only=True):
    """What remains without the drained links."""

    what: tuple[str, ...]
    allowed: bool
    why: str  # empty if allowed


class Wave(msgspec.Struct, frozen=True, kw_only=True):
    """Switches of a rolling plan that are out at the same time."""

    switches: tuple[str, ...]
    proof: DrainProof


class RollingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Waves one after the other, and how long they take."""

    waves: list[Wave]
    minutes: float
    allowed: bool


def prove_drain(
    plan: UsidPlan, what: Sequence[str], links: Ints, keep: float = 0.0, tables: Tables | None = None
) -> DrainProof:
    """Prove what remains; refused if a pair loses its last path, or keeps less than a share of its paths.

    `tables` are the planned ones if not given.
    """
    left = remaining(plan, np.unique(links), tables)
    why = _refusal(left, keep)
    return DrainProof(what=tuple(what), allowed=not why, why=why, **msgspec.structs.asdict(left))


def keeps_every_pair(plan: UsidPlan) -> Callable[[frozenset[int]], bool]:
    """Return the proof that a controller of denials asks for."""
    tables = functools.cache(lambda: build_tables(plan))  # until somebody asks
    return lambda links: remaining(plan, np.array(sorted(links), dtype=np.int64), tables()).proven


def _refusal(left: Remaining, keep: float) -> str:
    worst = " to ".join(left.worst_pair)
    if left.pairs_cut:
        return f"{left.pairs_cut:,} pairs would lose their last path, such as {worst}"
    if left.fewest < keep * left.of:
        return f"{worst} would keep {left.worst_share:.1%} of its paths; {keep:.1%} are asked for"
    return ""


def rolling_t1(plan: UsidPlan, minutes: float, keep: float) -> RollingPlan:
    """Plan to take every T1 out once, as many at a time as leave each pair that share; each wave is proven.

    A wave takes T1s of equal position in all planes and pods. `minutes` is what one wave takes, until it is undrained.
    """
    topology = plan.topology
    if any(shape.tiers < 2 for shape in topology.planes):
        raise ConfigError(f"{topology.fabric.name}: a plane has no T1")
    fewest = min(shape.t1_per_pod for shape in topology.planes)
    at_once = int(fewest * (1 - keep) + 1e-9)
    if at_once < 1:
        raise ConfigError(f"one T1 of {fewest} leaves {1 - 1 / fewest:.1%}; keep {keep:.1%} leaves room for none")
    most = max(shape.t1_per_pod for shape in topology.planes)
    waves = [_wave(plan, range(first, min(first + at_once, most)), keep) for first in range(0, most, at_once)]
    return RollingPlan(waves=waves, minutes=minutes * len(waves), allowed=all(wave.proof.allowed for wave in waves))


def _wave(plan: UsidPlan, positions: range, keep: float) -> Wave:
    topology = plan.topology
    nodes = [
        shape.first_t1 + pod * shape.t1_per_pod + position
        for shape in topology.planes
        for pod in range(shape.pods)
        for position in positions
        if position < shape.t1_per_pod
    ]
    names = tuple(topology.name(node) for node in nodes)
    links = np.flatnonzero(np.isin(topology.link_source, nodes) | np.isin(topology.link_destination, nodes))
    return Wave(switches=names, proof=prove_drain(plan, names, links, keep))
