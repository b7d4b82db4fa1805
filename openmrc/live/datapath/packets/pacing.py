"""Pacing: a plane whose rate is known is given data no faster than its port sends it.

Planes are used in turn, whatever waits at their ports. A port whose queue has once grown stays behind the others, and
packets overtake each other by as much as the queues differ: a round trip, on slow links. Every loss is known that much
later. So only a plane takes data at whose port little waits, as a NIC chooses among the ports with room (MRC §9.3.1).
"""

import math

from openmrc.core.jit import kernel
from openmrc.engine.state.tables import NONE, Engine
from openmrc.live.datapath.rows import FRAME_HEADERS, DataPath
from openmrc.units import NEVER, PS_PER_S, PS_PER_US

_FRAMING = FRAME_HEADERS + 38  # bytes around a datagram; 38: Ethernet, its preamble and the gap
_SLOWEST = 1e6  # bit/s; a file may state any rate
_LONGEST = PS_PER_S  # no port counts as busy for longer: control packets do not wait, and must not block data
_WAKE_UP = 100 * PS_PER_US  # a thread may wake that late; the port shall have work until then


def set_rate(datapath: DataPath, bits_per_s: float, longest: int) -> None:
    """Pace every plane at a rate, of at least a megabit a second; `longest`: bytes of the longest datagram."""
    nic = datapath.nic[0]
    nic.ps_per_byte = math.ceil(8 * PS_PER_S / max(bits_per_s, _SLOWEST))
    nic.paced_ahead = max(nic.ps_per_byte * (longest + _FRAMING), _WAKE_UP)


@kernel
def open_planes(datapath: DataPath) -> int:
    """Return the mask of planes that take data now."""
    nic = datapath.nic[0]
    nic.closed_planes = 0
    if nic.ps_per_byte > 0:
        for plane in range(nic.planes):
            if datapath.planes[plane].busy_until - nic.paced_ahead > nic.now:
                nic.closed_planes |= 1 << plane
    return ~nic.closed_planes


@kernel
def on_sent(datapath: DataPath, plane: int, length: int) -> None:
    """Account for a datagram of `length` bytes, if planes are paced."""
    nic = datapath.nic[0]
    if nic.ps_per_byte > 0:
        row = datapath.planes[plane]
        until = max(row.busy_until, nic.now) + (length + _FRAMING) * nic.ps_per_byte
        row.busy_until = min(until, nic.now + _LONGEST)


@kernel
def next_opening(engine: Engine, datapath: DataPath) -> int:
    """Return when (ps) data that found planes closed finds the next of them open, NEVER if none waits."""
    nic = datapath.nic[0]
    following = NEVER
    if nic.closed_planes != 0 and engine.endpoints[nic.endpoint].ready_tail != NONE:
        for plane in range(nic.planes):
            if (nic.closed_planes >> plane) & 1 == 1:
                following = min(following, datapath.planes[plane].busy_until - nic.paced_ahead)
    return following
