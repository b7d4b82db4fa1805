"""Making entropy values as a NIC does in GENERATED mode: seeded, distinct, within the fields' bounds.

Every EV that the bounds allow has a number, by mixed radix; drawing numbers without replacement
makes the EVs distinct however few there are, and never loops.
"""

from __future__ import annotations

from collections.abc import Iterator

from openmrc.core import rng
from openmrc.errors import TooBigError
from openmrc.profiles.ev_format import EvExpansion


def generate(expansion: EvExpansion, count: int, seed: int) -> list[bytes]:
    """Return `count` distinct EVs; the same seed gives the same ones, a longer run begins like a shorter one."""
    available = expansion.choices
    if count > available:
        raise TooBigError(f"count: {count} EVs; the fields' bounds allow {available} different ones", available)
    return [_numbered(expansion, number) for number in _drawn(available, count, seed)]


def _numbered(expansion: EvExpansion, number: int) -> bytes:
    values = []
    for field in reversed(expansion.fields):
        least, most = field.bounds
        number, offset = divmod(number, most - least + 1)
        values.append(least + offset)
    return expansion.packed(values[::-1])


def _drawn(limit: int, count: int, seed: int) -> Iterator[int]:
    """Yield `count` different numbers below `limit`: a Fisher-Yates shuffle that keeps only what it moved."""
    moved: dict[int, int] = {}
    state = rng.seeded(seed, 0)
    for position in range(count):
        state, offset = _below(state, limit - position)
        other = position + offset
        yield moved.get(other, other)
        moved[other] = moved.get(position, position)


def _below(state: int, limit: int) -> tuple[int, int]:
    """Return the generator's next state and a number in [0, limit), of any size, with 32 bits to spare."""
    bits, number = 0, 0
    while bits < limit.bit_length() + 32:
        state = rng.following(state)
        number = number << 32 | state
        bits += 32
    return state, number * limit >> bits
