"""From an EV to one path: plane, uplinks, nodes and carrier address.

An EV number is plane, T0's uplink, T1's uplink and long link, from the lowest bits up, each field as wide as the
largest plane needs. Choices that do not exist for two near NICs (the spine of a pair under one T0) have no effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import PlaneSids, UsidPlan
from openmrc.fabric.model.shape import IntOrInts, PlaneShape


@dataclass(frozen=True)
class Choice:
    """Name one path of one plane."""

    plane: int
    uplink: int = 0  # of the source's T0
    core: int = 0  # uplink of the T1
    long: int = 0  # long link between the sites


@dataclass(frozen=True)
class Path:
    ev: int
    choice: Choice
    nodes: tuple[int, ...]  # NIC, switches, NIC
    ports: tuple[int, ...]  # output port of each node but the last
    sids: tuple[int, ...]
    address: str


class EvNumbers:
    """Translate between EV numbers and choices."""

    def __init__(self, plan: UsidPlan) -> None:
        shapes = plan.topology.planes
        self.shapes = shapes
        self.plane_bits = (len(shapes) - 1).bit_length()
        self.uplink_bits = max(max(shape.t0_up, 1) - 1 for shape in shapes).bit_length()
        self.core_bits = max(max(shape.t1_up, 1) - 1 for shape in shapes).bit_length()
        self.long_bits = max(max(shape.long, 1) - 1 for shape in shapes).bit_length()

    @property
    def bits(self) -> int:
        return self.plane_bits + self.uplink_bits + self.core_bits + self.long_bits

    def number(self, choice: Choice) -> int:
        number = choice.long << self.core_bits | choice.core
        return (number << self.uplink_bits | choice.uplink) << self.plane_bits | choice.plane

    def choice(self, ev: int) -> Choice:
        """Return the choice of an EV number; ConfigError if it is not an EV of the fabric."""
        plane, rest = ev & ((1 << self.plane_bits) - 1), ev >> self.plane_bits
        uplink, rest = rest & ((1 << self.uplink_bits) - 1), rest >> self.uplink_bits
        core, long = rest & ((1 << self.core_bits) - 1), rest >> self.core_bits
        if ev < 0 or ev >> self.bits:
            raise ConfigError(f"EV {ev} is out of range; EVs of this fabric are 0 to {(1 << self.bits) - 1}")
        if plane >= len(self.shapes):
            raise ConfigError(f"EV {ev} names plane {plane}; there are {len(self.shapes)}")
        shape = self.shapes[plane]
        limits = (("uplink", uplink, shape.t0_up), ("core uplink", core, shape.t1_up), ("long link", long, shape.long))
        for name, value, count in limits:
            if value >= max(count, 1):
                raise ConfigError(f"EV {ev} names {name} {value} of plane {plane}; there are {count}")
        return Choice(plane, uplink, core, long)


def choices(shape: PlaneShape, source: int, destination: int) -> Iterator[Choice]:
    """Yield every distinct path of a plane between two NICs."""
    how = relation(shape, shape.t0_of(source), shape.t0_of(destination))
    yield from choices_of(shape, how)


def choices_of(shape: PlaneShape, how: Relation) -> Iterator[Choice]:
    """Yield every distinct path of a plane between NICs of a relation."""
    uplinks = shape.t0_up if how != Relation.T0 and shape.tiers > 1 else 1
    cores = shape.t1_up if how in (Relation.SITE, Relation.FAR) and shape.tiers > 2 else 1
    longs = shape.long if how == Relation.FAR else 1
    for long in range(longs):
        for core in range(cores):
            for uplink in range(uplinks):
                yield Choice(shape.plane, uplink, core, long)


class Relation(IntEnum):
    """Distance of two NICs in a plane."""

    T0 = 0  # under the same T0
    POD = 1  # in the same pod (in two tiers: anywhere in the site)
    SITE = 2  # in another pod of the site
    FAR = 3  # at the other site


def relation(shape: PlaneShape, here: int, there: int) -> Relation:
    """Return the relation of two T0s."""
    if here == there:
        return Relation.T0
    if here // shape.t0_per_site != there // shape.t0_per_site:
        return Relation.FAR
    return Relation.POD if shape.pod_of(here) == shape.pod_of(there) else Relation.SITE


@dataclass(frozen=True)
class Stop(Generic[IntOrInts]):
    """One switch on a path: its node, the uSID that names it there, and the output port."""

    tier: int
    index: IntOrInts
    alias: int
    port: IntOrInts


def stops(
    shape: PlaneShape, here: IntOrInts, there: IntOrInts, port: IntOrInts, how: Relation, choice: Choice
) -> list[Stop[IntOrInts]]:
    """List the switches between two T0s of one relation; `port` is the destination's."""
    last = there * 0  # of the same kind as the indices
    if how == Relation.T0:
        return [Stop(0, here, 0, port)]
    if shape.tiers == 1:
        return [Stop(0, here, 0, last + shape.t0_down + choice.long), Stop(0, there, choice.long, port)]
    position, link = choice.uplink // shape.t0_bundle, choice.uplink % shape.t0_bundle
    up, down = shape.t1_above(here, choice.uplink + last), shape.pod_of(there) * shape.t1_per_pod + position
    to_t0 = shape.place_in_pod(there) * shape.t0_bundle + link
    first, final = Stop(0, here, 0, last + shape.t0_down + choice.uplink), Stop(0, there, link, port)
    if how == Relation.POD:
        return [first, Stop(1, up, link, to_t0), final]
    if shape.tiers == 2:
        over = Stop(1, up, link, last + shape.t1_down + choice.long)
        return [first, over, Stop(1, down, choice.long, to_t0), final]
    core = choice.core % shape.t1_bundle
    to_t1 = shape.pod_of(there) % shape.pods_per_site * shape.t1_bundle + core
    climb = Stop(1, up, link, last + shape.t1_down + choice.core)
    top = Stop(2, shape.t2_above(up, choice.core + last), core, to_t1)
    return [first, climb, top, Stop(1, down, core, to_t0), final]


def sid_of(sids: PlaneSids, stop: Stop[IntOrInts]) -> IntOrInts:
    """Return the uSID a path calls a switch by."""
    return sids.sid(stop.tier, stop.index, stop.index * 0 + stop.alias)


def node_of(shape: PlaneShape, stop: Stop[IntOrInts]) -> IntOrInts:
    return shape.firsts[stop.tier] + stop.index


def stacks(sids: PlaneSids, here: int, there: int) -> list[list[int]]:
    """Return the switches' uSIDs of every path of a plane between two T0s, in the order of `choices`."""
    shape, how = sids.shape, relation(sids.shape, here, there)
    ways = (stops(shape, here, there, 0, how, choice) for choice in choices_of(shape, how))
    return [[sid_of(sids, stop) for stop in way] for way in ways]


def path(plan: UsidPlan, source: int, destination: int, choice: Choice, ev: int = -1) -> Path:
    """Return the path that a choice names between two NICs."""
    if source == destination:
        raise ConfigError(f"{plan.topology.name(source)} to itself: there is no path")
    sids = plan.planes[choice.plane]
    shape = sids.shape
    here, there, port = shape.t0_of(source), shape.t0_of(destination), shape.t0_port_of(destination)
    way = stops(shape, here, there, port, relation(shape, here, there), choice)
    stack = [*(sid_of(sids, stop) for stop in way), sids.downlink_sid(there, port), *sids.tail(there, port)]
    nodes = (source, *(node_of(shape, stop) for stop in way), destination)
    ports = (choice.plane, *(stop.port for stop in way))
    return Path(ev, choice, nodes, ports, tuple(stack), plan.address(choice.plane, stack))
