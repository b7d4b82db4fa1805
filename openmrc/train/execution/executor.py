"""The executor of a group: hands what users call and what arrives to its collectives, sends and receives."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from openmrc.errors import MrcError
from openmrc.train.errors import AbortedError, CollectiveError, error_text, from_peer
from openmrc.train.execution.collectives import MOST_TEXT, CollectiveQueue
from openmrc.train.execution.endpoint import GroupEndpoint, GroupTerms
from openmrc.train.execution.health import GroupHealth
from openmrc.train.execution.holds import Hold, HoldThread
from openmrc.train.execution.point_to_point import P2P_WR, PointToPoint, Transfer
from openmrc.train.execution.progress import ProgressDriver
from openmrc.train.execution.queued import Call, QueuedRun
from openmrc.train.execution.recorder import FlightRecorder
from openmrc.train.execution.run import CollectiveData, CollectiveRun
from openmrc.train.execution.small import SmallPlan, SmallRun
from openmrc.train.execution.work import Work
from openmrc.train.links.frames import HEADER, ControlFrame, FrameKind, unpack
from openmrc.train.links.liveness import Notice
from openmrc.train.links.mailbox import PIECE_WR, ImmediateKind, RankLink
from openmrc.verbs import Context, WcOpcode, WorkCompletion

log = logging.getLogger(__name__)
CLOSE_SECONDS = 2.0
_FAILED_CLOSE_SECONDS = 0.5  # time to send the error to the other ranks
_DRAIN_PAUSE = 0.001  # s between looks whether all was acknowledged


class Executor:
    """Executes the collectives, sends and receives of one rank in one group."""

    def __init__(self, terms: GroupTerms, context: Context, owns_context: bool) -> None:
        """Connect to the other ranks over an endpoint, which is closed with the group if that owns it."""
        self.rank, self.size, self.name = terms.rank, terms.size, terms.name
        self.error: CollectiveError | None = None
        self._is_closed = False
        self.recorder = FlightRecorder(self.name, self.rank, self.size, context)
        self.endpoint = GroupEndpoint(terms, context, owns_context)
        self.recorder.local_ranks = self.endpoint.local_ranks
        links = self.endpoint.links
        self.progress = ProgressDriver(self.endpoint.completions, self)
        self.collectives = CollectiveQueue(self.rank, links, self.recorder)
        self.p2p = PointToPoint(links, self.endpoint.memory, self.rank)
        self.health = GroupHealth(terms, self.endpoint, self.collectives, self.p2p)
        self._holds = HoldThread(self._on_hold_over)
        self._hold: Hold | None = None  # the latest one, while it lasts

    # From users' threads

    def begin(self, call: Call, data: CollectiveData, work: Work) -> None:
        """Queue a collective; start it if no other is in progress."""
        self._queue(CollectiveRun(call, data, self.rank, self.size, self.endpoint.memory, work))

    def begin_small(self, plan: SmallPlan, given: int, out: int, kept: Any, work: Work) -> None:
        """Queue a small collective on memory that `kept` keeps, at addresses; start it if no other is in progress."""
        self._queue(SmallRun(plan, given, out, kept, work))

    def _queue(self, run: QueuedRun) -> None:
        with self.progress.lock:
            self._check_open()
            self._guarded(lambda: self.collectives.add(run, self._hold))
            self._guarded(self.endpoint.return_credits)
            self._continue_in_background()

    def hold(self, wait: Callable[[], None]) -> None:
        """Let later collectives start only when `wait` has returned, which a thread of the group calls."""
        with self.progress.lock:
            self._check_open()
            self._hold = self._holds.add(wait)

    def refuse(self, reason: str) -> None:
        """Report to the other ranks that the next collective was an invalid call at this rank."""
        with self.progress.lock:
            if self.error is None:
                self._guarded(lambda: self.collectives.refuse(reason))
                self._continue_in_background()

    def send(self, transfer: Transfer) -> None:
        self._transfer(self.p2p.send, transfer)

    def receive(self, transfer: Transfer) -> None:
        self._transfer(self.p2p.receive, transfer)

    def _transfer(self, start: Callable[[Transfer], None], transfer: Transfer) -> None:
        with self.progress.lock:
            self._check_open()
            self._guarded(lambda: start(transfer))
            if self.error is not None:
                transfer.work.finish(self.error)
            self._continue_in_background()

    def abort(self, reason: str) -> None:
        """End all operations in progress with an AbortedError, here and at all ranks."""
        with self.progress.lock:
            if self.error is None:
                self.on_error(AbortedError(f"rank {self.rank} aborted group {self.name}: {reason}"))

    def close(self) -> None:
        """Leave the group: announce it, wait for accepted data and data in flight, and free all resources."""
        if self._is_closed:
            return
        links = self.endpoint.links.values()
        with self.progress.lock:
            if self.error is None and self._has_operations():
                self.on_error(AbortedError(f"rank {self.rank} closed group {self.name} while calls were in progress"))
            if self.error is None:
                for link in links:
                    self._guarded(lambda link=link: link.send(ControlFrame(FrameKind.BYE)))  # type: ignore[misc]
        deadline = time.monotonic() + self.health.timeout
        self.progress.until(self.is_idle, deadline)
        self._holds.close()
        if self.error is None:
            left_at = time.monotonic() + CLOSE_SECONDS
            self.progress.until(lambda: self.error is not None or all(link.bye_at for link in links), left_at)
        self._drain(deadline)
        self._is_closed = True
        if self.error is None:
            self.endpoint.liveness.tell(Notice())
        self.error = self.error or AbortedError(f"group {self.name} is closed")
        self.recorder.dump_at_end()
        self.progress.close()
        with self.progress.lock:  # a caller may still be about to notice
            self.endpoint.free()

    def _drain(self, deadline: float) -> None:
        """Wait until the others have what was posted: an outage may have begun; the transport and the health end it."""
        while self.error is None and time.monotonic() < deadline and self.endpoint.owes():
            self.progress.until(lambda: self.error is not None, time.monotonic() + _DRAIN_PAUSE)
        deadline = time.monotonic() + _FAILED_CLOSE_SECONDS
        while self.error is not None and time.monotonic() < deadline and self.endpoint.owes():
            time.sleep(_DRAIN_PAUSE)

    # From the driver

    def on_completions(self, completions: list[WorkCompletion]) -> None:
        """Process completions, then send what they have made ready."""
        if self.error is not None:
            return
        for completion in completions:
            link = self.endpoint.link_of(completion.qp_num)
            if link is None or (link.bye_at and not completion.ok):  # a rank that has left needs no more credits
                continue
            if not completion.ok:
                self.on_error(self.health.lost_error(link.rank, f"{completion.status.name}; {completion.error}"))
            elif completion.opcode == WcOpcode.RECV_RDMA_WITH_IMM:
                self._on_signal(link, completion.immediate or 0)
            elif completion.wr_id >= P2P_WR:
                self.p2p.on_written(completion.wr_id - P2P_WR)
            elif completion.wr_id != PIECE_WR:
                self.collectives.on_acknowledged(link)
            if self.error is not None:
                return
        self.endpoint.send_backlogs()
        self.p2p.write()
        self.collectives.advance()
        self.endpoint.return_credits()

    def check(self) -> None:
        """Send what could not be sent before, and fail what will not finish."""
        if self.error is None:
            self.endpoint.send_backlogs()  # the send queue may have emptied without a completion
            self.health.check(time.monotonic())

    def is_idle(self) -> bool:
        """Whether no operation is in progress and everything that was accepted is posted."""
        return self.error is not None or not (self._has_operations() or self.endpoint.has_backlog())

    def on_error(self, error: BaseException) -> None:
        """End all operations in progress with `error`, and report it to the other ranks."""
        if self.error is not None:
            return
        if isinstance(error, CollectiveError):
            self.error = error
        else:
            self.error = CollectiveError(f"rank {self.rank}, group {self.name}: {error}")
            self.error.__cause__ = error
        log.error("mrc: %s", self.error)
        if not self.error.is_from_peer:
            text = error_text(self.error).encode()[:MOST_TEXT]
            self.endpoint.liveness.tell(Notice(text.decode(errors="replace")))
            for link in self.endpoint.links.values():
                with suppress(MrcError):  # this link may be the failed one
                    link.abort(ControlFrame(FrameKind.ABORT, length=len(text)), text)
        runs, transfers = self.collectives.end(), self.p2p.unfinished()
        for run in runs:
            self.recorder.note(run, self.endpoint.links, state=str(self.error))
            run.work.finish(self.error)
            if run.work.hold is not None:
                run.work.hold.set()
        for transfer in transfers:
            transfer.work.finish(self.error)
        self.recorder.error = str(self.error)
        self.recorder.dump_to_folder()

    # Internals

    def _has_operations(self) -> bool:
        return self.collectives.first is not None or not self.p2p.is_idle

    def _continue_in_background(self) -> None:
        """Let frames that wait for credits be sent even if this thread makes no further call."""
        if self.error is None and self.endpoint.has_backlog():
            self.progress.work_in_background()

    def _on_hold_over(self, hold: Hold) -> None:
        """Start the collectives that waited for a hold."""
        with self.progress.lock:
            if hold.error is not None:
                self.on_error(hold.error)
            if self._hold is hold:
                self._hold = None
            hold.set()
            self._guarded(self.collectives.start)
            self._guarded(self.endpoint.return_credits)
            self._continue_in_background()

    def _on_signal(self, link: RankLink, immediate: int) -> None:
        signal = link.on_signal(immediate)
        if signal == ImmediateKind.FRAME:
            slot = link.next_slot()
            frame = unpack(slot)
            self._on_frame(link, frame, slot[HEADER : HEADER + frame.length])
            link.release_frame()
        elif signal == ImmediateKind.ABORT:
            slot = link.stage.abort_slot
            text = bytes(slot[HEADER : HEADER + min(unpack(slot).length, MOST_TEXT)])
            self.on_error(from_peer(link.rank, text.decode(errors="replace")))
        elif signal == ImmediateKind.CHUNK:
            self.collectives.on_chunk(link)

    def _on_frame(self, link: RankLink, frame: ControlFrame, data: memoryview) -> None:
        """Process a frame, whose slot is free afterwards."""
        if frame.kind == FrameKind.COLLECTIVE:
            self.collectives.on_frame(link, frame, data)
        elif frame.kind == FrameKind.STATE:
            self.health.on_state(link, frame, data)
        elif frame.kind == FrameKind.REFUSED:
            self.collectives.on_refused(link.rank, frame.sequence, bytes(data).decode(errors="replace"))
        elif frame.kind == FrameKind.BYE:
            link.bye_at = time.monotonic()
        elif frame.kind in (FrameKind.WANTED, FrameKind.OFFERED, FrameKind.DELIVERED, FrameKind.TAKEN):
            self.p2p.on_frame(link, frame, data)

    def _guarded(self, step: Callable[[], None]) -> None:
        if self.error is None:
            try:
                step()
            except Exception as error:
                self.on_error(error)

    def _check_open(self) -> None:
        if self.error is not None:
            raise self.error
