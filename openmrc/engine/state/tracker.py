"""Bitmap of the PSNs received beyond the left edge: a ring, 32 PSNs per row.

Three more bits per PSN are read when the left edge passes it: the packet began a message; it ended one; it carried an
immediate. So no state per message is needed.
"""

from openmrc.core.jit import kernel
from openmrc.engine.state.tables import Engine

WORD_BITS = 5
WORD_MASK = (1 << WORD_BITS) - 1
LAST, IMMEDIATE, FIRST = 1, 2, 4
_LOW32 = (1 << 32) - 1


@kernel
def has(engine: Engine, qp: int, psn: int) -> bool:
    """Return whether `psn`, at or beyond the left edge and inside the window, has arrived."""
    word = engine.tracker[place_of(engine, qp, psn)]
    return (word.arrived >> (psn & WORD_MASK)) & 1 == 1


@kernel
def add(engine: Engine, qp: int, psn: int, facts: int) -> None:
    """Record an arrival; `facts` are a mask of LAST, IMMEDIATE and FIRST."""
    word = engine.tracker[place_of(engine, qp, psn)]
    bit = 1 << (psn & WORD_MASK)
    word.arrived |= bit
    if facts & FIRST != 0:
        word.first |= bit
    if facts & LAST != 0:
        word.last |= bit
    if facts & IMMEDIATE != 0:
        word.immediate |= bit


@kernel
def remove(engine: Engine, qp: int, psn: int) -> int:
    """Clear an arrival and return its facts."""
    word = engine.tracker[place_of(engine, qp, psn)]
    bit = 1 << (psn & WORD_MASK)
    facts = (
        LAST * int((word.last & bit) != 0)
        + IMMEDIATE * int((word.immediate & bit) != 0)
        + FIRST * int((word.first & bit) != 0)
    )
    word.arrived &= ~bit
    word.first &= ~bit
    word.last &= ~bit
    word.immediate &= ~bit
    return facts


@kernel
def clear(engine: Engine, qp: int) -> None:
    row = engine.qps[qp]
    for index in range(row.tracker_base, row.tracker_base + ((row.tracker_mask + 1) >> WORD_BITS)):
        word = engine.tracker[index]
        if word.arrived != 0:  # rows that are not written take no memory
            word.arrived = word.first = word.last = word.immediate = 0


@kernel
def bitmap(engine: Engine, qp: int, base: int) -> int:
    """Return the arrivals of 64 PSNs from `base` on, bit 0 first, as a signed 64-bit pattern."""
    high = _half(engine, qp, base + 32)
    if high >= 1 << 31:  # the sign bit of the pattern
        high -= 1 << 32
    return high * (1 << 32) + _half(engine, qp, base)


@kernel
def _half(engine: Engine, qp: int, base: int) -> int:
    shift = base & WORD_MASK
    low = _arrived(engine, qp, base) >> shift
    if shift == 0:
        return low
    return (low | (_arrived(engine, qp, base + 32) << (32 - shift))) & _LOW32


@kernel
def _arrived(engine: Engine, qp: int, psn: int) -> int:
    """Return the arrivals in the row of a PSN as a signed number, or compiled code would make floats of the sum."""
    return engine.tracker[place_of(engine, qp, psn)].arrived & _LOW32


@kernel
def place_of(engine: Engine, qp: int, psn: int) -> int:
    row = engine.qps[qp]
    return row.tracker_base + ((psn & row.tracker_mask) >> WORD_BITS)
