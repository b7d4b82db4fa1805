"""Ways in which a fabric can grow to a number of machines, with what each of them moves: the fewest cables first.

More machines go on free ports of T0s and on new T0s, while the switches above have free ports. Where they have none,
the shape leaves a choice: fewer parallel links from each T0 to each T1, and so more T1s; more machines a T0; a third
tier above the T1s, on their free ports; or several of these. Every way is built and compared with the old fabric in
full (`grow`), so that the counts are those of the proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from msgspec.structs import replace

from openmrc.errors import ConfigError
from openmrc.fabric.addressing.usid import usid_plan
from openmrc.fabric.cabling.grow import Growth, grow
from openmrc.fabric.model.build import build
from openmrc.fabric.model.description import Fabric, Plane, Tier
from openmrc.fabric.model.shape import PlaneShape, check, plane_shapes


@dataclass(frozen=True)
class GrowthStep:
    """What is done to every plane."""

    bundle_over: int = 1  # parallel links become this many times fewer
    fill_t0: bool = False  # all free ports of T0s take machines
    third_tier: bool = False

    @property
    def text(self) -> str:
        """Return the step in words."""
        words = [
            f"parallel links from T0 to T1 divided by {self.bundle_over}",
            "machines on all ports of T0s",
            "a third tier",
        ]
        done = (self.bundle_over > 1, self.fill_t0, self.third_tier)
        return ", ".join(word for word, is_done in zip(words, done, strict=True) if is_done) or "on free ports"


@dataclass(frozen=True)
class GrowthChoice:
    """One way to grow: the fabric and the comparison, or why it cannot be."""

    step: GrowthStep
    fabric: Fabric | None
    growth: Growth | None
    refused: str = ""

    @property
    def oversubscription(self) -> dict[str, float]:
        """Return the capacity down over the capacity up of T0s, and of T1s in three tiers; of the worst plane."""
        shapes = plane_shapes(self.fabric) if self.fabric is not None else ()
        planes = self.fabric.planes_one_by_one() if self.fabric is not None else ()
        found: dict[str, float] = {}
        for shape, plane in zip(shapes, planes, strict=True):
            up_gbps = plane.t0.up_gbps or plane.host_gbps
            if shape.tiers > 1:
                ratio = shape.t0_down * plane.host_gbps / (shape.t0_up * up_gbps)
                found["T0"] = max(found.get("T0", 0.0), ratio)
            if shape.tiers > 2 and plane.t1 is not None:
                ratio = shape.t1_down * up_gbps / (shape.t1_up * (plane.t1.up_gbps or up_gbps))
                found["T1"] = max(found.get("T1", 0.0), ratio)
        return {tier: round(ratio, 3) for tier, ratio in found.items()}


def growth_choices(old: Fabric, machines: int) -> list[GrowthChoice]:
    """Return the ways that work, the fewest cables to move first, then those that do not.

    If the machines fit on free ports, nothing has to be compared with that.
    """
    before = usid_plan(build(old))
    if old.hosts is None or machines <= old.hosts.count:
        least = old.hosts.count if old.hosts else 0
        raise ConfigError(f"--machines {machines}: the fabric has {least} already")
    found: list[GrowthChoice] = []
    tried: set[Fabric] = set()
    for step in _steps(old):
        try:
            fabric = _stepped(old, machines, step)
            if fabric in tried:
                continue
            tried.add(fabric)
            check(fabric, step.text)
            growth = grow(before, usid_plan(build(fabric)))
        except ConfigError as error:
            found.append(GrowthChoice(step, None, None, str(error)))
            continue
        found.append(GrowthChoice(step, fabric, growth))
        if growth.is_pure and step == GrowthStep():
            break
    return sorted(found, key=_rank)


def _rank(choice: GrowthChoice) -> tuple[bool, int, int, int]:
    growth = choice.growth
    if growth is None:
        return True, 0, 0, 0
    added = sum(growth.switches.values())
    return False, growth.cables_to_move, sum(growth.changes.values()), added


def _steps(old: Fabric) -> Iterator[GrowthStep]:
    """Yield the ways that the shape leaves open, from the least change to the largest."""
    shapes = plane_shapes(old)
    bundles = [over for over in range(1, max(shape.t0_bundle for shape in shapes) + 1) if _divides(shapes, over)]
    tiers = [False, *([True] if all(shape.tiers == 2 and shape.sites == 1 for shape in shapes) else [])]
    for third_tier, fill_t0, over in product(tiers, (False, True), bundles):
        yield GrowthStep(over, fill_t0, third_tier)


def _divides(shapes: tuple[PlaneShape, ...], over: int) -> bool:
    return all(shape.tiers > 1 and shape.t0_bundle % over == 0 for shape in shapes) or over == 1


def _stepped(old: Fabric, machines: int, step: GrowthStep) -> Fabric:
    assert old.hosts is not None
    planes, first = [], 0
    for plane in old.planes:
        planes.append(_plane(old, plane, plane_shapes(old)[first], step))
        first += plane.count
    return replace(old, hosts=replace(old.hosts, count=machines), planes=tuple(planes))


def _plane(old: Fabric, plane: Plane, shape: PlaneShape, step: GrowthStep) -> Plane:
    t0, t1, t2 = plane.t0, plane.t1, plane.t2
    down = _ports(old, plane, t0) - shape.t0_up - shape.long * (shape.tiers == 1) if step.fill_t0 else shape.t0_down
    up = shape.t0_up if shape.tiers > 1 else t0.up
    t0 = replace(t0, down=max(down, shape.t0_down), up=up, bundle=t0.bundle // step.bundle_over)
    if t1 is not None and step.third_tier:
        t1_down = shape.t1_down // step.bundle_over
        free = _ports(old, plane, t1) - t1_down
        if free < 1:
            raise ConfigError(f"{step.text}: T1s have no free ports")
        t1 = replace(t1, down=t1_down, up=free)
        t2 = Tier(radix=t1.radix, switch_ns=t1.switch_ns, buffer_kb=t1.buffer_kb)
    return replace(plane, t0=t0, t1=t1, t2=t2)


def _ports(old: Fabric, plane: Plane, tier: Tier) -> int:
    """Return the ports of a tier's switch model: as stated, or as many as its cages carry at the plane's rate."""
    if tier.radix is not None:
        return tier.radix
    plant = old.plant
    return int(plant.cages * plant.lanes * plant.lane_gbps // max(plane.host_gbps, plant.lane_gbps))
