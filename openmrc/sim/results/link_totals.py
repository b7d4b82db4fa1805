"""Totals of the counters and queues of links, by group: one pass over the tables, which no cache holds."""

from __future__ import annotations

from openmrc.core.arrays import Ints
from openmrc.core.jit import entry
from openmrc.core.rows import Table
from openmrc.sim.network.state.network_tables import BYTE_TIME_BITS, EgressPort, Wire

COUNTERS = ("data_packets", "data_bytes", "ecn_marked", "lost", "trimmed", "dropped")  # since the start
GAUGES = ("queue_bytes", "queue_longest_ps")  # current values: sum of all queues of the group, and the longest
COLUMNS = COUNTERS + GAUGES


@entry
def add_up(
    ports: Table[EgressPort], wires: Table[Wire], now: int, firsts: Ints, ends: Ints, groups: Ints, out: Ints
) -> None:
    """Add the links firsts[i] to ends[i] - 1 to column groups[i] of `out`, whose rows are COLUMNS; for all i."""
    for run in range(len(firsts)):
        group = groups[run]
        for link in range(firsts[run], ends[run]):
            port, wire = ports[link], wires[link]
            backlog = max(0, port.busy_until - now)
            out[0, group] += port.data_packets
            out[1, group] += port.data_bytes
            out[2, group] += wire.marked
            out[3, group] += wire.lost
            out[4, group] += port.trimmed
            out[5, group] += port.dropped
            out[6, group] += (backlog << BYTE_TIME_BITS) // port.byte_time
            out[7, group] = max(out[7, group], backlog)
