"""The table of profiles in docs/entropy.md: `python -c "from spec.profile_table import table; print(table())"`."""

from __future__ import annotations

from openmrc.ctl.profiles.states import ALL_RULES, names


def table() -> str:
    """Return the rules of all kinds of profiles as a Markdown table."""
    lines = [
        "| kind | to OFFLINE needs | to ONLINE needs | changeable ONLINE |",
        "|---|---|---|---|",
    ]
    for rules in ALL_RULES:
        attributes = (*rules.needs.values(), rules.while_online)
        lines.append(f"| {rules.name} | " + " | ".join(map(names, attributes)) + " |")
    return "\n".join(lines)
