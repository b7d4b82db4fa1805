"""What the executor and the recorder use of a collective, whatever moves its data."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from openmrc.collectives.choice import Collective, CollectiveAlgorithm
from openmrc.train.errors import CollectiveMismatchError
from openmrc.train.execution.occupation import Occupation
from openmrc.train.execution.work import Work
from openmrc.train.links.frames import ControlFrame, FrameKind, call_text
from openmrc.train.links.mailbox import RankLink
from openmrc.train.reduction import DType, Op


@dataclass(frozen=True)
class Call:
    """The parameters of a collective that must be equal at all ranks."""

    collective: Collective
    algorithm: CollectiveAlgorithm
    op: Op
    dtype: DType
    count: int  # elements
    root: int
    is_inline: bool  # data travels in frames

    def frame(self, sequence: int, count: int, length: int) -> ControlFrame:
        """Return the frame header that announces the call; `count` in elements, `length` in bytes."""
        return ControlFrame(
            FrameKind.COLLECTIVE,
            self.collective,
            self.op,
            self.dtype,
            self.algorithm,
            int(self.is_inline),
            0,
            length,
            self.root,
            sequence,
            count,
        )

    def fits(self, frame: ControlFrame) -> bool:
        """Whether another rank's header describes the same call."""
        return (
            frame.collective == self.collective
            and frame.dtype == self.dtype
            and frame.op == self.op
            and frame.root == self.root
            and frame.algorithm == self.algorithm
            and frame.is_inline == self.is_inline
            and (frame.elements == self.count or self.collective == Collective.ALL_TO_ALL)
        )

    def describe(self) -> str:
        """Describe the call, for messages."""
        return call_text(self.collective, self.op, self.dtype, self.count, self.root)


class PastCall(NamedTuple):
    """A collective that this rank has called and finished, to be compared with what other ranks called."""

    sequence: int
    call: Call
    parts: Mapping[int, int]  # elements sent to each rank in an all-to-all; else empty

    def check_fits(self, rank: int, link: RankLink, frame: ControlFrame) -> None:
        """Raise CollectiveMismatchError if another rank's header describes a different call than that of `rank`."""
        if not self.call.fits(frame):
            raise CollectiveMismatchError(
                f"collective {self.sequence}: rank {link.rank} called {frame.describe()}, "
                f"rank {rank} called {self.call.describe()}"
            )
        sent = self.parts.get(link.rank)
        if sent is not None and frame.kind == FrameKind.COLLECTIVE and sent != frame.elements:
            raise CollectiveMismatchError(split_text(self.sequence, rank, sent, link.rank, frame.elements))


def split_text(sequence: int, sender: int, sent: int, receiver: int, expected: int) -> str:
    """Describe a part of an all-to-all, in elements, that has another size at its receiver."""
    return (
        f"collective {sequence}, all_to_all: rank {sender} sends {sent:,} elements "
        f"to rank {receiver}, which expects {expected:,}"
    )


class QueuedRun(ABC):
    """A collective in the queue of its group, or in progress if it is the first there."""

    def __init__(self, call: Call, rank: int, work: Work, total_bytes: int) -> None:
        """`rank` is this one, `total_bytes` what it receives."""
        self.call = call
        self.rank = rank
        self.work = work
        self.total_bytes = total_bytes
        self.sequence = 0  # the executor counts
        self.begun_at = 0.0  # monotonic s; 0: not started
        self.queued_at = time.monotonic()
        self.before: Occupation | None = None  # what the caller did since its previous call, if that was long ago
        self.first_heard: dict[int, float] = {}  # by rank, monotonic seconds
        self.last_heard: dict[int, float] = {}

    @property
    def is_held(self) -> bool:
        """Whether it must not start yet."""
        return self.work.hold is not None and not self.work.hold.is_set()

    @abstractmethod
    def begin(self, links: Mapping[int, RankLink]) -> None:
        """Announce the collective and send what is ready."""

    @abstractmethod
    def send(self) -> None:
        """Send what has become ready."""

    @abstractmethod
    def on_frame(self, link: RankLink, frame: ControlFrame, data: memoryview) -> None:
        """Process another rank's header, and the data that came with it."""

    def on_chunk(self, link: RankLink) -> bool:
        """Process the arrival of a chunk; return False if it belongs to a later collective."""
        return False

    @abstractmethod
    def on_acknowledged(self, link: RankLink) -> None:
        """Record that a rank has acknowledged all data of this rank."""

    @property
    @abstractmethod
    def is_done(self) -> bool:
        """Whether all data has arrived, and the memory of all data sent is free again."""

    @abstractmethod
    def finish(self) -> None:
        """Deliver the result and release the memory."""

    @abstractmethod
    def waiting_for(self) -> list[int]:
        """Return the ranks that this collective waits for."""

    @abstractmethod
    def progress_text(self) -> str:
        """Describe the progress, for messages."""

    def parts_sent(self) -> Mapping[int, int]:
        """Return how many elements an all-to-all sends to each rank; else nothing."""
        return {}

    def past(self) -> PastCall:
        """Return what is kept of it when it is finished."""
        return PastCall(self.sequence, self.call, self.parts_sent())

    def check_fits(self, link: RankLink, frame: ControlFrame) -> None:
        """Raise CollectiveMismatchError if another rank's header describes a different call."""
        PastCall(self.sequence, self.call, {}).check_fits(self.rank, link, frame)
