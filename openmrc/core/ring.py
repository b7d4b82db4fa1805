"""Rings: circular lists that are linked through the rows of a table, so that every step takes constant time.

A ring is a row that knows the last of its members (`ready_tail`, NONE if it is empty) and how many there are
(`ready_count`). A member is a row that knows the one after it (`next_ready`) and whether it is `listed`: it is in one
ring at most. The one after the last is the front.
"""

from typing import Protocol

from openmrc.core.jit import kernel
from openmrc.core.rows import Table

NONE = -1


class ReadyRing(Protocol):
    """A row that holds a ring."""

    ready_tail: int
    ready_count: int


class ReadyMember(Protocol):
    """A row that may be in a ring."""

    next_ready: int
    listed: bool


@kernel
def append(ring: ReadyRing, members: Table[ReadyMember], index: int) -> None:
    """Put a member that is in no ring behind the last."""
    member = members[index]
    if ring.ready_tail == NONE:
        member.next_ready = index
    else:
        last = members[ring.ready_tail]
        member.next_ready = last.next_ready
        last.next_ready = index
    ring.ready_tail = index
    ring.ready_count += 1
    member.listed = True


@kernel
def front(ring: ReadyRing, members: Table[ReadyMember]) -> int:
    """Return the member whose turn it is, or NONE."""
    tail = ring.ready_tail
    if tail == NONE:
        return NONE
    return members[tail].next_ready


@kernel
def turn(ring: ReadyRing, members: Table[ReadyMember]) -> None:
    """Move the front of a ring that is not empty to the back."""
    ring.ready_tail = members[ring.ready_tail].next_ready


@kernel
def drop_front(ring: ReadyRing, members: Table[ReadyMember]) -> int:
    """Take the front off a ring that is not empty, and return it."""
    last = members[ring.ready_tail]
    gone = last.next_ready
    if gone == ring.ready_tail:
        ring.ready_tail = NONE
    else:
        last.next_ready = members[gone].next_ready
    members[gone].listed = False
    members[gone].next_ready = NONE
    ring.ready_count -= 1
    return gone
