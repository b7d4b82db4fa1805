"""Address plan of a fabric for dissectors: blocks of planes, and ranges of uSIDs in them.

A carrier is an IPv6 destination of a 32-bit block and up to six 16-bit uSIDs (RFC 9800, F3216). The planner of a fabric
supplies the ranges.
"""

from __future__ import annotations

from typing import NamedTuple


class UsidRange(NamedTuple):
    """The uSIDs of a tier, and the switch of each.

    With offset = uSID - first, the switch is offset // outer * outer_weight + offset % outer // inner * inner_weight.
    """

    kind: str  # "t0", "t1", "t2", "port" or "nic"
    first: int
    values: int  # uSIDs in the range
    outer: int = 1 << 16
    outer_weight: int = 0
    inner: int = 1  # uSIDs of one switch: its parallel links
    inner_weight: int = 1
    digits: int = 0  # of a switch's number in its name


class CarrierPlane(NamedTuple):
    """The block and the ranges of one plane."""

    plane: int
    block: int  # upper 32 bits
    ranges: tuple[UsidRange, ...]
