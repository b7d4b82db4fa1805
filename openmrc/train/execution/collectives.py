"""The collectives of a group at one rank: a queue, of which the first is in progress.

A frame names its collective by a sequence, which all ranks count alike. One that this rank has not begun is kept until
then. One that it has finished came from a rank that it did not have to wait for, and is compared with what it called:
the latest calls are kept for that. A chunk belongs to the collective that its sender announced last.
"""

import collections
from collections.abc import Mapping

from openmrc.train.errors import CollectiveMismatchError
from openmrc.train.execution.holds import Hold
from openmrc.train.execution.queued import PastCall, QueuedRun
from openmrc.train.execution.recorder import FlightRecorder
from openmrc.train.links.frames import ControlFrame, FrameKind
from openmrc.train.links.mailbox import RankLink

EarlyFrame = tuple[RankLink, ControlFrame, bytes]  # of a collective that has not started here
MOST_TEXT = 4096  # bytes of an error or a refusal that is sent to other ranks
_MAX_REFUSALS = 1000  # stored for collectives that have not started here
_MAX_PAST = 4096  # calls kept; more than a rank can be ahead of one that sends it frames (`CALLS`, its backlog)


class CollectiveQueue:
    """The collectives that a rank has called, in order; errors that end the group are raised."""

    def __init__(self, rank: int, links: Mapping[int, RankLink], recorder: FlightRecorder) -> None:
        self._rank, self._links, self._recorder = rank, links, recorder
        self.sequence = 0  # of the latest collective
        self._runs: collections.deque[QueuedRun] = collections.deque()
        self._finished = 0  # sequence of the latest collective that is done
        self._past: dict[int, PastCall | None] = {}  # by sequence, the latest that are done; None: refused here
        self._refusals: dict[int, tuple[int, str]] = {}  # by sequence: (rank, reason)
        self._early: dict[int, list[EarlyFrame]] = {}  # by sequence
        self._early_chunks: collections.Counter[tuple[int, int]] = collections.Counter()  # by sequence and rank

    @property
    def first(self) -> QueuedRun | None:
        """The collective in progress, or held, which the others wait for."""
        return self._runs[0] if self._runs else None

    # From users' threads

    def add(self, run: QueuedRun, hold: Hold | None) -> None:
        """Queue a collective, which does not start before `hold` is over; start it if it is the first."""
        self.sequence += 1
        run.sequence = self.sequence
        run.work.hold = hold
        self._recorder.called(run)
        self._runs.append(run)
        if run.sequence in self._refusals:
            raise self._refusal_error(run.past(), *self._refusals[run.sequence])
        if len(self._runs) == 1:
            self.start()

    def refuse(self, reason: str) -> None:
        """Tell the other ranks that the next collective was an invalid call at this rank."""
        self.sequence += 1
        self._keep_past(self.sequence, None)
        self._refusals.pop(self.sequence, None)
        for link, _, _ in self._early.pop(self.sequence, ()):
            link.release_call()
        text = reason.encode()[:MOST_TEXT]
        for link in self._links.values():
            link.send(ControlFrame(FrameKind.REFUSED, sequence=self.sequence, length=len(text)), text)

    def end(self) -> list[QueuedRun]:
        """Return the collectives that have not finished, and forget them."""
        runs, self._runs = list(self._runs), collections.deque()
        return runs

    # From the driver

    def start(self) -> None:
        """Start the first collective, which data received early may complete at once, and those behind it then."""
        while self._runs and not self._runs[0].is_held:
            if not self._runs[0].begun_at:  # a callback of the previous one may have started it
                self._start_run(self._runs[0])
            if not self._finish_first():
                return

    def advance(self) -> None:
        """Send what has become ready, and start the next collective when one is complete."""
        if self._runs and self._runs[0].begun_at:
            self._runs[0].send()
            if self._finish_first():
                self.start()

    def on_frame(self, link: RankLink, frame: ControlFrame, data: memoryview) -> None:
        """Process the header of a collective, and the data that came with it."""
        link.announced = frame.sequence
        if self._is_current(frame.sequence):
            link.release_call()
            self._runs[0].on_frame(link, frame, data)
        elif frame.sequence > self._finished and frame.sequence not in self._past:
            self._early.setdefault(frame.sequence, []).append((link, frame, bytes(data)))
        else:
            link.release_call()
            self._check_past(link, frame)

    def on_chunk(self, link: RankLink) -> None:
        if self._is_current(link.announced):
            self._take_chunk(self._runs[0], link)
        elif link.announced in self._early:
            self._early_chunks[link.announced, link.rank] += 1
        elif not self._has_refused(link.announced):
            raise self._excess_error(link, self._past.get(link.announced))

    def on_acknowledged(self, link: RankLink) -> None:
        if self._runs:
            self._runs[0].on_acknowledged(link)

    def on_refused(self, rank: int, sequence: int, reason: str) -> None:
        run = next((run for run in self._runs if run.sequence == sequence), None)
        past = run.past() if run is not None else self._past.get(sequence)
        if past is not None:
            raise self._refusal_error(past, rank, reason)
        if not self._has_refused(sequence) and len(self._refusals) < _MAX_REFUSALS:
            self._refusals[sequence] = rank, reason

    def check_state(self, link: RankLink, frame: ControlFrame) -> None:
        """Compare the call that another rank reports to be slow."""
        if self._runs and self._runs[0].sequence == frame.sequence:
            self._runs[0].check_fits(link, frame)
        elif frame.sequence in self._past:
            self._check_past(link, frame)

    # Internals

    def _is_current(self, sequence: int) -> bool:
        return bool(self._runs) and self._runs[0].sequence == sequence and bool(self._runs[0].begun_at)

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
        self._recorder.note(run, self._links)
        run.work.finish()
        return True

    def _take_chunk(self, run: QueuedRun, link: RankLink) -> None:
        if not run.on_chunk(link):
            raise self._excess_error(link, run.past())

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
                f"rank {self._rank} is past collective {self._finished}"
            )
        past = self._past[frame.sequence]
        if past is not None:  # else the other rank learns that this one refused it
            past.check_fits(self._rank, link, frame)

    def _excess_error(self, link: RankLink, past: PastCall | None) -> CollectiveMismatchError:
        name = f"collective {link.announced}" + (f", {past.call.describe()}" if past else "")
        return CollectiveMismatchError(f"{name}: rank {link.rank} sends more than rank {self._rank} expects")

    def _refusal_error(self, past: PastCall, rank: int, reason: str) -> CollectiveMismatchError:
        return CollectiveMismatchError(
            f"collective {past.sequence}: rank {self._rank} called {past.call.describe()}, rank {rank} made "
            f"an invalid call: {reason}"
        )
