"""Small collectives on one piece of memory: what does not change from call to call is worked out once.

Their data travels in frames, with one frame to and from each rank. A general run builds lanes, blocks and views for
every call, which takes longer than moving the data. What goes over a link is the same, so other ranks may execute the
same call either way.
"""

import ctypes
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from openmrc.collectives.choice import Collective, CollectiveAlgorithm
from openmrc.collectives.plan import NOTHING, Space
from openmrc.train.buffers import Bytes
from openmrc.train.errors import CollectiveMismatchError
from openmrc.train.execution.program import RankProgram
from openmrc.train.execution.queued import Call, QueuedRun, split_text
from openmrc.train.execution.work import Work
from openmrc.train.links.frames import INLINE, REDUCING, ControlFrame
from openmrc.train.links.mailbox import RankLink
from openmrc.train.reduction import NUMPY, Op, divide, fold_of

_IN_PARTS = frozenset({Collective.REDUCE_SCATTER, Collective.ALL_TO_ALL})  # the input has a part for each rank
_OUT_PARTS = frozenset({Collective.ALL_GATHER, Collective.ALL_TO_ALL})  # the output has one of each


def parts_of(collective: Collective, ranks: int) -> tuple[int, int]:
    """Return how many parts, one for each rank, the input has, and the output."""
    return ranks if collective in _IN_PARTS else 1, ranks if collective in _OUT_PARTS else 1


def scratch_for(ranks: int) -> Bytes:
    """Return the memory in which a group reduces, for one collective at a time; unused pages take no memory."""
    return np.empty((ranks + 1) * INLINE, np.uint8)


def is_flat(collective: Collective, program: RankProgram) -> bool:
    """Whether a rank exchanges one transfer with each other at most, none waits for another, and all are of one kind.

    Of a reduction every arrival is a contribution, to be reduced at once or, kept in SCRATCH, at the end: a leaf of a
    tree sends its own and receives the finished result.
    """
    sends = all(len(each) == 1 and each[0].after == NOTHING for each in program.sends.values())
    receives = all(
        len(each) == 1 and (collective not in REDUCING or each[0].reduces or each[0].space == Space.SCRATCH)
        for each in program.receives.values()
    )
    return bool(program.peers) and sends and receives


class SmallPlan:
    """What all calls of one kind, size, type, operation and root have in common at one rank."""

    def __init__(self, call: Call, program: RankProgram, rank: int, ranks: int, part: int, scratch: Bytes) -> None:
        """`part` is the size of what travels between two ranks, in bytes; `program` is flat, `scratch` the group's."""
        self.call = call
        self.rank, self.ranks = rank, ranks
        self.part = part
        self.announced = call.count
        if call.collective == Collective.ALL_TO_ALL:  # sizes may differ by pair: a frame has what is expected back
            self.announced = part // NUMPY[call.dtype].itemsize
        self.parts_sent = {}
        if call.collective == Collective.ALL_TO_ALL:
            self.parts_sent = dict.fromkeys(program.sends, self.announced)
        given_parts, out_parts = parts_of(call.collective, ranks)
        self.given_type: Any = ctypes.c_ubyte * (part * given_parts)
        self.out_type: Any = ctypes.c_ubyte * (part * out_parts)
        is_split, is_gathered = given_parts > 1, out_parts > 1
        self.sends = {to: _slice(to if is_split else 0, part) for to in program.sends}
        self.sources = sorted(program.receives, key=lambda source: program.receives[source][0].arrival)
        self.places = {source: _slice(source if is_gathered else 0, part) for source in self.sources}
        self.own = _slice(rank if is_split else 0, part)  # of the input: what this rank keeps, or adds
        self.own_place = _slice(rank, part) if is_gathered else None  # where it is kept
        self.addends = _Addends(self, scratch) if self.sources and call.collective in REDUCING else None


class _Addends:
    """The contributions of a reduction, in the order of addition, and their result."""

    def __init__(self, plan: SmallPlan, scratch: Bytes) -> None:
        call, part = plan.call, plan.part
        order = [plan.rank, *plan.sources]
        if call.algorithm == CollectiveAlgorithm.WHOLE:  # the same order at all ranks
            order.sort()
        rows = [scratch[_slice(row, part)] for row in range(len(order) + 1)]
        self.rows = {rank: row.data for rank, row in zip(order, rows, strict=False)}
        self.result = rows[-1].data
        self._first, *self._others = (row.view(NUMPY[call.dtype]) for row in rows[:-1])
        self._total = rows[-1].view(NUMPY[call.dtype])
        self._fold = fold_of(call.op, call.dtype)
        self._divisor = plan.ranks if call.op == Op.AVG else 0
        self._dtype = call.dtype

    def reduce(self) -> None:
        """Set `result`."""
        before = self._first
        for each in self._others:
            self._fold(before, each, self._total)
            before = self._total
        if self._divisor:
            divide(self._total, self._dtype, self._divisor)


def _slice(index: int, length: int) -> slice:
    return slice(index * length, (index + 1) * length)


class SmallRun(QueuedRun):
    def __init__(self, plan: SmallPlan, given: int, out: int, kept: Any, work: Work) -> None:
        """`given` and `out` are addresses, of contiguous memory that `kept` keeps; they may be equal."""
        super().__init__(plan.call, plan.rank, work, len(plan.sources) * plan.part)
        self._plan = plan
        self._given = memoryview(plan.given_type.from_address(given)).cast("B")
        self._out = memoryview(plan.out_type.from_address(out)).cast("B")
        self._kept = kept
        self._missing = set(plan.sources)
        self._links: Mapping[int, RankLink] = {}

    def begin(self, links: Mapping[int, RankLink]) -> None:
        self.begun_at = time.monotonic()
        self._links = links
        plan, given = self._plan, self._given
        if plan.sends:
            frame = self.call.frame(self.sequence, plan.announced, plan.part)
            for rank, part in plan.sends.items():
                links[rank].send(frame, given[part])
        if plan.addends is not None:
            plan.addends.rows[plan.rank][:] = given[plan.own]
        elif plan.own_place is not None:
            self._out[plan.own_place] = given[plan.own]

    def send(self) -> None:
        """Do nothing: everything was sent, or waits at its link."""

    def on_frame(self, link: RankLink, frame: ControlFrame, data: memoryview) -> None:
        """Store or keep the data of another rank."""
        self.check_fits(link, frame)
        rank, plan = link.rank, self._plan
        self.first_heard[rank] = self.last_heard[rank] = time.monotonic()
        if frame.elements != plan.announced or len(data) != plan.part:
            self._check_parts(link, frame, len(data))
        elif rank not in self._missing:
            raise CollectiveMismatchError(f"collective {self.sequence}: rank {rank} sent its data twice or in vain")
        elif plan.addends is not None:
            plan.addends.rows[rank][:] = data
            self._missing.discard(rank)
        else:
            self._out[plan.places[rank]] = data
            self._missing.discard(rank)

    def on_acknowledged(self, link: RankLink) -> None:
        """Do nothing: frames are copies."""

    def parts_sent(self) -> Mapping[int, int]:
        """Return how many elements an all-to-all sends to each rank."""
        return self._plan.parts_sent

    @property
    def is_done(self) -> bool:
        """Whether all data has arrived, and that of this rank is sent or fits into what may wait."""
        return not (self._missing or any(self._links[rank].is_congested for rank in self._plan.sends))

    def finish(self) -> None:
        addends = self._plan.addends
        if addends is not None:
            addends.reduce()
            self._out[:] = addends.result

    def waiting_for(self) -> list[int]:
        """Return the ranks whose data is missing, or that do not take any."""
        return sorted(self._missing | {rank for rank in self._plan.sends if self._links[rank].is_congested})

    def progress_text(self) -> str:
        arrived = self.total_bytes - len(self._missing) * self._plan.part
        return f"{arrived:,} of {self.total_bytes:,} bytes arrived"

    def _check_parts(self, link: RankLink, frame: ControlFrame, length: int) -> None:
        """Raise CollectiveMismatchError unless the sender, which is told what fits, finds the difference itself."""
        count, sent = self._plan.announced, length // NUMPY[self.call.dtype].itemsize
        if frame.elements != count:
            raise CollectiveMismatchError(split_text(self.sequence, self.rank, count, link.rank, frame.elements))
        if length:
            raise CollectiveMismatchError(split_text(self.sequence, link.rank, sent, self.rank, count))
