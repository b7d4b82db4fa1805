"""Where a packet carries its entropy value (EV): the UDP source port and the IPv6 flow label.

The port holds 16 bits, the low bits of the flow label another 16; a placement defines which half of the 32-bit EV goes
where. IPv4 has no flow label: that half reads back as zero.

Readers of MRC §9.1 disagree about the order of the halves of a structured EV, so both orders are supported.
"""

from enum import IntEnum

from openmrc.core.jit import kernel

SRV6_PORT_BASE = 0xC000  # the lowest source port that RoCEv2 senders use; an EV's index is added to it
SRV6_INDEX_MASK = 0x3FFF
EV_BITS = 32
PLANE_BITS = 4  # of an EV, see `on_plane`
PATH_BITS = 10
PATHS_OF_A_PLANE = 1 << PATH_BITS  # that fit in a source port
HALF = 0xFFFF


class EvPlacement(IntEnum):
    """Placement of a 32-bit EV in the headers."""

    UDP = 0  # 16 bits, all in the source port
    ECMP = 1  # low half in the source port, high half in the flow label
    STEV = 2  # high half in the source port, low half in the flow label
    STEV_LABEL_FIRST = 3  # high half in the flow label, low half in the source port
    SRV6 = 4  # the outer address is the path; the port holds 0xC000 + the index of the EV


@kernel
def on_plane(plane: int, number: int) -> int:
    """Return the EV for path `number` of a plane: 10 bits of the number, 4 bits of plane, the rest of the number.

    EVs of different planes never coincide. A SACK reflects the value alone and comes back on any plane (MRC §7.5.2), so
    a value that two planes shared would blame the wrong one. Numbers below 1,024 fit in 14 bits, below 2**28 in 32.
    """
    above = (number >> PATH_BITS) & ((1 << (EV_BITS - PATH_BITS - PLANE_BITS)) - 1)
    return (number & (PATHS_OF_A_PLANE - 1)) | plane << PATH_BITS | above << (PATH_BITS + PLANE_BITS)


@kernel
def source_port(placement: int, ev: int) -> int:
    """Return the UDP source port of a packet that travels on `ev`."""
    if placement == EvPlacement.SRV6:
        return SRV6_PORT_BASE | (ev & SRV6_INDEX_MASK)
    return ev >> 16 & HALF if placement == EvPlacement.STEV else ev & HALF


@kernel
def flow_label(placement: int, ev: int) -> int:
    """Return the IPv6 flow label of a packet that travels on `ev`."""
    if placement in (EvPlacement.UDP, EvPlacement.SRV6):
        return 0
    return ev & HALF if placement == EvPlacement.STEV else ev >> 16 & HALF


@kernel
def entropy(placement: int, port: int, label: int) -> int:
    """Return the EV of a packet that arrived with this source port and flow label (0 over IPv4)."""
    if placement == EvPlacement.SRV6:
        return port & SRV6_INDEX_MASK
    if placement == EvPlacement.UDP:
        return port & HALF
    port, label = port & HALF, label & HALF
    return port << 16 | label if placement == EvPlacement.STEV else label << 16 | port
