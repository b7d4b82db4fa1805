"""Why a change of a profile is refused, as one number for Python, which words it, and for C, which has the errno."""

import errno
from enum import IntEnum

from openmrc.core.jit import kernel

CODE_BITS = 8


class ProfileRefusal(IntEnum):
    """What is wrong; the detail of each in the comment."""

    NONE = 0
    STEP = 1  # no such step between states
    BUSY = 2  # it is in use
    NOT_ONLINE = 3  # attributes that may not change while ONLINE
    MISSING = 4  # attributes that a step needs, and above 32 bits the state
    # Formats
    FORMAT_MODE = 5
    NO_WIDTHS = 6
    WIDTH = 7  # index of the width
    TOO_WIDE = 8  # bits in all
    # Fields
    NO_FIELDS = 9
    TOO_MANY_FIELDS = 10  # more than the format has
    FIELD_WIDTH = 11  # index of the field, here and below
    FIELD_INIT = 12
    FIELD_MASK = 13
    FIELD_MAX = 14
    FIELD_MIN = 15
    FIELD_BOUNDS = 16
    FIELDS_TOO_WIDE = 17  # bits of all fields
    FIELD_TOO_WIDE = 18
    # EV profiles
    EXCLUSIVE = 19  # EV_OP and EV_FIELDS_OP in one call
    EV_MODE = 20
    COUNT_LOW = 21
    COUNT_HIGH = 22  # EVs
    MIN_ACTIVE = 23
    EVENT_MASK = 24
    MORE_FIELDS_THAN_DEVICE = 25
    FORMAT_STATE = 26
    NO_ARRAY = 27
    REPLACE_GENERATED = 28
    # Entries and EVs
    ENTRY_STATE = 30
    ENTRY_UNPOPULATED = 31
    ENTRY_NEW_EV = 32
    UNUSED_BIT = 33  # the first bit of the EV that is set and that no field takes


_TOO_BIG = (ProfileRefusal.TOO_WIDE, ProfileRefusal.COUNT_HIGH, ProfileRefusal.MORE_FIELDS_THAN_DEVICE)
ERRNO = {refusal: errno.E2BIG if refusal in _TOO_BIG else errno.EINVAL for refusal in ProfileRefusal} | {
    ProfileRefusal.NONE: 0,
    ProfileRefusal.BUSY: errno.EBUSY,
}


@kernel
def verdict(refusal: int, detail: int) -> int:
    """Return a refusal with its detail, 0 or above, in one number; 0: not refused."""
    return detail << CODE_BITS | refusal


def parts(found: int) -> tuple[ProfileRefusal, int]:
    """Return the refusal and the detail of a verdict."""
    return ProfileRefusal(found & (1 << CODE_BITS) - 1), found >> CODE_BITS
