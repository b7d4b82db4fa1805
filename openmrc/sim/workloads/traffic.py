"""Output of a workload: messages as columns, and their releases.

A message is one write of `size` bytes from one NIC to another. It is posted at its `start`, or when `waits` releases
have arrived, whichever is later. When message m completes it sends its releases: entries `first_release[m]` to
`first_release[m + 1]` of the three release columns.

A release takes effect `release_delay` after its cause. If the released message starts on another NIC than the one of
the completion, it takes at least the shortest latency of a link that does not end at a NIC.

A message of size 0 from a NIC to itself sends nothing and completes when it is posted. It joins many
releases (a barrier), or represents a computation, whose length is the delay of its releases.

Time is ps, size bytes.
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from openmrc.core.arrays import Ints
from openmrc.units import NEVER


class CompletionSide(IntEnum):
    SENDER = 0  # the last byte is acknowledged
    RECEIVER = 1  # the last byte, and all before it on this connection, are in memory
    FAILED = 2  # at the sender: abandoned; releases nothing


@dataclass(frozen=True)
class Traffic:
    """Messages, and the graph of releases between them in compressed rows."""

    source: Ints  # NIC
    destination: Ints  # NIC
    size: Ints  # bytes
    start: Ints  # ps, not before
    waits: Ints  # releases to wait for
    connection: Ints  # messages between the same two NICs share a connection when this is equal
    single_path: Ints  # 1: all packets on one path, as with TCP or plain RoCE; equal for a whole connection
    second_class: Ints  # 1: in the second class of data; equal for a whole connection
    first_release: Ints  # messages + 1
    released: Ints  # message
    release_delay: Ints  # ps
    release_side: Ints  # Side

    @property
    def messages(self) -> int:
        return len(self.source)

    @property
    def causes(self) -> Ints:
        """Return the message of each release."""
        return np.repeat(np.arange(self.messages), np.diff(self.first_release))

    @property
    def watched(self) -> NDArray[np.bool_]:
        """Return which messages release others by their arrival."""
        found = np.zeros(self.messages, np.bool_)
        found[self.causes[self.release_side == CompletionSide.RECEIVER]] = True
        return found

    def computed(self) -> Ints:
        """Return how long each computation takes (ps); NEVER: it releases nothing.

        The least delay of its releases: those of messages add what the host takes before them.
        """
        length = np.full(self.messages, NEVER)
        np.minimum.at(length, self.causes, self.release_delay)
        return length


def traffic(
    source: ArrayLike,
    destination: ArrayLike,
    size: ArrayLike,
    start: ArrayLike = 0,
    connection: ArrayLike = 0,
    releases: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike] | None = None,
    waits: ArrayLike | None = None,
    single_path: ArrayLike = 0,
    second_class: ArrayLike = 0,
) -> Traffic:
    """Return traffic; scalars apply to all messages. `WorkloadGraph` refuses messages that cannot be.

    `releases` is (cause, released, delay ps, Side) in any order; `waits` defaults to their number per message.
    """
    sources = np.atleast_1d(np.asarray(source, dtype=np.int64))
    count = len(sources)
    cause, released, delay, side = _releases(releases)
    order = np.argsort(cause, kind="stable")
    first = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(cause, minlength=count), out=first[1:])
    in_degree = np.bincount(released, minlength=count)
    return Traffic(
        source=sources,
        destination=_column(destination, count),
        size=_column(size, count),
        start=_column(start, count),
        waits=_column(in_degree if waits is None else waits, count),
        connection=_column(connection, count),
        single_path=_column(single_path, count),
        second_class=_column(second_class, count),
        first_release=first,
        released=released[order],
        release_delay=delay[order],
        release_side=side[order],
    )


def _column(values: ArrayLike, count: int) -> Ints:
    """Return a column; one that is the same in all rows takes no memory, and cannot be written."""
    column = np.broadcast_to(np.asarray(values, dtype=np.int64), (count,))
    if count and (column == column[0]).all():
        return np.broadcast_to(column[0].copy(), (count,))
    return column.copy()


def _releases(releases: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike] | None) -> tuple[Ints, Ints, Ints, Ints]:
    if releases is None:
        nothing = np.zeros(0, dtype=np.int64)
        return nothing, nothing, nothing, nothing
    cause = np.atleast_1d(np.asarray(releases[0], dtype=np.int64))
    return cause, *(_column(part, len(cause)) for part in releases[1:])  # type: ignore[return-value]
