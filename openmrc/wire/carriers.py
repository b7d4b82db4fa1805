"""What a dissector must know of a fabric to read its carriers: blocks of planes, and ranges of uSIDs in them.

A carrier is an IPv6 destination of a 32-bit block and up to six 16-bit uSIDs (RFC 9800, F3216). The ranges come from
whoever planned the fabric; this module only knows their form.
"""

from __future__ import annotations

from typing import NamedTuple


class UsidRange(NamedTuple):
    """Say which uSIDs are a tier's, and which switch each is.

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
    """Hold the block and the ranges of one plane."""

    plane: int
    block: int  # upper 32 bits
    ranges: tuple[UsidRange, ...]
