"""Generation of entropy values as by a NIC in GENERATED mode: seeded, distinct, within the bounds of the fields.

The EVs within the bounds are numbered by mixed radix; numbers are drawn without replacement, so the EVs are distinct
and the time is bounded even if all of them are requested.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from openmrc.core import rng
from openmrc.core.jit import kernel
from openmrc.ctl.profiles.ev_format import EvExpansion
from openmrc.errors import TooBigError


def generate(expansion: EvExpansion, count: int, seed: int) -> list[bytes]:
    """Return `count` distinct EVs, determined by the seed; a larger count extends a smaller one."""
    available = expansion.choices
    if count > available:
        raise TooBigError(f"count: {count} EVs; the fields' bounds allow {available} different ones", available)
    return [_numbered(expansion, number) for number in _drawn(available, count, seed)]


@kernel
def in_turn(order: NDArray[np.int64], lengths: NDArray[np.int64], seed: int) -> None:
    """Order the EVs of a device, of which each port has some: those of each port in random order, and ports in turn.

    The first `lengths[port]` words of a row of `order` become ranks: of each EV of a port its place among all.
    """
    state = rng.seeded(seed, 0)
    for port in range(len(lengths)):
        for position in range(lengths[port]):
            order[port, position] = position
        for position in range(lengths[port] - 1, 0, -1):
            state = rng.following(state)
            other = rng.below(state, position + 1)
            moved = order[port, position]
            order[port, position] = order[port, other]
            order[port, other] = moved
    for port in range(len(lengths)):
        for position in range(lengths[port]):
            order[port, position] = _rank(lengths, port, order[port, position])


@kernel
def _rank(lengths: NDArray[np.int64], port: int, turn: int) -> int:
    """Return how many EVs come before that of a port in its turn."""
    before = 0
    for other in range(len(lengths)):
        before += min(lengths[other], turn + 1 if other < port else turn)
    return before


def _numbered(expansion: EvExpansion, number: int) -> bytes:
    values = []
    for field in reversed(expansion.fields):
        least, most = field.bounds
        number, offset = divmod(number, most - least + 1)
        values.append(least + offset)
    return expansion.packed(values[::-1])


def _drawn(limit: int, count: int, seed: int) -> Iterator[int]:
    """Yield `count` different numbers below `limit`: a Fisher-Yates shuffle that stores only moved entries."""
    moved: dict[int, int] = {}
    state = rng.seeded(seed, 0)
    for position in range(count):
        state, offset = _below(state, limit - position)
        other = position + offset
        yield moved.get(other, other)
        moved[other] = moved.get(position, position)


def _below(state: int, limit: int) -> tuple[int, int]:
    """Return the next state of the generator and a number in [0, limit), from 32 more bits than `limit` has."""
    bits, number = 0, 0
    while bits < limit.bit_length() + 32:
        state = rng.following(state)
        number = number << 32 | state
        bits += 32
    return state, number * limit >> bits
