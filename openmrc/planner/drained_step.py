"""What a step of training costs while links of a fabric are out of use, from the table of responses.

The planes that the worst NIC loses are lost links of a NIC, lost paths above T0 a T1 or a link, in proportion; and no
collective is faster than the worst pair's capacity allows. What was measured are failures: drains cost as much or less.
"""

import msgspec

from openmrc.planner.response_table import Responses
from openmrc.planner.structure import COLLECTIVES, PRESETS, Parallelism, step

NETWORK = "mrc"
MOST_MEASURED = 4  # lost planes of a NIC


class DrainedStep(msgspec.Struct, frozen=True, kw_only=True):
    """How much longer a step of one model takes, and what that adds up to."""

    model: str
    step_percent: float  # longer than without the drain
    lost_s: float  # of the job, in the minutes that the drain lasts
    collectives: dict[str, float]  # time of each, relative to its time without the drain


def slowed_collectives(planes_left: int, kept: float, t1: bool, table: Responses) -> dict[str, float]:
    """Return the time of each collective relative to its time without the drain, on a fabric like the table's.

    `planes_left`: on which the worst NIC can still send and receive, at least 1; `kept`: share of its paths that the
    worst pair keeps, above 0; `t1`: switches above T0 are out, not single links.
    """
    lost = table.planes - planes_left
    above = max(0.0, (1 - kept) * table.planes - lost)  # shares of the paths above T0, added up over planes
    return {each: _slow(table, each, lost, above, kept, t1) for each in COLLECTIVES}


def drained_steps(slow: dict[str, float], minutes: float, table: Responses | None) -> list[DrainedStep]:
    """Return the cost for each model of `mrc plan job` while its collectives are that slow.

    `minutes`: as long as the drain lasts, or all waves of a plan that are alike; `table`: says how long collectives
    take without the drain, None: as long as on the fastest network.
    """
    return [_of_model(name, groups, slow, minutes, table) for name, groups in PRESETS.items()]


def _slow(table: Responses, collective: str, lost: int, above: float, kept: float, t1: bool) -> float:
    """Return a collective's time relative to that without the drain."""
    found = 1.0
    if lost > 0:
        kind = "nic_link" if lost == 1 else f"nic_link_{min(lost, MOST_MEASURED)}"
        found += table.slow(NETWORK, collective, kind) - 1
    if above > 0:
        found += table.slow(NETWORK, collective, "t1" if t1 else "fabric_link", above) - 1
    return max(found, 1 / kept)


def _of_model(
    name: str, groups: tuple[Parallelism, ...], slow: dict[str, float], minutes: float, table: Responses | None
) -> DrainedStep:
    calm = {group.collective: table.congestion(NETWORK, group.collective) if table else 1.0 for group in groups}
    longer = step(groups, {each: calm[each] * slow[each] for each in calm}) / step(groups, calm)
    return DrainedStep(
        model=name,
        step_percent=round(100 * (longer - 1), 3),
        lost_s=round(60 * minutes * (1 - 1 / longer), 1),
        collectives={each: round(slow[each], 4) for each in calm},
    )
