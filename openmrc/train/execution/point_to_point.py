"""Sends and receives: a receive announces its address to the sender, which then writes there.

Large data is therefore never buffered at the receiver. Sends and receives between two ranks match by tag, in the order
of the calls.
"""

from __future__ import annotations

import collections
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from openmrc.train.arrays.buffers import Blocks, Memory
from openmrc.train.errors import CollectiveMismatchError
from openmrc.train.execution.work import Work
from openmrc.train.links.frames import INLINE, ControlFrame, FrameKind
from openmrc.train.links.link import RankLink
from openmrc.verbs import SendWr

P2P_WR = 1 << 40  # offset of a send's number in `wr_id`
_MAX_UNMATCHED = 65_536  # limit of frames without a matching call
_LARGEST_WRITE = 1 << 30  # bytes; a message may have up to 2 GiB - 1


@dataclass
class Transfer:
    """A send or a receive in progress."""

    number: int
    peer: int  # rank; ANY_SOURCE: a receive accepts any sender
    tag: int
    blocks: Blocks  # one block
    work: Work
    at_end: Callable[[], None] | None = None
    kind: str = "send"
    begun_at: float = field(default_factory=time.monotonic)

    @property
    def length(self) -> int:
        """Size in bytes."""
        return self.blocks.length(0)


ANY_SOURCE = -1


class PointToPoint:
    """The sends and receives of one group."""

    def __init__(self, links: Mapping[int, RankLink], memory: Memory, rank: int) -> None:
        """Start without transfers; `links` are by rank."""
        self._links = links
        self._memory = memory
        self._rank = rank
        self._numbers = itertools.count(1)
        self._sends: dict[int, list[Transfer]] = {rank: [] for rank in links}  # by peer, without a matching receive
        self._wanted: dict[int, list[ControlFrame]] = {rank: [] for rank in links}  # by peer, without a matching send
        self._receives: dict[int, Transfer] = {}  # announced to the sender, by number
        self._any_source: list[Transfer] = []  # receives from any rank without a matching offer
        self._offered: list[tuple[int, int]] = []  # (rank, tag) of offers without a matching receive
        self._matched_offers: dict[tuple[int, int], int] = {}  # (rank, tag): offers to come for announced receives
        self._ready: collections.deque[tuple[RankLink, Transfer, ControlFrame, ControlFrame]] = (
            collections.deque()
        )  # matched, not posted
        self._writing: dict[int, Transfer] = {}  # sends that the network still reads, by number

    @property
    def is_idle(self) -> bool:
        """Whether no transfer is in progress."""
        return not (self._receives or self._any_source or self._writing or any(self._sends.values()))

    def unfinished(self) -> list[Transfer]:
        """Return all unfinished transfers."""
        waiting = [transfer for sends in self._sends.values() for transfer in sends]
        return [*self._receives.values(), *self._any_source, *self._writing.values(), *waiting]

    def send(self, transfer: Transfer) -> None:
        """Start a send."""
        transfer.number = next(self._numbers)
        link = self._links[transfer.peer]
        wanted = self._wanted[transfer.peer]
        link.send(ControlFrame(FrameKind.OFFERED, tag=transfer.tag))
        for index, frame in enumerate(wanted):
            if frame.tag == transfer.tag:
                self._deliver(link, transfer, wanted.pop(index))
                return
        self._sends[transfer.peer].append(transfer)

    def receive(self, transfer: Transfer) -> None:
        """Start a receive."""
        transfer.number = next(self._numbers)
        if transfer.peer == ANY_SOURCE:
            offer = next((offer for offer in self._offered if offer[1] == transfer.tag), None)
            if offer is None:
                self._any_source.append(transfer)
                return
            self._offered.remove(offer)
            transfer.peer = offer[0]
        elif (transfer.peer, transfer.tag) in self._offered:
            self._offered.remove((transfer.peer, transfer.tag))
        else:
            key = (transfer.peer, transfer.tag)
            self._matched_offers[key] = self._matched_offers.get(key, 0) + 1
        self._announce(transfer)

    def on_frame(self, link: RankLink, frame: ControlFrame, data: memoryview) -> None:
        """Process a WANTED, OFFERED or DELIVERED frame."""
        if frame.kind == FrameKind.WANTED:
            self._on_wanted(link, frame)
        elif frame.kind == FrameKind.OFFERED:
            self._on_offered(link, frame)
        else:
            self._on_delivered(link, frame, data)

    def on_written(self, number: int) -> None:
        """Complete a send: the network no longer reads its memory."""
        transfer = self._writing.pop(number, None)
        if transfer is not None:
            self._end(transfer)

    def _announce(self, transfer: Transfer) -> None:
        transfer.work.source = transfer.peer
        self._receives[transfer.number] = transfer
        address, key = (0, 0) if transfer.length <= INLINE else transfer.blocks.target(self._memory, 0)
        frame = ControlFrame(
            FrameKind.WANTED,
            tag=transfer.tag,
            sequence=transfer.number,
            elements=transfer.length,
            address=address,
            key=key,
        )
        self._links[transfer.peer].send(frame)

    def _on_wanted(self, link: RankLink, frame: ControlFrame) -> None:
        sends = self._sends[link.rank]
        for index, transfer in enumerate(sends):
            if transfer.tag == frame.tag:
                self._deliver(link, sends.pop(index), frame)
                return
        self._wanted[link.rank].append(frame)
        self._check_room(link, len(self._wanted[link.rank]))

    def _on_offered(self, link: RankLink, frame: ControlFrame) -> None:
        key = (link.rank, frame.tag)
        if self._matched_offers.get(key):
            self._matched_offers[key] -= 1
            if not self._matched_offers[key]:
                del self._matched_offers[key]
            return
        for index, transfer in enumerate(self._any_source):
            if transfer.tag == frame.tag:
                transfer.peer = link.rank
                self._announce(self._any_source.pop(index))
                return
        self._offered.append(key)
        self._check_room(link, len(self._offered))

    def _on_delivered(self, link: RankLink, frame: ControlFrame, data: memoryview) -> None:
        transfer = self._receives.get(frame.sequence)
        if transfer is None or transfer.peer != link.rank:
            raise CollectiveMismatchError(
                f"rank {link.rank} delivered receive {frame.sequence}, which rank {self._rank} did not post"
            )
        if frame.elements != transfer.length:
            raise CollectiveMismatchError(self._length_mismatch(link.rank, frame.elements, self._rank, transfer))
        del self._receives[frame.sequence]
        if len(data):
            transfer.blocks.view(0, 0, transfer.length).data[:] = data
        self._end(transfer)

    def _deliver(self, link: RankLink, transfer: Transfer, frame: ControlFrame) -> None:
        done = ControlFrame(FrameKind.DELIVERED, tag=frame.tag, sequence=frame.sequence, elements=transfer.length)
        if transfer.length != frame.elements:
            link.send(done)  # so that the receiver detects the mismatch too
            self._writing[transfer.number] = transfer
            raise CollectiveMismatchError(
                self._length_mismatch(self._rank, transfer.length, link.rank, transfer, frame.elements)
            )
        if transfer.length <= INLINE:
            data = transfer.blocks.view(0, 0, transfer.length).data
            link.send(done._replace(length=transfer.length), data)
            self._end(transfer)
            return
        self._writing[transfer.number] = transfer
        self._ready.append((link, transfer, frame, done))
        self.write()

    def write(self) -> None:
        """Post the writes of matched sends while send queues have room."""
        for _ in range(len(self._ready)):
            link, transfer, frame, done = self._ready.popleft()
            if link.can_write():
                link.qp.post_send(self._writes(transfer, frame))
                link.send(done)
            else:
                self._ready.append((link, transfer, frame, done))

    def _writes(self, transfer: Transfer, frame: ControlFrame) -> list[SendWr]:
        begins = range(0, transfer.length, _LARGEST_WRITE)
        return [
            SendWr(
                local=transfer.blocks.part(self._memory, 0, begin, min(begin + _LARGEST_WRITE, transfer.length)),
                remote_addr=frame.address + begin,
                r_key=frame.key,
                signaled=begin == begins[-1],
                wr_id=P2P_WR + transfer.number,
            )
            for begin in begins
        ]

    def _end(self, transfer: Transfer) -> None:
        transfer.blocks.release()
        if transfer.at_end is not None:
            transfer.at_end()
        transfer.work.finish()

    def _check_room(self, link: RankLink, unmatched: int) -> None:
        if unmatched > _MAX_UNMATCHED:
            raise CollectiveMismatchError(
                f"rank {link.rank}: {unmatched} sends or receives without a matching call at rank {self._rank}"
            )

    def _length_mismatch(
        self, sender: int, sent: int, receiver: int, transfer: Transfer, wanted: int | None = None
    ) -> str:
        expected = transfer.length if wanted is None else wanted
        return f"tag {transfer.tag}: rank {sender} sends {sent:,} bytes, rank {receiver} expects {expected:,}"
