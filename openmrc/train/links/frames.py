"""Frames: the control messages of a group, a fixed-size header with optional data, written into a mailbox slot.

Both ends run the same version, which the rendezvous checks.
"""

import struct
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from openmrc.collectives.choice import Collective
from openmrc.train.reduction import DType, Op

VERSION = 12
_HEADER = struct.Struct("<BBBBBBIIiQQQQ")
HEADER = 64  # bytes of a slot before the data
# Maximum bytes of a call that travel in a frame: copying them costs less than another exchange (torch_sweep).
INLINE = 64 << 10
TARGET = struct.Struct("<QI")  # address and r_key of a block, before the data of a call
DATA = INLINE + 64  # maximum bytes behind the header: the data of a call, and the target of a block before them
SLOT = HEADER + DATA


class FrameKind(IntEnum):
    COLLECTIVE = 1  # the header of a collective, with its data if small
    WANTED = 2  # a receive is posted; gives its address
    OFFERED = 3  # a send is posted; gives its tag and size, with its data if that goes ahead, and what TAKEN gives
    DELIVERED = 4  # a send is complete: its data was written, or is included
    ABORT = 5  # the group failed; the data gives the reason
    STATE = 6  # the data gives this rank's progress, for error messages of other ranks
    BYE = 7  # this rank closes the group
    REFUSED = 8  # this rank refused a collective as an invalid call; the data gives the reason
    TAKEN = 9  # gives how many bytes that went ahead of receives were taken by them


class ControlFrame(NamedTuple):
    """The fields of a header."""

    kind: int
    collective: int = 0
    op: int = 0
    dtype: int = 0
    algorithm: int = 0
    is_inline: int = 0
    tag: int = 0
    length: int = 0  # bytes of data after the header
    root: int = 0
    sequence: int = 0  # of the collective, or of the receive
    elements: int = 0  # of collectives; bytes of sends and receives
    address: int = 0  # remote address to write to
    key: int = 0  # its r_key

    def pack_into(self, slot: memoryview) -> None:
        """Write the header to the start of a slot."""
        _HEADER.pack_into(slot, 0, *self)

    def describe(self) -> str:
        """Describe the collective, as in `all_reduce SUM of 1,024 float32`."""
        return call_text(self.collective, self.op, self.dtype, self.elements, self.root)


def unpack(slot: memoryview) -> ControlFrame:
    return ControlFrame._make(_HEADER.unpack_from(slot))


ROOTED = frozenset({Collective.REDUCE, Collective.BROADCAST, Collective.GATHER, Collective.SCATTER})
REDUCING = frozenset({Collective.ALL_REDUCE, Collective.REDUCE, Collective.REDUCE_SCATTER})


@lru_cache(maxsize=1024)
def call_text(collective: int, op: int, dtype: int, count: int, root: int) -> str:
    """Describe a call; invalid fields are shown as numbers."""
    try:
        kind = Collective(collective)
        text = kind.name.lower()
        if kind == Collective.BARRIER:
            return text
        if kind in REDUCING:
            text += f" {Op(op).name}"
        text += f" of {count:,} {DType(dtype).name.lower()}"
        return f"{text}, root {root}" if kind in ROOTED else text
    except ValueError:
        return f"call {collective} (op {op}, dtype {dtype}, count {count})"
