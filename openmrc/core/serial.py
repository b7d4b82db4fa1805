"""Serial number arithmetic on rings of a power of two (RFC 1982).

The engine counts packets and messages in integers that never wrap; packets carry the low bits. `extend` restores the
full number.
"""

from openmrc.core.jit import kernel

PSN_BITS = 24
MSN_BITS = 16
RCVD_BYTES_BITS = 24
TIMESTAMP_BITS = 16


@kernel
def distance(a: int, b: int, bits: int) -> int:
    """Return a - b on a ring of 2**bits, in [-2**(bits-1), 2**(bits-1))."""
    half = 1 << (bits - 1)
    return ((a - b + half) & ((1 << bits) - 1)) - half


@kernel
def extend(low: int, near: int, bits: int) -> int:
    """Return the number closest to `near` whose low `bits` are `low`."""
    return near + distance(low, near, bits)
