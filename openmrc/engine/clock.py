"""The 16-bit timestamps of TSETH and its relatives (MRC Table 6-6): what they count and what a difference means."""

from openmrc.core.jit import kernel
from openmrc.core.serial import TIMESTAMP_BITS

_TICK = (128_000, 1_000_000)  # ps: tsr 0 counts 128 ns, tsr 1 counts 1 us
_MASK = (1 << TIMESTAMP_BITS) - 1


@kernel
def stamp(now: int, unit: int) -> int:
    """Return the 16 bits that stand for `now` (ps)."""
    return (now // _TICK[unit]) & _MASK


@kernel
def elapsed(now: int, tx_timestamp: int, unit: int) -> int:
    """Return the ps since `tx_timestamp`, right while that is less than one wrap."""
    return ((now // _TICK[unit] - tx_timestamp) & _MASK) * _TICK[unit] + now % _TICK[unit]


@kernel
def is_unambiguous(age: int, unit: int) -> bool:
    """Whether a packet sent `age` ps ago may be timed by its stamp: less than half a wrap."""
    return age < _TICK[unit] << (TIMESTAMP_BITS - 1)
