"""A verdict as text, for those who go there: what is faulty, on which evidence, and both ends of each cable."""

from __future__ import annotations

from collections.abc import Iterator

from openmrc.operations.diagnosis.denial import DenialOutcome
from openmrc.operations.diagnosis.verdicts import FaultVerdict, WorkOrder
from openmrc.programs.columns import counted, name_columns
from openmrc.units import PS_PER_MS

_MOST_HIT = 8  # endpoints that are listed
_DENIALS = {"dry run": "a controller would deny it: every pair of NICs keeps a path", "denied": "denied"}


def work_order_text(order: WorkOrder, denial: DenialOutcome) -> str:
    """Say what a verdict found, and where to go; `denial` is what a controller would do about it."""
    facts = [*_facts(order), ("denial", _DENIALS.get(denial, f"refused: {denial}"))]
    return "\n".join([_sentence(order.verdict), *name_columns(facts)])


def order_lines(order: WorkOrder) -> list[str]:
    """Say where to go, who was hit and what was changed there last."""
    return list(name_columns([*_facts(order), ("changed", order.last_change or "nothing noted"), *_hit(order)]))


def _facts(order: WorkOrder) -> list[tuple[str, str]]:
    instead = [("or else", ", ".join(order.verdict.instead))] if order.verdict.instead else []
    return [*_cables(order), *instead]


def _hit(order: WorkOrder) -> Iterator[tuple[str, str]]:
    if not order.hit:
        yield "hit", "no endpoint has lost anything there"
    for place, each in enumerate(order.hit[:_MOST_HIT]):
        program = f", {each.program}" if each.program else ""
        yield "" if place else "hit", f"{each.host} {each.endpoint}{program}: {each.lost:,} of {each.counted:,} packets"
    if len(order.hit) > _MOST_HIT:
        yield "", f"and {counted(len(order.hit) - _MOST_HIT, 'endpoint', 'endpoints')} more"


def _sentence(found: FaultVerdict) -> str:
    """Say what is faulty and what it stands on."""
    done = "delayed" if found.effect == "late" else "lost"
    estimated = f"about {100 * found.rate:.2g} % of those that cross it"
    return (
        f"{found.part} is {found.effect}: {found.lost:,} of {found.sent:,} packets {done}, {estimated}; "
        f"confidence {found.confidence:.3f}; named after {found.at_ps / PS_PER_MS:.1f} ms"
    )


def _cables(order: WorkOrder) -> Iterator[tuple[str, str]]:
    for cable in order.cables:
        yield "cable", f"{cable['label']}, {cable['gbps']} Gb/s, {cable['length_m']} m"
        yield from (("", _end(cable, side)) for side in "ab")
    if order.more:
        yield "", f"and {counted(order.more, 'cable', 'cables')} more"


def _end(cable: dict[str, str], side: str) -> str:
    """Return where a cable ends: device, rack, port, module."""
    device, rack, unit, interface, cage, lane, module = (
        cable[f"{side}_{name}"] for name in ("device", "rack", "unit", "interface", "cage", "lane", "module")
    )
    return f"{device}, rack {rack} unit {unit}, {interface} (cage {cage} lane {lane}, {module})"
