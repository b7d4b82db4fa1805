"""Traffic classes of a switch: which DSCP is queued where.

  class  queue  what                                                     DSCP of `port_settings.Dscp`
  0      0      everything else                                          all others
  3      3      data, marked by ECN and trimmed when the buffer is full  trimmable, trimmable_again
  5      6      what this switch has trimmed; its DSCP is set by class   none arrives in it
  6      6      control, and what was trimmed on the way                 control, trimmed, trimmed_last_hop

Class 5 is for packets trimmed here only: a port rewrites DSCPs by class, and must not call a packet trimmed on the
last hop that was trimmed before. Queue 6 is served first, as control is in the lab's program.
"""

from __future__ import annotations

from openmrc.fabric.model.port_settings import Dscp

OTHER, DATA, TRIMMED_HERE, CONTROL = 0, 3, 5, 6
QUEUE = {OTHER: 0, 1: 0, 2: 0, DATA: 3, 4: 0, TRIMMED_HERE: 6, CONTROL: 6, 7: 6}
DATA_SHARE, OTHER_SHARE = 90, 10  # per cent of the capacity that control leaves


def class_of(dscp: Dscp) -> dict[int, int]:
    """Return the class of every DSCP with its own class."""
    data = dict.fromkeys((dscp.trimmable, dscp.trimmable_again), DATA)
    return {**data, **dict.fromkeys((dscp.control, dscp.trimmed, dscp.trimmed_last_hop), CONTROL)}


def trim_size(least: int, keep: int) -> int:
    """Return the length to which packets are trimmed: Ethernet 14, IPv6 40, `keep`; a multiple of 4."""
    return max(least, -(-(14 + 40 + keep) // 4) * 4)
