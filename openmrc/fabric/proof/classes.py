"""Prove that every EV of every pair of NICs is delivered on the path that it names, without testing each.

Forwarding depends only on a packet's position and its remaining stack, so packets are followed by classes: a step is
one lookup of one uSID in the given tables, and one move along a cable of the topology. It is good if the packet left by
the port that the path names and arrived at the named switch. A path is delivered if and only if all its steps are good;
good steps follow a finite path and match only the plane's block, so they neither loop nor change planes. Delivered
paths are sums of products of steps; a bad step costs what it takes from that sum in an otherwise correct fabric.

Steps of a plane (`Steps`), each an array of truth values:
  enter[nic]         the NIC's cable leads to its T0            down0[nic]     its T0 sends its downlink uSID to it
  own0[t0, alias]    a T0 recognises its own uSID               own1, own2     as own0
  up0[t0, uplink]    T0 -> T1                                   down1[t0, uplink]   T1 of that position -> T0
  up1[t1, uplink]    T1 -> T2                                   down2[t1, uplink]   T2 -> T1
  over[top, long]    top switch -> its counterpart at the other site
"""

import dataclasses
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from openmrc.core.arrays import Ints
from openmrc.fabric.addressing.sid_tables import Action, Tables
from openmrc.fabric.addressing.usid import PlaneSids, UsidPlan
from openmrc.fabric.addressing.walk import Cabling, Lookup
from openmrc.fabric.model.shape import PlaneShape

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]  # counts of paths, exact below 2^24


@dataclass(frozen=True)
class Steps:
    """Truth values of the steps of a plane."""

    enter: Bools
    down0: Bools
    own0: Bools
    own1: Bools
    own2: Bools
    up0: Bools
    down1: Bools
    up1: Bools
    down2: Bools
    over: Bools


@dataclass(frozen=True)
class Lookups:
    """The lookups of a kind of step: one (switch, uSID) per element of the step's array."""

    switch: Ints
    usid: Ints
    row: Ints  # of the tables; negative where there is not exactly one entry
    port: Ints  # the port that the path names; -1 for a switch's own uSID


@dataclass(frozen=True)
class PlaneProof:
    """One plane's steps and their lookups."""

    sids: PlaneSids
    steps: Steps
    readings: dict[str, Lookups]
    lookup: Lookup

    @property
    def shape(self) -> PlaneShape:
        return self.sids.shape


def whole(shape: PlaneShape, sids: PlaneSids) -> Steps:
    """Return the steps of a plane in which all are good."""
    return Steps(**{name: np.ones(size, dtype=bool) for name, size in _sizes(shape, sids).items()})


def _sizes(shape: PlaneShape, sids: PlaneSids) -> dict[str, tuple[int, ...]]:
    """Return the form of the array of each kind of step."""
    return {
        "enter": (shape.nics,),
        "down0": (shape.nics,),
        **{f"own{tier}": size for tier, size in enumerate(zip(shape.counts, sids.aliases, strict=True))},
        "up0": (shape.t0_count, shape.t0_up),
        "down1": (shape.t0_count, shape.t0_up),
        "up1": (shape.t1_count, shape.t1_up),
        "down2": (shape.t1_count, shape.t1_up),
        "over": (shape.sites * shape.top_per_site if shape.long else 0, max(shape.long, 1)),
    }


def prove_plane(plan: UsidPlan, tables: Tables, cabling: Cabling, plane: int) -> PlaneProof:
    """Check every step of a plane once."""
    sids = plan.planes[plane]
    walker = _Walker(plan, tables, cabling, sids)
    steps = {name: walker.take(name, *where) for name, where in walker.itinerary().items()}
    nic = np.arange(sids.shape.nics, dtype=np.int64)
    home = sids.shape.first_t0 + sids.shape.t0_of(nic)
    steps["enter"] = cabling.beyond(nic, np.full_like(nic, plane)) == home
    return PlaneProof(sids, Steps(**steps), walker.readings, walker.lookup)


class _Walker:
    """Looks up and moves, for one plane; records the lookups."""

    def __init__(self, plan: UsidPlan, tables: Tables, cabling: Cabling, sids: PlaneSids) -> None:
        self.tables = tables
        self.cabling = cabling
        self.sids = sids
        self.lookup = Lookup(plan.topology, tables, sids.block)
        self.readings: dict[str, Lookups] = {}

    def itinerary(self) -> dict[str, tuple[Ints, Ints, Ints, Ints]]:
        """Return for each kind of step: switch, uSID on top, next node and port that the path names."""
        shape, sids = self.sids.shape, self.sids
        nic = np.arange(shape.nics, dtype=np.int64)
        home, port = shape.t0_of(nic), shape.t0_port_of(nic)
        found = {"down0": (shape.first_t0 + home, sids.downlink_sid(home, port), nic, port)}
        found |= {f"own{tier}": self._own(tier) for tier in range(3)}
        t0, uplink = _grid(shape.t0_count, shape.t0_up)
        t1, link = shape.t1_above(t0, uplink), uplink % shape.t0_bundle
        lower, upper = shape.first_t0 + t0, shape.first_t1 + t1
        found["up0"] = (lower, sids.t1_sid(t1, link), upper, shape.t0_down + uplink)
        found["down1"] = (upper, sids.t0_sid(t0, link), lower, shape.place_in_pod(t0) * shape.t0_bundle + link)
        t1, uplink = _grid(shape.t1_count, shape.t1_up)
        t2, link = shape.t2_above(t1, uplink), uplink % shape.t1_bundle
        lower, upper = shape.first_t1 + t1, shape.first_t2 + t2
        pod = t1 // max(1, shape.t1_per_pod) % shape.pods_per_site
        found["up1"] = (lower, sids.t2_sid(t2, link), upper, shape.t1_down + uplink)
        found["down2"] = (upper, sids.t1_sid(t1, link), lower, pod * shape.t1_bundle + link)
        found["over"] = self._over()
        return found

    def _own(self, tier: int) -> tuple[Ints, Ints, Ints, Ints]:
        index, alias = _grid(self.sids.shape.counts[tier], self.sids.aliases[tier])
        sid = self.sids.sid(tier, index, alias) if len(index) else index
        nowhere = np.full_like(index, -1)
        return self.sids.shape.firsts[tier] + index, sid, nowhere, nowhere

    def _over(self) -> tuple[Ints, Ints, Ints, Ints]:
        shape, tier = self.sids.shape, min(self.sids.shape.tiers - 1, 1)
        top, link = _grid(shape.sites * shape.top_per_site if shape.long else 0, max(shape.long, 1))
        twin = (top + shape.top_per_site) % max(1, shape.sites * shape.top_per_site)
        first, below = shape.firsts[tier], (shape.t0_down, shape.t1_down)[tier]
        return first + top, self.sids.sid(tier, twin, link), first + twin, below + link

    def take(self, name: str, switch: Ints, usid: Ints, following: Ints, port: Ints) -> Bools:
        """Look up, move, and return which packets arrived where they should."""
        row = self.lookup.entry(switch, usid)
        safe = np.maximum(row, 0)
        known = row >= 0
        if len(self.tables) == 0:
            good = np.zeros(len(switch), dtype=bool)
        elif name.startswith("own"):
            good = known & (self.tables.action[safe] == Action.UN)
        else:
            wanted = Action.UA if name == "down0" and self.sids.nic else Action.ROUTE
            out = self.tables.port[safe].astype(np.int64)
            good = known & (self.tables.action[safe] == wanted) & (out == port)
            good &= self.cabling.beyond(switch, out) == following
        self.readings[name] = Lookups(switch, usid, row, port)
        return good.reshape(_sizes(self.sids.shape, self.sids)[name])


def _grid(rows: int, width: int) -> tuple[Ints, Ints]:
    """Return the row and column of each cell of a matrix, flattened."""
    row, column = np.divmod(np.arange(rows * width, dtype=np.int64), max(1, width))
    return row, column


def ways(shape: PlaneShape, steps: Steps) -> Floats:
    """Return the number of good paths from each T0 to each, without the NICs' own cables."""
    own = steps.own0[:, 0].astype(np.float32)
    found: Floats = np.zeros((shape.t0_count, shape.t0_count), dtype=np.float32)
    if shape.tiers > 1:
        uplink, t0 = np.arange(shape.t0_up, dtype=np.int64), np.arange(shape.t0_count, dtype=np.int64)
        link, pods = uplink % shape.t0_bundle, shape.pod_of(t0)
        above = shape.t1_above(t0[:, None], uplink[None, :])
        leaving = own[:, None] * (steps.up0 & steps.own1[above, link[None, :]])
        landing = (steps.down1 & steps.own0[:, link]).astype(np.float32)
        between = _between_pods(shape, steps)
        for pod in range(shape.pods):
            found[pods == pod] = leaving[pods == pod] @ (between[pod, pods] * landing).T
    elif shape.long:
        t0 = np.arange(shape.t0_count)
        found[t0, (t0 + shape.top_per_site) % shape.t0_count] = own * _crossing(shape, steps)
    np.fill_diagonal(found, own)
    return found


def _between_pods(shape: PlaneShape, steps: Steps) -> Floats:
    """Return by pod, pod and uplink of a T0 in how many ways a packet goes on from the T1 above to one of that pod."""
    same: Floats = np.eye(shape.pods, dtype=np.float32)[:, :, None]
    if shape.tiers > 2:
        uplink, t1 = np.arange(shape.t1_up, dtype=np.int64), np.arange(shape.t1_count, dtype=np.int64)
        link, form = uplink % shape.t1_bundle, (shape.pods, shape.t1_per_pod, shape.t1_up)
        climb = steps.up1 & steps.own2[shape.t2_above(t1[:, None], uplink[None, :]), link[None, :]]
        descend = steps.down2 & steps.own1[:, link]
        met = np.einsum("apc,bpc->abp", *(part.reshape(form).astype(np.float32) for part in (climb, descend)))
        site = np.arange(shape.pods) // shape.pods_per_site
        met *= (site[:, None] == site[None, :])[:, :, None] & (same == 0)
    elif shape.long:
        over = _crossing(shape, steps).reshape(2, 1, shape.top_per_site)
        met = over * (same == 0)
    else:
        met = np.zeros((shape.pods, shape.pods, shape.t1_per_pod), dtype=np.float32)
    both: Floats = np.repeat(met + same, shape.t0_bundle, axis=2)
    return both


def _crossing(shape: PlaneShape, steps: Steps) -> Floats:
    """Return by top switch how many of its long links lead to the other site."""
    tops, own = shape.sites * shape.top_per_site, steps.own0 if shape.tiers == 1 else steps.own1
    twin = (np.arange(tops) + shape.top_per_site) % tops
    count: Floats = (steps.over & own[twin][:, : shape.long]).sum(axis=1, dtype=np.float32)
    return count


def over_pairs(shape: PlaneShape, steps: Steps, between: Floats | Bools) -> int:
    """Sum what is between T0s, such as `ways`, over all ordered pairs of NICs whose cables are good."""
    home = shape.t0_of(np.arange(shape.nics, dtype=np.int64))
    senders, receivers, both = (
        np.bincount(home[which], minlength=shape.t0_count).astype(np.int64)
        for which in (steps.enter, steps.down0, steps.enter & steps.down0)
    )
    counts = between.astype(np.int64)
    return int(senders @ counts @ receivers - (both * counts.diagonal()).sum())


def without(shape: PlaneShape, sids: PlaneSids, name: str, cell: tuple[int, ...]) -> Steps:
    steps = whole(shape, sids)
    broken = getattr(steps, name)
    broken[cell] = False
    return dataclasses.replace(steps, **{name: broken})
