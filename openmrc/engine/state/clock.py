"""16-bit timestamps of TSETH, CC_STATE, NETH, PETH and ERTH (MRC Table 6-6): conversion from and to picoseconds."""

from openmrc.core.jit import kernel
from openmrc.core.serial import TIMESTAMP_BITS
from openmrc.units import PS_PER_S

_MASK = (1 << TIMESTAMP_BITS) - 1
_TICK, _LONG_TICK = 128_000, 1_000_000  # ps: tsr 0 counts 128 ns, tsr 1 counts 1 us
WRAPS = (1 << 14) * PS_PER_S  # ps, a multiple of both wraps: a clock set back by it gives the same timestamps


@kernel
def tick(unit: int) -> int:
    """Return the unit of timestamps (ps)."""
    return _LONG_TICK if unit == 1 else _TICK


@kernel
def stamp(now: int, unit: int) -> int:
    """Return `now` (ps) as a 16-bit timestamp in the given unit (tsr)."""
    return (now // tick(unit)) & _MASK


@kernel
def elapsed(now: int, tx_timestamp: int, unit: int) -> int:
    """Return the time (ps) since `tx_timestamp`; correct below one wrap of the timestamp."""
    length = tick(unit)
    return ((now // length - tx_timestamp) & _MASK) * length + now % length


@kernel
def is_unambiguous(age: int, unit: int) -> bool:
    """Return whether the timestamp of a packet sent `age` ps ago is unambiguous: less than half a wrap."""
    return age < tick(unit) << (TIMESTAMP_BITS - 1)
