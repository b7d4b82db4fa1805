"""16-bit timestamps of TSETH, CC_STATE, NETH, PETH and ERTH (MRC Table 6-6): conversion from and to picoseconds."""

from openmrc.core.jit import kernel
from openmrc.core.serial import TIMESTAMP_BITS

_TICK = (128_000, 1_000_000)  # ps: tsr 0 counts 128 ns, tsr 1 counts 1 us
_MASK = (1 << TIMESTAMP_BITS) - 1


@kernel
def stamp(now: int, unit: int) -> int:
    """Return `now` (ps) as a 16-bit timestamp in the given unit (tsr)."""
    return (now // _TICK[unit]) & _MASK


@kernel
def elapsed(now: int, tx_timestamp: int, unit: int) -> int:
    """Return the time (ps) since `tx_timestamp`; correct below one wrap of the timestamp."""
    return ((now // _TICK[unit] - tx_timestamp) & _MASK) * _TICK[unit] + now % _TICK[unit]


@kernel
def is_unambiguous(age: int, unit: int) -> bool:
    """Return whether the timestamp of a packet sent `age` ps ago is unambiguous: less than half a wrap."""
    return age < _TICK[unit] << (TIMESTAMP_BITS - 1)
