"""A fabric's carriers as a dissector reads them: the ranges of every plane."""

from openmrc.fabric.addressing.usid import PlaneSids, UsidPlan
from openmrc.wire.srv6 import CarrierPlane, UsidRange


def carrier_planes(plan: UsidPlan) -> tuple[CarrierPlane, ...]:
    """Return what tells a plan's carriers apart."""
    return tuple(CarrierPlane(plane, sids.block, tuple(_ranges(sids))) for plane, sids in enumerate(plan.planes))


def _ranges(sids: PlaneSids) -> list[UsidRange]:
    return [] if sids.found else [_range(sids, *named) for named in sids.ranges()]


def _range(sids: PlaneSids, name: str, first: int, values: int) -> UsidRange:
    shape = sids.shape
    if name == "t0":
        return UsidRange(name, first, values, inner=sids.t0_aliases, digits=_digits(shape.t0_count))
    if name == "t1":
        pods = UsidRange(name, first, values, outer=sids.t1_pod, outer_weight=shape.t1_per_pod)
        return pods._replace(inner=sids.t1_step, digits=_digits(shape.t1_count))
    if name == "t2":
        columns = UsidRange(name, first, values, outer=sids.t2_column, outer_weight=1)
        return columns._replace(inner=sids.t2_aliases, inner_weight=shape.t1_per_pod, digits=_digits(shape.t2_count))
    return UsidRange({"host": "port"}.get(name, name), first, values)


def _digits(count: int) -> int:
    """Return how many digits a switch's number has in its name, as `Topology.name` writes it."""
    return max(2, len(str(count - 1)))
