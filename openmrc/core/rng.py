"""Random number generator with its state in a row: the same numbers compiled, interpreted, and with any thread count.

32-bit xorshift (Marsaglia, 2003) in signed 64-bit integers. Not for secrets.
"""

from openmrc.core.jit import kernel

_MASK = (1 << 32) - 1


@kernel
def seeded(seed: int, stream: int) -> int:
    """Return the initial state of a generator; streams of one seed are independent."""
    state = ((seed & _MASK) * 1664525 + (stream & _MASK) * 22695477 + 1013904223) & _MASK
    for _ in range(4):
        state = following(state if state != 0 else 0x9E3779B9)
    return state


@kernel
def following(state: int) -> int:
    """Return the state after `state`, itself the random number, in [1, 2**32)."""
    state ^= (state << 13) & _MASK
    state ^= state >> 17
    state ^= (state << 5) & _MASK
    return state


@kernel
def below(state: int, limit: int) -> int:
    """Map a new `state` to a number in [0, limit); limit <= 2**31."""
    return (state * limit) >> 32
