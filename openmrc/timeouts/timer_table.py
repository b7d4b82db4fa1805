"""The table of all timers, and its pages."""

from __future__ import annotations

from openmrc.timeouts import endpoint_timers, operator_timers, program_timers, training_timers
from openmrc.timeouts.timer_rows import TimerGroup, in_words

GROUPS: tuple[TimerGroup, ...] = (
    endpoint_timers.QUEUE_PAIR,
    endpoint_timers.ENDPOINT,
    endpoint_timers.CONNECTION,
    endpoint_timers.CONTROLLER,
    operator_timers.FABRIC_CONTROLLER,
    operator_timers.DRAINS,
    operator_timers.AGENTS,
    operator_timers.PAGE,
    training_timers.GROUP,
    training_timers.MEETING,
    program_timers.PROGRAMS,
    program_timers.LAB,
    training_timers.NCCL,
    training_timers.TORCH,
    training_timers.ELASTIC,
    training_timers.SCHEDULER,
)


def as_markdown() -> str:
    """Return the table for the documentation, a section for each group."""
    return "\n\n".join(_section(group) for group in GROUPS)


def _section(group: TimerGroup) -> str:
    lines = [f"### {group.title}", "", "| timer | time | waits for | then | set by |", "|---|---|---|---|---|"]
    for row in group.rows:
        lines.append(f"| {row.name} | {in_words(row.seconds)} | {row.waits_for} | {row.effect} | {row.set_by} |")
    return "\n".join(lines)
