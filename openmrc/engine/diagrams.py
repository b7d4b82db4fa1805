"""Mermaid state diagrams, generated from the transition tables of the engine."""

from __future__ import annotations

from collections import defaultdict
from enum import IntEnum

from openmrc.engine.states import EV_TRANSITIONS, QP_TRANSITIONS


def mermaid(transitions: dict[tuple[IntEnum, IntEnum], IntEnum]) -> str:
    """Return one state diagram; events with the same source and target share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (state, event), following in transitions.items():
        arrows[state.name, following.name].append(event.name)
    lines = [f"    {a} --> {b}: {', '.join(events)}" for (a, b), events in arrows.items()]
    return "\n".join(["stateDiagram-v2", *lines])


def page() -> str:
    """Return the section of docs/architecture.md with both state machines."""
    parts = []
    for title, transitions in (("Queue pair", QP_TRANSITIONS), ("Entropy value", EV_TRANSITIONS)):
        parts.append(f"### {title}\n\n```mermaid\n{mermaid(transitions)}\n```\n")
    return "\n".join(parts)
