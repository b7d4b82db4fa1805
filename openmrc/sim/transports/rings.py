"""Rings of senders with packets to send, as linked lists; a sender is in at most one ring.

A NIC has a ring for the senders of each port, so that those of a busy or paused port cost no time.
"""

from __future__ import annotations

from openmrc.core.jit import kernel
from openmrc.core.rows import Int, Int32, Table, column, table

NONE = -1


class PacketRing:
    """One ring."""

    tail: Int  # last sender, or NONE


class SenderLinks:
    """A sender's links."""

    next: Int32
    listed: Int32  # 1: in a ring


def build(rings: int, senders: int) -> tuple[Table[PacketRing], Table[SenderLinks]]:
    """Return empty rings."""
    made = table(PacketRing, rings)
    column(made, "tail")[:] = NONE
    return made, table(SenderLinks, senders)


@kernel
def append(rings: Table[PacketRing], links: Table[SenderLinks], ring: int, sender: int) -> None:
    """Append a sender to a ring, unless it is in one."""
    link = links[sender]
    if link.listed == 1:
        return
    link.listed = 1
    tail = rings[ring].tail
    if tail == NONE:
        link.next = sender
    else:
        link.next = links[tail].next
        links[tail].next = sender
    rings[ring].tail = sender


@kernel
def front(rings: Table[PacketRing], links: Table[SenderLinks], ring: int) -> int:
    """Return the first sender, or NONE."""
    tail = rings[ring].tail
    return NONE if tail == NONE else int(links[tail].next)


@kernel
def remove_front(rings: Table[PacketRing], links: Table[SenderLinks], ring: int) -> None:
    """Remove the first sender from its ring."""
    tail = rings[ring].tail
    gone = links[tail].next
    links[gone].listed = 0
    if gone == tail:
        rings[ring].tail = NONE
    else:
        links[tail].next = links[gone].next
