"""How long was no data written to the memory of an endpoint?"""

from __future__ import annotations

from openmrc.units import PS_PER_S
from openmrc.verbs import Context


def longest_gap(context: Context) -> float:
    """Return the longest time (s) without a data packet written to its memory, since the last call.

    Packets count in any order of arrival; a completion also waits for all packets sent before it.
    """
    nic = context.nic.runtime.nic
    with context.nic.runtime.locked() as now:
        gap = max(nic.longest_gap, now - nic.placed_at)
        nic.longest_gap, nic.placed_at = 0, now
    return gap / PS_PER_S
