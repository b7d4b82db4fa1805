"""State machines of the engine as Markdown tables, generated from its transition tables."""

from __future__ import annotations

from enum import IntEnum

from openmrc.engine.state.machines import EV_TRANSITIONS, QP_TRANSITIONS, EvEvent, EvState, QpEvent, QpState


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


def page() -> str:
    """Return the section of docs/architecture.md with both state machines."""
    machines = {
        "Queue pair": table(QpState, QpEvent, QP_TRANSITIONS),
        "Entropy value": table(EvState, EvEvent, EV_TRANSITIONS),
    }
    return "\n".join(f"### {title}\n\n{drawn}\n" for title, drawn in machines.items())
