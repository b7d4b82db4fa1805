"""State machines as Markdown tables, generated from their transition tables."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from openmrc.engine.state.machines import EV_TRANSITIONS, QP_TRANSITIONS, EvEvent, EvState, QpEvent, QpState

Machine = tuple[type[IntEnum], type[IntEnum], dict[tuple[IntEnum, IntEnum], IntEnum]]


def table(states: type[IntEnum], events: type[IntEnum], transitions: dict[tuple[IntEnum, IntEnum], IntEnum]) -> str:
    """Return a table with a row for each event and a column for each state; cells hold the next state."""
    lines = [
        "| event in state | " + " | ".join(state.name for state in states) + " |",
        "|---" * (len(states) + 1) + "|",
    ]
    for event in events:
        following = [transitions.get((state, event)) for state in states]
        lines.append(
            f"| {event.name} | " + " | ".join(after.name if after is not None else "" for after in following) + " |"
        )
    return "\n".join(lines)


ENGINE: Mapping[str, Machine] = {
    "Queue pair": (QpState, QpEvent, QP_TRANSITIONS),
    "Entropy value": (EvState, EvEvent, EV_TRANSITIONS),
}


def page(machines: Mapping[str, Machine] = ENGINE) -> str:
    """Return a section of docs/architecture.md with state machines."""
    return "\n".join(f"### {title}\n\n{table(*machine)}\n" for title, machine in machines.items())
