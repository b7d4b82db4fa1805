"""Sends and receives. Small data goes ahead with the offer of its send; large data is written where its receive says.

Large data is therefore never buffered at the receiver. Of small data a rank keeps at most AHEAD bytes from each other
rank: a sender counts what went ahead and what the receiver reports as received, and offers what exceeds that without
its data, which the receive then asks for. Sends and receives between two ranks match by tag, in the order of the calls.
"""

import collections
import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from openmrc.train.buffers import Blocks, Memory
from openmrc.train.errors import CollectiveMismatchError
from openmrc.train.execution.matching import KeyedQueues
from openmrc.train.execution.work import Work
from openmrc.train.links.frames import HEADER, INLINE, ControlFrame, FrameKind
from openmrc.train.links.mailbox import RankLink
from openmrc.verbs import SendWr

P2P_WR = 1 << 40  # offset of a send's number in `wr_id`
AHEAD = 1 << 20  # bytes, with headers, that one rank sends another before it hears that receives have taken them
_MAX_UNMATCHED = 65_536  # limit of frames of one rank without a matching call
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
    is_offered: bool = False  # a receive: the send that it matches is known

    @property
    def length(self) -> int:
        """Size in bytes."""
        return self.blocks.length(0)


ANY_SOURCE = -1
Lane = tuple[int, int, bool]  # the other rank, the tag, whether more than a frame may carry


class SendOffer(NamedTuple):
    """A send of another rank without a matching receive here."""

    rank: int
    tag: int
    length: int  # bytes
    data: bytes | memoryview | None  # None: it did not come ahead
    order: int = 0  # of its arrival among those of all ranks


@dataclass
class Ahead:
    """Data sent ahead of receives between this rank and another; counters that only grow, in bytes with headers."""

    sent: int = 0
    confirmed: int = 0  # of it, what the other rank's receives have taken
    kept: int = 0  # from the other rank, waiting for receives here; goes up and down
    unmatched: int = 0  # frames of the other rank that wait for a call here; goes up and down
    taken: int = 0
    reported: int = 0  # of it, what the other rank was told


class PointToPoint:
    """The sends and receives of one group."""

    def __init__(self, links: Mapping[int, RankLink], memory: Memory, rank: int) -> None:
        """Start without transfers; `links` are by rank."""
        self._links = links
        self._memory = memory
        self._rank = rank
        self._numbers = itertools.count(1)
        self._arrivals = itertools.count(1)
        # A large receive asks before it has heard of its send: it matches large sends only, so these queue apart.
        self._sends: KeyedQueues[Lane, Transfer] = KeyedQueues()  # without a matching receive
        self._wanted: KeyedQueues[Lane, ControlFrame] = KeyedQueues()  # without a matching send
        self._receives: dict[int, Transfer] = {}  # announced to the sender, by number
        self._expected: KeyedQueues[tuple[int, int], Transfer] = KeyedQueues()  # by (rank, tag), without an offer
        self._any_source: KeyedQueues[int, Transfer] = KeyedQueues()  # receives from any rank, by tag, without an offer
        self._offers: KeyedQueues[tuple[int, int], SendOffer] = KeyedQueues()  # by (rank, tag), without a receive
        self._ahead = {rank: Ahead() for rank in links}
        self._ready: collections.deque[tuple[RankLink, Transfer, ControlFrame, ControlFrame]] = (
            collections.deque()
        )  # matched, not posted
        self._writing: dict[int, Transfer] = {}  # sends that the network still reads, by number

    @property
    def is_idle(self) -> bool:
        """Whether no transfer is in progress."""
        return not (self._receives or self._expected or self._any_source or self._writing or self._sends)

    def unfinished(self) -> list[Transfer]:
        receives = self._receives | {each.number: each for each in self._expected}
        return [*receives.values(), *self._any_source, *self._writing.values(), *self._sends]

    def send(self, transfer: Transfer) -> None:
        """Start a send, which is done at once if its data may go ahead."""
        transfer.number = next(self._numbers)
        link, length = self._links[transfer.peer], transfer.length
        offer = ControlFrame(FrameKind.OFFERED, tag=transfer.tag, elements=length, address=self._report(link.rank))
        if self._may_go_ahead(link, length):
            self._ahead[link.rank].sent += HEADER + length
            link.send(offer._replace(is_inline=1, length=length), transfer.blocks.view(0, 0, length).data)
            self._end(transfer)
            return
        link.send(offer)
        lane = _lane(transfer.peer, transfer.tag, length)
        wanted = self._wanted.take(lane)
        if wanted is None:
            self._sends.add(lane, transfer)
        else:
            self._ahead[link.rank].unmatched -= 1
            self._deliver(link, transfer, wanted)

    def receive(self, transfer: Transfer) -> None:
        transfer.number = next(self._numbers)
        offer = self._kept_for(transfer)
        if offer is not None:
            self._match(transfer, offer)
        elif transfer.peer == ANY_SOURCE:
            self._any_source.add(transfer.tag, transfer)
        else:
            self._expected.add((transfer.peer, transfer.tag), transfer)
            if transfer.length > INLINE:
                self._announce(transfer)

    def on_frame(self, link: RankLink, frame: ControlFrame, data: memoryview) -> None:
        """Process a WANTED, OFFERED, DELIVERED or TAKEN frame."""
        if frame.kind == FrameKind.WANTED:
            self._on_wanted(link, frame)
        elif frame.kind == FrameKind.OFFERED:
            self._ahead[link.rank].confirmed = frame.address
            ahead = (len(data), data) if frame.is_inline else (frame.elements, None)
            self._on_offered(link, SendOffer(link.rank, frame.tag, *ahead))
        elif frame.kind == FrameKind.TAKEN:
            self._ahead[link.rank].confirmed = frame.address
        else:
            self._on_delivered(link, frame, data)

    def on_written(self, number: int) -> None:
        """Complete a send: the network no longer reads its memory."""
        transfer = self._writing.pop(number, None)
        if transfer is not None:
            self._end(transfer)

    # Small data that goes ahead

    def _may_go_ahead(self, link: RankLink, length: int) -> bool:
        ahead = self._ahead[link.rank]
        return length <= INLINE and ahead.sent - ahead.confirmed + HEADER + length <= AHEAD and link.can_transfer

    def _report(self, rank: int) -> int:
        """Return how much data sent ahead by another rank was received, to report it to that rank."""
        ahead = self._ahead[rank]
        ahead.reported = ahead.taken
        return ahead.taken

    def _keep(self, offer: SendOffer) -> None:
        """Keep an offer until a receive matches it."""
        data, ahead = offer.data, self._ahead[offer.rank]
        if data is not None:
            ahead.kept += HEADER + offer.length
            if ahead.kept > AHEAD:
                raise CollectiveMismatchError(f"rank {offer.rank} sent {ahead.kept:,} bytes ahead of receives")
            data = bytes(data)
        self._offers.add((offer.rank, offer.tag), offer._replace(data=data, order=next(self._arrivals)))
        self._count_unmatched(offer.rank)

    def _kept_for(self, transfer: Transfer) -> SendOffer | None:
        """Return the first kept offer that matches a receive."""
        rank = transfer.peer if transfer.peer != ANY_SOURCE else self._first_to_offer(transfer.tag)
        offer = self._offers.take((rank, transfer.tag))
        if offer is None:
            return None
        ahead = self._ahead[rank]
        ahead.unmatched -= 1
        if offer.data is not None:
            ahead.kept -= HEADER + offer.length
        return offer

    def _first_to_offer(self, tag: int) -> int:
        """Return the rank whose kept offer with this tag came first; ANY_SOURCE if there is none."""
        first = (self._offers.first((rank, tag)) for rank in self._links)
        found = min((offer for offer in first if offer is not None), key=lambda offer: offer.order, default=None)
        return ANY_SOURCE if found is None else found.rank

    def _take(self, transfer: Transfer, offer: SendOffer, data: bytes | memoryview) -> None:
        """Complete a receive whose data came ahead."""
        ahead = self._ahead[offer.rank]
        ahead.taken += HEADER + offer.length
        if ahead.taken - ahead.reported >= AHEAD // 2:
            self._links[offer.rank].send(ControlFrame(FrameKind.TAKEN, address=self._report(offer.rank)))
        self._store(transfer, data)

    # Matching

    def _match(self, transfer: Transfer, offer: SendOffer) -> None:
        """Complete a receive, or ask for its data."""
        transfer.peer = transfer.work.source = offer.rank
        transfer.is_offered = True
        if offer.length != transfer.length:
            self._receives[transfer.number] = transfer  # so that it ends with the error
            raise CollectiveMismatchError(self._length_mismatch(offer.rank, offer.length, self._rank, transfer))
        if offer.data is not None:
            self._take(transfer, offer, offer.data)
        elif transfer.number not in self._receives:
            self._announce(transfer)

    def _announce(self, transfer: Transfer) -> None:
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
        lane = _lane(link.rank, frame.tag, frame.elements)
        transfer = self._sends.take(lane)
        if transfer is not None:
            self._deliver(link, transfer, frame)
            return
        self._wanted.add(lane, frame)
        self._count_unmatched(link.rank)

    def _on_offered(self, link: RankLink, offer: SendOffer) -> None:
        transfer = self._expected.take((link.rank, offer.tag)) or self._any_source.take(offer.tag)
        if transfer is None:
            self._keep(offer)
        else:
            self._match(transfer, offer)

    def _on_delivered(self, link: RankLink, frame: ControlFrame, data: memoryview) -> None:
        transfer = self._receives.get(frame.sequence)
        if transfer is None or transfer.peer != link.rank:
            raise CollectiveMismatchError(
                f"rank {link.rank} delivered receive {frame.sequence}, which rank {self._rank} did not post"
            )
        if not transfer.is_offered:
            raise CollectiveMismatchError(f"rank {link.rank} delivered receive {frame.sequence} but offered no send")
        if frame.elements != transfer.length:
            raise CollectiveMismatchError(self._length_mismatch(link.rank, frame.elements, self._rank, transfer))
        del self._receives[frame.sequence]
        self._store(transfer, data)

    def _store(self, transfer: Transfer, data: bytes | memoryview) -> None:
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

    def _count_unmatched(self, rank: int) -> None:
        ahead = self._ahead[rank]
        ahead.unmatched += 1
        if ahead.unmatched > _MAX_UNMATCHED:
            raise CollectiveMismatchError(
                f"rank {rank}: {ahead.unmatched} sends or receives without a matching call at rank {self._rank}"
            )

    def _length_mismatch(
        self, sender: int, sent: int, receiver: int, transfer: Transfer, wanted: int | None = None
    ) -> str:
        expected = transfer.length if wanted is None else wanted
        return f"tag {transfer.tag}: rank {sender} sends {sent:,} bytes, rank {receiver} expects {expected:,}"


def _lane(rank: int, tag: int, length: int) -> Lane:
    """Return the key of a send or of the receive that asks for it."""
    return rank, tag, length > INLINE
