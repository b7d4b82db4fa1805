"""The executor of a group: its links, the collectives in progress, and error handling."""

from __future__ import annotations

import collections
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from openmrc.errors import MrcError
from openmrc.train.buffers import Memory
from openmrc.train.errors import (
    AbortedError,
    CollectiveError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
    RankLostError,
    error_text,
    from_peer,
)
from openmrc.train.execution.health import Watchdog
from openmrc.train.execution.holds import Hold, HoldThread
from openmrc.train.execution.point_to_point import ANY_SOURCE, P2P_WR, PointToPoint, Transfer
from openmrc.train.execution.progress import ProgressDriver
from openmrc.train.execution.queued import Call, PastCall, QueuedRun
from openmrc.train.execution.recorder import FlightRecorder
from openmrc.train.execution.run import CollectiveData, CollectiveRun
from openmrc.train.execution.small import SmallPlan, SmallRun
from openmrc.train.execution.work import Work
from openmrc.train.links import mesh
from openmrc.train.links.completions import LocalCompletions
from openmrc.train.links.frames import HEADER, ControlFrame, FrameKind, unpack
from openmrc.train.links.introduction import LocalPair
from openmrc.train.links.liveness import Liveness, Notice
from openmrc.train.links.local_queue_pair import BASE
from openmrc.train.links.mailbox import PIECE_WR, ImmediateKind, RankLink
from openmrc.train.links.store import Store
from openmrc.train.registrations import LocalRegions, Registrations
from openmrc.verbs import BusyError, Context, QpState, WcOpcode, WorkCompletion

EarlyFrame = tuple[RankLink, ControlFrame, bytes]  # of a collective that has not started here

log = logging.getLogger(__name__)
CLOSE_SECONDS = 2.0
_FAILED_CLOSE_SECONDS = 0.5  # time to send the error to the other ranks
_MAX_TEXT_BYTES = 4096  # of an error that is sent to other ranks
_MAX_REFUSALS = 1000  # stored for collectives that have not started here
_MAX_PAST = 4096  # calls kept; more than a rank can be ahead of one that sends it frames (`CALLS`, its backlog)


@dataclass(frozen=True)
class GroupTerms:
    """One rank's place in a group, and how it connects to the others."""

    store: Store
    rank: int
    size: int
    name: str  # keys in the store begin with mrc/`name`
    timeout: float  # s, of the rendezvous and of each collective
    timers: mesh.Timers
    shares_memory: bool  # with ranks of this host

    def meeting(self) -> mesh.Meeting:
        """Return the rendezvous, which begins now."""
        return mesh.Meeting(self.store, f"mrc/{self.name}", self.rank, self.size, time.monotonic() + self.timeout)


class Executor:
    """Executes the collectives, sends and receives of one rank in one group."""

    def __init__(self, terms: GroupTerms, context: Context, owns_context: bool) -> None:
        """Connect to the other ranks over an endpoint, which is closed with the group if that owns it."""
        self.rank, self.size, self.name, self.timeout = terms.rank, terms.size, terms.name, terms.timeout
        self.context, self._owns_context = context, owns_context
        self.error: CollectiveError | None = None
        self._is_closed = False
        self.sequence = 0  # of the latest collective
        self._finished = 0  # sequence of the latest collective that is done
        self._refusals: dict[int, tuple[int, str]] = {}  # by sequence: (rank, reason)
        self._past: dict[int, PastCall | None] = {}  # by sequence, the latest that are done; None: refused here
        self._runs: collections.deque[QueuedRun] = collections.deque()  # the first is in progress, others are queued
        self._early: dict[int, list[EarlyFrame]] = {}  # of collectives that have not started, by sequence
        self._early_chunks: collections.Counter[tuple[int, int]] = collections.Counter()  # by sequence and rank
        self._links: dict[int, RankLink] = {}
        self._liveness = Liveness({})
        self._pd = context.alloc_pd()
        self._memory: Memory = Registrations(self._pd)
        self._completions: LocalCompletions | None = None  # of ranks of this host as well
        self._cq = context.create_cq(4096)
        self.recorder = FlightRecorder(self.name, self.rank, self.size, context)
        try:
            endpoint = mesh.MeshEndpoint(context, self._pd, self._cq)
            connected = mesh.connect(endpoint, terms.meeting(), terms.timers, terms.shares_memory)
        except BaseException:
            self._free()
            raise
        self._links, self._liveness = connected.links, connected.liveness
        self._attach(connected.local)
        self.progress = ProgressDriver(self._completions or self._cq, self)
        self._by_qp = {link.qp.qpn: link for link in self._links.values()}
        self._watchdog = Watchdog(self.timeout)
        self._p2p = PointToPoint(self._links, self._memory, self.rank)
        self._holds = HoldThread(self._on_hold_over)
        self._hold: Hold | None = None  # the latest one, while it lasts

    def _attach(self, pairs: Sequence[LocalPair]) -> None:
        """Reach ranks of this host through shared memory."""
        if not pairs:
            return
        is_only = len(pairs) == len(self._links)
        if is_only:
            self._memory = LocalRegions()  # nothing needs to be registered with the endpoint
        self._completions = LocalCompletions(None if is_only else self._cq, self._on_local_end)
        queue_pairs = [pair.queue_pair(self._memory, self._completions.complete) for pair in pairs]
        for each in queue_pairs:
            self._links[each.rank].use_shared_memory(each, each.stage, BASE)
        self._completions.watch(queue_pairs)
        self.recorder.local_ranks = sorted(pair.rank for pair in pairs)

    def _on_local_end(self, rank: int) -> None:
        self._liveness.note_end(rank, time.monotonic())

    # From users' threads

    def begin(self, call: Call, data: CollectiveData, work: Work) -> None:
        """Queue a collective; start it if no other is in progress."""
        self._queue(CollectiveRun(call, data, self.rank, self.size, self._memory, work))

    def begin_small(self, plan: SmallPlan, given: int, out: int, kept: Any, work: Work) -> None:
        """Queue a small collective on memory that `kept` keeps, at addresses; start it if no other is in progress."""
        self._queue(SmallRun(plan, given, out, kept, work))

    def _queue(self, run: QueuedRun) -> None:
        with self.progress.lock:
            self._check_open()
            self.sequence += 1
            run.sequence = self.sequence
            run.hold = run.work.hold = self._hold
            self._runs.append(run)
            if self._refusals:
                self._guarded(lambda: self._check_refused(run))
            if len(self._runs) == 1:
                self._guarded(self._start)
            self._continue_in_background()

    def hold(self, wait: Callable[[], None]) -> None:
        """Let later collectives start only when `wait` has returned, which a thread of the group calls."""
        with self.progress.lock:
            self._check_open()
            self._hold = self._holds.add(wait)

    def refuse(self, reason: str) -> None:
        """Report to the other ranks that the next collective was an invalid call at this rank."""
        with self.progress.lock:
            if self.error is not None:
                return
            self.sequence += 1
            self._keep_past(self.sequence, None)
            self._refusals.pop(self.sequence, None)
            for link, _, _ in self._early.pop(self.sequence, ()):
                link.release_call()
            text = reason.encode()[:_MAX_TEXT_BYTES]
            for link in self._links.values():
                frame = ControlFrame(FrameKind.REFUSED, sequence=self.sequence, length=len(text))
                self._guarded(lambda link=link, frame=frame: link.send(frame, text))  # type: ignore[misc]
            self._continue_in_background()

    def send(self, transfer: Transfer) -> None:
        """Start a send."""
        with self.progress.lock:
            self._check_open()
            self._guarded(lambda: self._p2p.send(transfer))
            if self.error is not None:
                transfer.work.finish(self.error)
            self._continue_in_background()

    def receive(self, transfer: Transfer) -> None:
        """Start a receive."""
        with self.progress.lock:
            self._check_open()
            self._guarded(lambda: self._p2p.receive(transfer))
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
        with self.progress.lock:
            if self.error is None and self._has_operations():
                self.on_error(AbortedError(f"rank {self.rank} closed group {self.name} while calls were in progress"))
            if self.error is None:
                for link in self._links.values():
                    self._guarded(lambda link=link: link.send(ControlFrame(FrameKind.BYE)))  # type: ignore[misc]
        self.progress.until(self.is_idle, time.monotonic() + self.timeout)
        self._holds.close()
        deadline = time.monotonic() + (CLOSE_SECONDS if self.error is None else _FAILED_CLOSE_SECONDS)
        if self.error is None:
            self.progress.until(lambda: self.error is not None or self._have_all_left(), deadline)
        while time.monotonic() < deadline and any(self._is_sending(link) for link in self._links.values()):
            time.sleep(0.001)
        self._is_closed = True
        if self.error is None:
            self._liveness.tell(Notice())
        self.error = self.error or AbortedError(f"group {self.name} is closed")
        self.recorder.dump_at_end()
        self.progress.close()
        with self.progress.lock:  # a caller may still be about to notice
            self._free()

    # From the driver

    def on_completions(self, completions: list[WorkCompletion]) -> None:
        """Process completions, then send what they have made ready."""
        if self.error is not None:
            return
        for completion in completions:
            link = self._by_qp.get(completion.qp_num)
            if link is None:
                continue
            if not completion.ok:
                self._on_failure(link, completion)
                return
            if completion.opcode == WcOpcode.RECV_RDMA_WITH_IMM:
                self._on_signal(link, completion.immediate or 0)
            elif completion.wr_id >= P2P_WR:
                self._p2p.on_written(completion.wr_id - P2P_WR)
            elif self._runs and completion.wr_id != PIECE_WR:
                self._runs[0].on_acknowledged(link)
            if self.error is not None:
                return
        self._advance()

    def check(self) -> None:
        """Probe awaited ranks, report the state of slow collectives, and fail operations that exceed the timeout."""
        if self.error is not None:
            return
        self._send_backlogs()  # the send queue may have emptied without a completion
        self.recorder.watch_planes()
        now = time.monotonic()
        self._listen(now)
        if self.error is not None:
            return
        waited_for = self._waited_for()
        for rank in self._watchdog.ranks_to_probe(now, waited_for):
            self._links[rank].probe()
        gone = next((rank for rank in waited_for if self._liveness.is_gone(rank, now)), None)
        if gone is not None:
            self.on_error(self._lost_error(gone, "its process has ended"))
            return
        departed = next((rank for rank in waited_for if self._links[rank].has_left(now)), None)
        if departed is not None:
            self.on_error(
                RankLostError(
                    f"rank {self.rank}: rank {departed} has closed group {self.name}, {self._operation_text()}"
                )
            )
            return
        if self._runs and self._runs[0].begun_at:
            self._watch_run(self._runs[0], now)
        late = next((each for each in self._p2p.unfinished() if now - each.begun_at > self.timeout), None)
        if late is not None and self.error is None:
            self.on_error(self._transfer_timeout_error(late))

    def is_idle(self) -> bool:
        """Whether no operation is in progress and everything that was accepted is posted."""
        return self.error is not None or not (self._has_operations() or self._has_backlog())

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
            text = error_text(self.error).encode()[:_MAX_TEXT_BYTES]
            self._liveness.tell(Notice(text.decode(errors="replace")))
            for link in self._links.values():
                with suppress(MrcError):  # this link may be the failed one
                    link.abort(ControlFrame(FrameKind.ABORT, length=len(text)), text)
        runs, self._runs = list(self._runs), collections.deque()
        transfers = self._p2p.unfinished()
        for run in runs:
            self.recorder.note(run, self._links, state=str(self.error))
            run.work.finish(self.error)
            if run.hold is not None:
                run.hold.end()
        for transfer in transfers:
            transfer.work.finish(self.error)
        self.recorder.dump_on_error(str(self.error))

    # Internals

    def _has_operations(self) -> bool:
        return bool(self._runs) or not self._p2p.is_idle

    def _has_backlog(self) -> bool:
        return any(link.has_backlog for link in self._links.values())

    def _continue_in_background(self) -> None:
        """Let frames that wait for credits be sent even if this thread makes no further call."""
        if self.error is None and self._has_backlog():
            self.progress.work_in_background()

    def _send_backlogs(self) -> None:
        for link in self._links.values():
            if link.has_backlog:
                link.send_backlog()

    def _on_hold_over(self, hold: Hold) -> None:
        """Start the collectives that waited for a hold."""
        with self.progress.lock:
            if hold.error is not None:
                self.on_error(hold.error)
            if self._hold is hold:
                self._hold = None
            hold.end()
            if self._runs and not self._runs[0].begun_at:
                self._guarded(self._start)
            self._continue_in_background()

    def _start(self) -> None:
        """Start the first queued collective, which data received early may complete at once."""
        self._start_first()
        self._return_credits()

    def _start_first(self) -> None:
        while self._runs:
            if self._runs[0].is_held:
                return
            if not self._runs[0].begun_at:  # a callback of the previous one may have started it
                self._start_run(self._runs[0])
            if not self._finish_first():
                return

    def _start_run(self, run: QueuedRun) -> None:
        """Start a collective and process its frames and chunks that have arrived early."""
        run.begin(self._links)
        for link, frame, data in self._early.pop(run.sequence, ()):
            link.release_call()
            run.on_frame(link, frame, memoryview(data))
        for key in [key for key in self._early_chunks if key[0] == run.sequence]:
            for _ in range(self._early_chunks.pop(key)):
                self._take_chunk(run, self._links[key[1]])
        run.send()

    def _finish_first(self) -> bool:
        """Finish the first collective if it is complete; return whether it was."""
        if not self._runs or not self._runs[0].is_done:
            return False
        run = self._runs[0]
        run.finish()  # if that fails, the run is still among those that end with the error
        self._runs.popleft()
        self._finished = run.sequence
        self._keep_past(run.sequence, run.past())
        self.recorder.note(run, self._links)
        run.work.finish()
        return True

    def _advance(self) -> None:
        """Send what has become ready, and start the next collective when one is complete."""
        self._send_backlogs()
        self._p2p.write()
        if self._runs and self._runs[0].begun_at:
            self._runs[0].send()
            if self._finish_first():
                self._start_first()
        self._return_credits()

    def _return_credits(self) -> None:
        for link in self._links.values():
            link.return_credits()

    def _on_signal(self, link: RankLink, immediate: int) -> None:
        signal = link.on_signal(immediate)
        if signal == ImmediateKind.FRAME:
            slot = link.next_slot()
            frame = unpack(slot)
            self._on_frame(link, frame, slot[HEADER : HEADER + frame.length])
            link.release_frame()
        elif signal == ImmediateKind.ABORT:
            slot = link.stage.abort_slot
            text = bytes(slot[HEADER : HEADER + min(unpack(slot).length, _MAX_TEXT_BYTES)])
            self.on_error(from_peer(link.rank, text.decode(errors="replace")))
        elif signal == ImmediateKind.CHUNK:
            self._on_chunk(link)

    def _on_frame(self, link: RankLink, frame: ControlFrame, data: memoryview) -> None:
        """Process a frame, whose slot is free afterwards."""
        if frame.kind == FrameKind.COLLECTIVE:
            self._on_collective(link, frame, data)
        elif frame.kind == FrameKind.STATE:
            self._on_state(link, frame, data)
        elif frame.kind == FrameKind.REFUSED:
            self._on_refused(link, frame, data)
        elif frame.kind == FrameKind.BYE:
            link.bye_at = time.monotonic()
        elif frame.kind in (FrameKind.WANTED, FrameKind.OFFERED, FrameKind.DELIVERED, FrameKind.TAKEN):
            self._p2p.on_frame(link, frame, data)

    def _on_collective(self, link: RankLink, frame: ControlFrame, data: memoryview) -> None:
        link.announced = frame.sequence
        if self._is_current(frame.sequence):
            link.release_call()
            self._runs[0].on_frame(link, frame, data)
        elif frame.sequence > self._finished and frame.sequence not in self._past:
            self._early.setdefault(frame.sequence, []).append((link, frame, bytes(data)))
        else:  # from a rank that this one did not have to wait for
            link.release_call()
            self._check_past(link, frame)

    def _is_current(self, sequence: int) -> bool:
        return bool(self._runs) and self._runs[0].sequence == sequence and bool(self._runs[0].begun_at)

    def _keep_past(self, sequence: int, past: PastCall | None) -> None:
        self._past[sequence] = past
        if len(self._past) > _MAX_PAST:
            del self._past[next(iter(self._past))]

    def _has_refused(self, sequence: int) -> bool:
        return sequence in self._past and self._past[sequence] is None

    def _check_past(self, link: RankLink, frame: ControlFrame) -> None:
        """Raise CollectiveMismatchError if another rank called something else than this one, which is past it."""
        if frame.sequence not in self._past:
            raise CollectiveMismatchError(
                f"collective {frame.sequence}: rank {link.rank} called {frame.describe()}, "
                f"rank {self.rank} is past collective {self._finished}"
            )
        past = self._past[frame.sequence]
        if past is not None:  # else the other rank learns that this one refused it
            past.check_fits(self.rank, link, frame)

    def _on_chunk(self, link: RankLink) -> None:
        """Process a chunk of the collective that its sender announced last."""
        if self._is_current(link.announced):
            self._take_chunk(self._runs[0], link)
        elif link.announced in self._early:
            self._early_chunks[link.announced, link.rank] += 1
        elif not self._has_refused(link.announced):
            raise self._excess_error(link, self._past.get(link.announced))

    def _take_chunk(self, run: QueuedRun, link: RankLink) -> None:
        if not run.on_chunk(link):
            raise self._excess_error(link, run.past())

    def _excess_error(self, link: RankLink, past: PastCall | None) -> CollectiveMismatchError:
        name = f"collective {link.announced}" + (f", {past.call.describe()}" if past else "")
        return CollectiveMismatchError(f"{name}: rank {link.rank} sends more than rank {self.rank} expects")

    def _on_refused(self, link: RankLink, frame: ControlFrame, data: memoryview) -> None:
        if frame.sequence in self._past:
            past = self._past[frame.sequence]
            if past is not None:  # else refused here too
                raise self._refusal_error(past, link.rank, bytes(data).decode(errors="replace"))
            return
        if len(self._refusals) < _MAX_REFUSALS:
            self._refusals[frame.sequence] = link.rank, bytes(data).decode(errors="replace")
        run = next((run for run in self._runs if run.sequence == frame.sequence), None)
        if run is not None:
            self._check_refused(run)

    def _check_refused(self, run: QueuedRun) -> None:
        if run.sequence in self._refusals:
            raise self._refusal_error(run.past(), *self._refusals[run.sequence])

    def _refusal_error(self, past: PastCall, rank: int, reason: str) -> CollectiveMismatchError:
        return CollectiveMismatchError(
            f"collective {past.sequence}: rank {self.rank} called {past.call.describe()}, rank {rank} made "
            f"an invalid call: {reason}"
        )

    def _on_failure(self, link: RankLink, completion: WorkCompletion) -> None:
        status = completion.status.name
        self.on_error(self._lost_error(link.rank, f"{status}; {completion.error}"))

    def _lost_error(self, rank: int, cause: str) -> RankLostError:
        return RankLostError(f"rank {self.rank}: rank {rank} is lost, {self._operation_text()}: {cause}")

    def _listen(self, now: float) -> None:
        """Process what arrived on the control connections."""
        for rank, notice in self._liveness.heard(now):
            if notice is not None and notice.error:
                self.on_error(from_peer(rank, notice.error))
            elif notice is not None:
                self._links[rank].bye_at = self._links[rank].bye_at or now

    def _operation_text(self) -> str:
        if self._runs:
            run = self._runs[0]
            return f"during collective {run.sequence}, {run.call.describe()} ({run.progress_text()})"
        transfer = next(iter(self._p2p.unfinished()), None)
        if transfer is None:
            return "while no operation was in progress"
        return f"during a {transfer.kind} of {transfer.length:,} bytes with tag {transfer.tag}"

    def _waited_for(self) -> set[int]:
        ranks = {transfer.peer for transfer in self._p2p.unfinished()} - {ANY_SOURCE}
        return ranks | set(self._runs[0].waiting_for() if self._runs else ())

    def _watch_run(self, run: QueuedRun, now: float) -> None:
        if now - run.begun_at > self.timeout:
            self.on_error(self._timeout_error(run))
        elif self._watchdog.should_report(run.sequence, now - run.begun_at):
            self._send_state(run)

    def _send_state(self, run: QueuedRun) -> None:
        """Send the state of a slow collective to all ranks, for their errors and to detect mismatched calls."""
        text = f"waiting for {mesh.ranks_text(run.waiting_for())}; {run.progress_text()}".encode()
        frame = run.call.frame(run.sequence, run.call.count, len(text))._replace(kind=FrameKind.STATE)
        for link in self._links.values():
            if link.can_send:
                link.send(frame, text)

    def _on_state(self, link: RankLink, frame: ControlFrame, data: memoryview) -> None:
        text = bytes(data).decode(errors="replace")
        link.reported_state = f"in collective {frame.sequence}, {frame.describe()}, {text}"
        if self._runs and self._runs[0].sequence == frame.sequence:
            self._runs[0].check_fits(link, frame)
        elif frame.sequence in self._past:
            self._check_past(link, frame)

    def _timeout_error(self, run: QueuedRun) -> CollectiveTimeoutError:
        late = "; ".join(self._rank_text(rank) for rank in run.waiting_for())
        return CollectiveTimeoutError(
            f"rank {self.rank}: collective {run.sequence}, {run.call.describe()}, did not finish within the timeout of "
            f"{self.timeout:g} s ({run.progress_text()}); waiting for {late or 'no rank'}"
        )

    def _transfer_timeout_error(self, transfer: Transfer) -> CollectiveTimeoutError:
        who = self._rank_text(transfer.peer) if transfer.peer != ANY_SOURCE else "any rank"
        return CollectiveTimeoutError(
            f"rank {self.rank}: {transfer.kind} of {transfer.length:,} bytes with tag {transfer.tag} did not finish "
            f"within {self.timeout:g} s; waiting for {who}"
        )

    def _rank_text(self, rank: int) -> str:
        link = self._links[rank]
        return f"rank {rank} ({link.reported_state or 'no state reported'}; {link.qp.describe()})"

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:
            self.on_error(error)

    def _check_open(self) -> None:
        if self.error is not None:
            raise self.error

    def _have_all_left(self) -> bool:
        return all(link.bye_at for link in self._links.values())

    def _is_sending(self, link: RankLink) -> bool:
        return bool(link.qp.state == QpState.RTS and link.qp.outstanding() > 0)

    def _free(self) -> None:
        """Free all resources; later packets are ignored."""
        for link in self._links.values():
            link.free()
        self._liveness.close()
        if self._completions is not None:
            self._completions.close()
        if self._owns_context:
            self.context.close()
        else:
            self._memory.close()
            self._cq.destroy()
            with suppress(BusyError):  # a write that has not completed still reads from a region
                self._pd.dealloc()
