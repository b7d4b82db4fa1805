"""The folded-Clos network with the fewest switches for a number of NIC ports, as a `Plane` that `PlaneShape` counts.

A T0 splits its ports by the oversubscription; a T1 of three tiers has as many ports up as down. Where fewer spines
suffice for all uplinks, links are bundled: in three tiers by the bundle with the fewest switches, then the fewest
links. Four tiers, which no fabric file describes, are counted by the closed form only.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from openmrc.fabric.model.description import Fabric, Hosts, Plane, Tier
from openmrc.fabric.model.shape import PlaneShape, plane_shapes

MOST_TIERS = 4
MOST_BUILT_TIERS = 3


@dataclass(frozen=True)
class ClosSize:
    """Size of one Clos network of `ports` NIC ports."""

    ports: int
    radix: int
    tiers: int
    down: int  # of a T0
    up: int
    spines: int  # T1s that a T0 has links to
    switches: tuple[int, ...]  # a tier
    links: tuple[int, ...]  # hosts, then between tiers
    paths: int
    plane: Plane | None  # None: four tiers

    @property
    def oversubscription(self) -> float:
        """Return capacity down : up of a T0, 1 without a tier above."""
        return self.down / self.up if self.up else 1.0


def capacity(radix: int, tiers: int, oversubscription: float = 1) -> int:
    """Count the NIC ports one network can have."""
    if tiers == 1:
        return radix
    return math.prod([t0_split(radix, oversubscription)[0], radix, *[radix // 2] * (tiers - 2)])


def t0_split(radix: int, oversubscription: float = 1) -> tuple[int, int]:
    """Return a T0's (ports down, ports up); down : up is at most the oversubscription."""
    up = min(radix - 1, math.ceil(radix / (1 + oversubscription) - 1e-9))
    return radix - up, up


def network(ports: int, radix: int, tiers: int, gbps: float, oversubscription: float = 1) -> ClosSize:
    """Return the smallest network of a height; `ports` must not exceed its capacity."""
    if tiers > MOST_BUILT_TIERS:
        return _four_tiers(ports, radix, oversubscription)
    down, up = t0_split(radix, oversubscription) if tiers > 1 else (radix, 0)
    planes: Iterable[Plane]
    if tiers == 1:
        planes = [Plane(host_gbps=gbps, t0=Tier(down=down, radix=radix))]
    elif tiers == 2:
        bundle = _widest(up, radix // math.ceil(ports / down))
        planes = [Plane(host_gbps=gbps, t0=Tier(down=down, up=up, bundle=bundle, radix=radix), t1=Tier(radix=radix))]
    else:
        planes = _three_tiers(ports, radix, gbps, down, up)
    fabrics = (Fabric(name="plan", hosts=Hosts(count=ports), planes=(plane,)) for plane in planes)
    counted = [(fabric.planes[0], plane_shapes(fabric, "plan")[0]) for fabric in fabrics]
    plane, shape = min(counted, key=lambda each: (each[1].switches, sum(_links(each[1])), each[0].t0.bundle))
    switches, links = shape.counts[:tiers], _links(shape)[:tiers]
    return ClosSize(ports, radix, tiers, down, up, shape.t1_per_pod, switches, links, shape.paths, plane)


def _links(shape: PlaneShape) -> tuple[int, int, int]:
    return shape.nics, shape.t0_count * shape.t0_up, shape.t1_count * shape.t1_up


def _three_tiers(ports: int, radix: int, gbps: float, down: int, up: int) -> Iterator[Plane]:
    """Yield a plane for each bundle at T0 whose pods the top tier can join."""
    t0s = math.ceil(ports / down)
    for bundle in (each for each in range(1, radix // 2 + 1) if up % each == 0):
        pods = math.ceil(t0s / (radix // 2 // bundle))
        if pods > radix:
            continue
        t1_down = math.ceil(t0s / pods) * bundle
        yield Plane(
            host_gbps=gbps,
            t0=Tier(down=down, up=up, bundle=bundle, radix=radix),
            t1=Tier(down=t1_down, up=t1_down, bundle=_widest(t1_down, radix // pods), radix=radix),
            t2=Tier(radix=radix),
        )


def _widest(uplinks: int, most: int) -> int:
    """Return the largest bundle up to `most` that divides the uplinks."""
    return next(bundle for bundle in range(min(uplinks, most), 0, -1) if uplinks % bundle == 0)


def _four_tiers(ports: int, radix: int, oversubscription: float) -> ClosSize:
    """Count four tiers as full switches, without regard to how they are wired."""
    down, up = t0_split(radix, oversubscription)
    half = radix // 2
    t0s = math.ceil(ports / down)
    t1s = math.ceil(t0s * up / half)
    t2s = math.ceil(t1s * half / half)
    switches = (t0s, t1s, t2s, math.ceil(t2s * half / radix))
    links = (ports, t0s * up, t1s * half, t2s * half)
    return ClosSize(ports, radix, 4, down, up, min(up, t1s), switches, links, up * half * half, None)
