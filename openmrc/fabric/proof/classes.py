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


def delivered(shape: PlaneShape, steps: Steps) -> int:
    """Count the delivered paths of a plane over all ordered pairs of NICs."""
    counter = PathCounter(shape, steps)
    total = counter.under_one_t0()
    if shape.tiers > 1:
        total += counter.within_pods()
    if shape.tiers > 2:
        total += counter.between_pods()
    if shape.sites > 1 and shape.tiers < 3:
        total += counter.between_sites()
    return total


class PathCounter:
    """Sum products of steps."""

    def __init__(self, shape: PlaneShape, steps: Steps) -> None:
        self.shape = shape
        self.steps = steps
        home = shape.t0_of(np.arange(shape.nics, dtype=np.int64))

        def at_t0(which: Bools) -> Ints:
            return np.bincount(home[which], minlength=shape.t0_count).astype(np.int64)

        self.senders = at_t0(steps.enter) * steps.own0[:, 0]  # per T0: NICs whose cable is correct
        self.receivers = at_t0(steps.down0)
        self.both = at_t0(steps.enter & steps.down0) * steps.own0[:, 0]
        t0 = np.arange(shape.t0_count, dtype=np.int64)
        self.pod = shape.pod_of(t0)
        uplink = np.arange(shape.t0_up, dtype=np.int64)
        link = uplink % shape.t0_bundle
        above = shape.t1_above(t0[:, None], uplink[None, :])
        self.leaving = steps.up0 & steps.own1[above, link[None, :]] if shape.tiers > 1 else steps.up0
        self.landing = steps.down1 & steps.own0[:, link] if shape.tiers > 1 else steps.down1
        self.climb, self.descend = steps.up1, steps.down2  # by T1 and its uplink
        if shape.tiers > 2:
            column = np.arange(shape.t1_up, dtype=np.int64)
            link = column % shape.t1_bundle
            t2 = shape.t2_above(np.arange(shape.t1_count, dtype=np.int64)[:, None], column[None, :])
            self.climb = steps.up1 & steps.own2[t2, link[None, :]]
            self.descend = steps.down2 & steps.own1[:, link]

    def crossing(self) -> Bools:
        """Return by top switch which of its long links lead to the other site."""
        shape, tops = self.shape, self.shape.sites * self.shape.top_per_site
        own = self.steps.own0 if shape.tiers == 1 else self.steps.own1
        twin = (np.arange(tops) + shape.top_per_site) % tops
        over: Bools = self.steps.over & own[twin][:, : shape.long]
        return over

    def by_pod(self, weight: Ints, which: Bools) -> Ints:
        """Sum NICs over the T0s of each pod: one row a pod, one column an uplink."""
        held = np.zeros((self.shape.pods, self.shape.t0_up), dtype=np.int64)
        np.add.at(held, self.pod, weight[:, None] * which)
        return held

    def under_one_t0(self) -> int:
        return int((self.senders * self.receivers - self.both).sum())

    def within_pods(self) -> int:
        sent, received = self.by_pod(self.senders, self.leaving), self.by_pod(self.receivers, self.landing)
        itself = (self.senders * self.receivers)[:, None] * (self.leaving & self.landing)
        return int((sent * received).sum() - itself.sum())

    def between_pods(self) -> int:
        """Pairs of pods of one site meet in the T2s of the uplink's column."""
        shape = self.shape
        form = shape.pods, shape.t1_per_pod, -1
        climb, descend = self.climb.reshape(form), self.descend.reshape(form)
        sent = self.by_pod(self.senders, self.leaving).reshape(form)
        received = self.by_pod(self.receivers, self.landing).reshape(form)
        total = 0
        for position in range(shape.t1_per_pod):
            ways = climb[:, position].astype(np.int64) @ descend[:, position].astype(np.int64).T
            carried = sent[:, position] @ received[:, position].T
            met = ways * carried * self._same_site()
            total += int(met.sum() - np.trace(met))
        return total

    def _same_site(self) -> Ints:
        site = np.arange(self.shape.pods) // self.shape.pods_per_site
        same: Ints = (site[:, None] == site[None, :]).astype(np.int64)
        return same

    def between_sites(self) -> int:
        shape, ways = self.shape, self.crossing().sum(axis=1).reshape(2, -1)
        if shape.tiers == 1:
            senders, receivers = self.senders.reshape(2, -1), self.receivers.reshape(2, -1)
            return int((senders * ways * receivers[::-1]).sum())
        ways = np.repeat(ways, shape.t0_bundle, axis=1)  # of each uplink
        sent, received = self.by_pod(self.senders, self.leaving), self.by_pod(self.receivers, self.landing)
        return int((sent * ways * received[::-1]).sum())


@dataclass(frozen=True)
class Ends:
    """Correct parts of a plane, by the ends of a path; a pair is whole if all parts that it uses are."""

    enter: Bools  # a NIC
    down0: Bools
    own0: Bools  # a T0, by its first alias: enough for a neighbour under the same T0
    leaving: Bools  # a T0: every way up
    landing: Bools  # a T0: every way down to it
    climb: Bools  # a pod: every way to the T2s
    descend: Bools
    cross: Bools  # a site (or T0, in one tier): every long link from it


def ends(shape: PlaneShape, steps: Steps) -> Ends:
    """Return which ends of a plane are correct."""
    counter = PathCounter(shape, steps)
    climb, descend, cross = (np.ones(size, dtype=bool) for size in (shape.pods, shape.pods, 2))
    if shape.tiers > 2:
        climb, descend = _all_of(counter.climb, shape.pods), _all_of(counter.descend, shape.pods)
    if shape.long and shape.tiers < 3:
        cross = _all_of(counter.crossing(), 2)
    return Ends(
        enter=steps.enter, down0=steps.down0, own0=steps.own0[:, 0],
        leaving=_all_of(counter.leaving, shape.t0_count), landing=_all_of(counter.landing, shape.t0_count),
        climb=climb, descend=descend, cross=cross,
    )  # fmt: skip


def _all_of(which: Bools, rows: int) -> Bools:
    """Tell for each of `rows` equal parts whether all of it is true."""
    true: Bools = np.logical_and.reduce(which.reshape(rows, -1), axis=1)
    return true


def whole_pairs(plan: UsidPlan, of_plane: list[tuple[PlaneShape, Ends]]) -> int:
    """Count ordered pairs all of whose paths, in all these planes, are delivered."""
    nic = np.arange(plan.topology.nics, dtype=np.int64)
    groups, group = _alike([shape.t0_of(nic) for shape, _ in of_plane])
    good = np.ones((len(groups), len(groups)), dtype=bool)
    sends = receives = np.ones(len(nic), dtype=bool)
    for index, (shape, have) in enumerate(of_plane):
        good &= _whole_between(shape, have, groups[:, index])
        sends, receives = sends & have.enter, receives & have.down0
    count = [np.bincount(group[which], minlength=len(groups)) for which in (sends, receives, sends & receives)]
    return int(count[0] @ good.astype(np.int64) @ count[1] - (np.diag(good) * count[2]).sum())


def _alike(homes: list[Ints]) -> tuple[Ints, Ints]:
    """Group NICs that share their T0 in every plane: (T0s of each group by plane, group of each NIC)."""
    if all((home == homes[0]).all() for home in homes):  # planes alike, the usual case: no sorting
        t0 = np.arange(int(homes[0].max()) + 1, dtype=np.int64)
        return np.repeat(t0[:, None], len(homes), axis=1), homes[0]
    groups, group = np.unique(np.stack(homes, axis=1), axis=0, return_inverse=True)
    return groups, group.ravel()


def _whole_between(shape: PlaneShape, have: Ends, t0: Ints) -> Bools:
    """Tell for each pair of T0s whether everything between them is whole."""
    pod, site = shape.pod_of(t0), t0 // shape.t0_per_site
    same_t0 = t0[:, None] == t0[None, :]
    same_pod = pod[:, None] == pod[None, :]
    same_site = site[:, None] == site[None, :]
    good = have.own0[t0][:, None] & np.ones(len(t0), dtype=bool)[None, :]
    apart = have.leaving[t0][:, None] & have.landing[t0][None, :]
    if shape.tiers > 2:
        apart &= same_pod | (have.climb[pod][:, None] & have.descend[pod][None, :])
    apart &= same_site | have.cross[np.minimum(site, len(have.cross) - 1)][:, None]
    both: Bools = good & (same_t0 | apart)
    return both


def without(shape: PlaneShape, sids: PlaneSids, name: str, cell: tuple[int, ...]) -> Steps:
    steps = whole(shape, sids)
    broken = getattr(steps, name)
    broken[cell] = False
    return dataclasses.replace(steps, **{name: broken})
