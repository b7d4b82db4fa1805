"""What formats, fields and EVs may be, and how an EV becomes the bits of a packet: kernels for Python and C.

Integers are as wide as their caller's: Python has all 256 bits of an EV in one, compiled code the leading ones that its
format uses. `fields` and `widths` are therefore indexed, and nothing else: lists will do as well as arrays.
"""

from enum import IntEnum
from typing import Any

from openmrc.core.jit import kernel
from openmrc.ctl.profiles.refusals import ProfileRefusal, verdict

MAX_FIELD_BITS = 32  # values and masks of a field are 32-bit
MAX_FORMAT_FIELD_BITS = 255  # the API keeps a format's width in 8 bits


class FieldColumn(IntEnum):
    WIDTH = 0
    INIT = 1
    MIN = 2
    MAX = 3
    MASK = 4


@kernel
def widths_verdict(widths: Any, cap: int) -> int:
    """Return why a format of these widths (bits) is refused, `cap` bits being what its mode carries; 0: none."""
    if cap == 0:
        return verdict(ProfileRefusal.FORMAT_MODE, 0)
    if len(widths) == 0:
        return verdict(ProfileRefusal.NO_WIDTHS, 0)
    total = 0
    for index in range(len(widths)):
        if not 1 <= widths[index] <= MAX_FORMAT_FIELD_BITS:
            return verdict(ProfileRefusal.WIDTH, index)
        total += widths[index]
    return verdict(ProfileRefusal.TOO_WIDE, total) if total > cap else 0


@kernel
def fields_verdict(fields: Any, widths: Any) -> int:
    """Return why these fields do not fit a format of these widths; 0: they do."""
    if len(fields) == 0:
        return verdict(ProfileRefusal.NO_FIELDS, 0)
    if len(fields) > len(widths):
        return verdict(ProfileRefusal.TOO_MANY_FIELDS, 0)
    for index in range(len(fields)):
        found = _field_refusal(fields[index])
        if found != ProfileRefusal.NONE:
            return verdict(found, index)
    total, room = 0, 0
    for index in range(len(fields)):
        total += fields[index][FieldColumn.WIDTH]
    for index in range(len(widths)):
        room += widths[index]
    if total > room:
        return verdict(ProfileRefusal.FIELDS_TOO_WIDE, total)
    for index in range(len(fields)):
        if fields[index][FieldColumn.WIDTH] > widths[index]:  # its top bits would be lost silently
            return verdict(ProfileRefusal.FIELD_TOO_WIDE, index)
    return 0


@kernel
def _field_refusal(field: Any) -> int:
    width = field[FieldColumn.WIDTH]
    if not 1 <= width <= MAX_FIELD_BITS:
        return ProfileRefusal.FIELD_WIDTH.value
    if not _fits(field[FieldColumn.INIT], width):
        return ProfileRefusal.FIELD_INIT.value
    if not _fits(field[FieldColumn.MASK], width):
        return ProfileRefusal.FIELD_MASK.value
    bits = bits_of(field)
    if not _fits(field[FieldColumn.MAX], bits):
        return ProfileRefusal.FIELD_MAX.value
    if not _fits(field[FieldColumn.MIN], bits):
        return ProfileRefusal.FIELD_MIN.value
    return (
        ProfileRefusal.FIELD_BOUNDS.value
        if field[FieldColumn.MIN] > field[FieldColumn.MAX]
        else ProfileRefusal.NONE.value
    )


@kernel
def _fits(value: int, bits: int) -> bool:
    return value >= 0 and value >> bits == 0


@kernel
def bits_of(field: Any) -> int:
    """Return how many bits of an EV a field takes."""
    mask, count = field[FieldColumn.MASK], 0
    while mask != 0:
        mask &= mask - 1
        count += 1
    return count


@kernel
def least_of(field: Any) -> int:
    """Return the least number that may be generated for a field."""
    return int(field[FieldColumn.MIN])


@kernel
def most_of(field: Any) -> int:
    """Return the greatest number that may be generated for a field; two bounds of zero are none."""
    if field[FieldColumn.MIN] == 0 and field[FieldColumn.MAX] == 0:
        return (1 << bits_of(field)) - 1
    return int(field[FieldColumn.MAX])


@kernel
def holding(field: Any, number: int) -> int:
    """Return the value of a field with `number`, of as many bits as its mask, spread over the mask, top bit first."""
    value = int(field[FieldColumn.INIT] & ~field[FieldColumn.MASK])
    remaining, left = field[FieldColumn.MASK], number
    while remaining != 0:  # from the lowest bit of both
        lowest = remaining & -remaining
        if left & 1 == 1:
            value |= lowest
        left >>= 1
        remaining ^= lowest
    return value


@kernel
def number_in(field: Any, value: int) -> int:
    """Return the number whose bits stand under the mask of a value; the inverse of `holding`."""
    number, mask = 0, field[FieldColumn.MASK]
    for bit in range(MAX_FIELD_BITS - 1, -1, -1):
        if mask >> bit & 1 == 1:
            number = number << 1 | value >> bit & 1
    return number


@kernel
def bits_used(fields: Any) -> int:
    """Return how many leading bits of an EV the fields take."""
    used = 0
    for index in range(len(fields)):
        used += bits_of(fields[index])
    return used


@kernel
def ev_verdict(fields: Any, ev: int, bits: int) -> int:
    """Return why an EV of `bits` bits is refused: one is set that no field takes; 0: none is."""
    left = bits - bits_used(fields)
    unused = ev & ((1 << left) - 1) if left > 0 else 0
    if unused == 0:
        return 0
    first = bits
    while unused != 0:
        unused >>= 1
        first -= 1
    return verdict(ProfileRefusal.UNUSED_BIT, first)


@kernel
def expanded(fields: Any, widths: Any, ev: int, bits: int) -> int:
    """Return what a packet carries for an EV: `bits` bits, from the left; narrow fields have zeros on their left."""
    packed, used, left = 0, 0, bits
    for index in range(len(fields)):
        field = fields[index]
        left -= bits_of(field)
        packed = packed << widths[index] | holding(field, ev >> left & ((1 << bits_of(field)) - 1))
        used += widths[index]
    return packed << bits - used


@kernel
def contracted(fields: Any, widths: Any, carried: int, bits: int) -> int:
    """Return the EV within the bounds of the fields that expands to these bits; -1: there is none."""
    ev, used, left = 0, 0, bits
    for index in range(len(fields)):
        field = fields[index]
        left -= widths[index]
        number = number_in(field, carried >> left & ((1 << widths[index]) - 1))
        if not least_of(field) <= number <= most_of(field):
            return -1
        ev = ev << bits_of(field) | number
        used += bits_of(field)
    ev <<= bits - used
    return ev if expanded(fields, widths, ev, bits) == carried else -1
