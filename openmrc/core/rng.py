"""Random number generator with its state in a row: the same numbers compiled, interpreted, and with any thread count.

32-bit xorshift (Marsaglia, 2003) in signed 64-bit integers. Not for secrets.
"""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from openmrc.core.jit import kernel

Numbers = TypeVar("Numbers", int, NDArray[np.int64])  # of one generator, or of many

_MASK = (1 << 32) - 1
_NOT_ZERO = 0x9E3779B9  # instead of 0, which xorshift never leaves


@kernel
def seeded(seed: int, stream: Numbers) -> Numbers:
    """Return the initial state of a generator, or of one for every stream; streams of one seed are independent."""
    state = ((seed & _MASK) * 1664525 + (stream & _MASK) * 22695477 + 1013904223) & _MASK
    for _ in range(4):
        state = following(state + (state == 0) * _NOT_ZERO)
    return state


@kernel
def following(state: Numbers) -> Numbers:
    """Return the state after `state`, itself the random number, in [1, 2**32)."""
    state = state ^ ((state << 13) & _MASK)
    state = state ^ (state >> 17)
    return state ^ ((state << 5) & _MASK)


@kernel
def below(state: int, limit: int) -> int:
    """Map a new `state` to a number in [0, limit); limit <= 2**31."""
    return (state * limit) >> 32
