"""The flight recorder: the latest collectives of a rank, with times, sizes, late ranks and lost packets.

It is always on; an entry costs a few microseconds. docs/training.md says when it is written.
"""

from __future__ import annotations

import collections
import logging
import os
import signal
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from openmrc.train.execution.occupation import WATCH, Occupation, OccupationLog, Pause
from openmrc.verbs import PlaneCounters

_MOST = 1000  # events and pauses kept; a plane that flaps must not fill the memory


class PlaneEvent(msgspec.Struct):
    """One time in which a plane carried no data."""

    plane: int
    state: str  # down: its port is; silent: what was sent on it to some peer was lost
    began_at: float  # since 1970, when it was noticed
    ended_at: float  # 0: not yet
    lost: int  # packets that the endpoint lost on it meanwhile


class PlaneLog:
    """Notices changes between calls of `watch`."""

    def __init__(self) -> None:
        self.events: list[PlaneEvent] = []
        self._open: dict[tuple[int, str], PlaneEvent] = {}
        self._seen: dict[int, PlaneCounters] = {}

    def watch(self, planes: Iterable[PlaneCounters], now: float) -> None:
        """Compare with the previous call; `now` since 1970."""
        for plane in planes:
            before = self._seen.get(plane.plane, plane)
            self._follow(plane, before, "down", not plane.up, False, now)
            self._follow(plane, before, "silent", plane.silent, plane.silences > before.silences, now)
            self._seen[plane.plane] = plane

    def _follow(
        self, plane: PlaneCounters, before: PlaneCounters, state: str, is_out: bool, has_been: bool, now: float
    ) -> None:
        key = plane.plane, state
        event = self._open.get(key)
        if event is None and (is_out or has_been) and len(self.events) < _MOST:
            event = self._open[key] = PlaneEvent(plane.plane, state, now, 0.0, 0)
            self.events.append(event)
        if event is not None:
            event.lost += plane.lost - before.lost
            if not is_out:
                event.ended_at = now
                del self._open[key]


if TYPE_CHECKING:
    from openmrc.train.execution.queued import QueuedRun
    from openmrc.train.links.mailbox import RankLink
    from openmrc.verbs import Context

log = logging.getLogger(__name__)
DIRECTORY_VARIABLE, WHEN_VARIABLE = "MRC_RECORDER_DIR", "MRC_RECORDER"
ALWAYS = "always"  # value of MRC_RECORDER
KEPT = 2000  # entries
_SLOW_SECONDS = 0.01  # inline collectives that take longer also record losses


class CollectiveRecord(msgspec.Struct, gc=False):
    """One collective of one rank. All times in seconds; `first` and `last` count from `begun_at`."""

    sequence: int
    call: str
    bytes: int  # received
    step: int  # number passed to `Group.step`; -1: none
    queued_at: float  # since 1970
    begun_at: float
    ended_at: float
    state: str  # done, or the error
    first: dict[int, float]  # by rank: arrival of its first message
    last: dict[int, float]  # by rank: arrival of its last data
    retransmitted: dict[int, int]  # by rank: packets retransmitted to it
    lost: dict[int, int]  # by plane: packets lost by the endpoint, which several groups may share
    bad_evs: list[str]  # EVs that carried no data at the end: neither GOOD nor SKIP, or on a silent plane
    starved: float = 0.0  # in which the calling thread waited for a processor
    before: Occupation | None = None  # since the previous call; None: it was short

    @property
    def seconds(self) -> float:
        return self.ended_at - self.begun_at


class FlightRecording(msgspec.Struct):
    """Content of a recorder file: the entries of one rank."""

    group: str
    rank: int
    size: int
    planes: list[str]
    written_at: float
    error: str
    entries: list[CollectiveRecord]
    local_ranks: list[int] = []  # reached through shared memory
    plane_events: list[PlaneEvent] = []
    pauses: list[Pause] = []


class FlightRecorder:
    """The entries of one rank in one group."""

    def __init__(self, name: str, rank: int, size: int, context: Context) -> None:
        """Start empty, with room for KEPT entries; new entries replace the oldest."""
        self.name, self.rank, self.size = name, rank, size
        self.step = -1
        self.error = ""
        self.local_ranks: list[int] = []
        self._context = context
        self._entries: collections.deque[CollectiveRecord] = collections.deque(maxlen=KEPT)
        self._retransmitted: dict[int, int] = {}
        self._lost: dict[int, int] = {}
        self._offset = time.time() - time.monotonic()
        self._planes = PlaneLog()
        self._planes_lock = threading.Lock()
        self._pauses: list[Pause] = []
        self._occupation = OccupationLog()
        WATCH.add(self)
        if os.environ.get(DIRECTORY_VARIABLE):
            _listen_for_signal()

    def called(self, run: QueuedRun) -> None:
        """Note a call by this thread, and what came before it."""
        run.before = self._occupation.called(run.queued_at)

    def note(self, run: QueuedRun, links: Mapping[int, RankLink], state: str = "done") -> None:
        """Add a finished collective; `state` is "done" or its error."""
        now = time.monotonic()
        began = run.begun_at or now
        entry = CollectiveRecord(
            run.sequence,
            run.call.describe(),
            run.total_bytes,
            self.step,
            run.queued_at + self._offset,
            began + self._offset,
            now + self._offset,
            state,
            {rank: at - began for rank, at in run.first_heard.items()},
            {rank: at - began for rank, at in run.last_heard.items()},
            {},
            {},
            [],
            self._occupation.ended(now, began),
            run.before,
        )
        if not run.call.is_inline or now - began > _SLOW_SECONDS:
            with suppress(Exception):  # the endpoint itself may have failed
                self._record_losses(entry, links)
        self._entries.append(entry)

    def _watch_planes(self) -> None:
        """Note planes that went down or silent, or came back, since the previous call."""
        with suppress(Exception), self._planes_lock:  # the endpoint itself may have failed
            self._planes.watch(self._context.plane_counters(), time.time())

    def look(self, now: float) -> None:
        """Note what the program and planes do; `now` in monotonic seconds."""
        self._occupation.look(now)
        self._watch_planes()

    def note_pause(self, pause: Pause) -> None:
        """Note that the process did not run."""
        if len(self._pauses) < _MOST:
            self._pauses.append(pause)

    def entries(self) -> list[CollectiveRecord]:
        """Return the entries, the oldest first."""
        return list(self._entries)

    def recording(self) -> FlightRecording:
        WATCH.catch_up()
        planes = list(self._context.address.planes)
        return FlightRecording(
            self.name,
            self.rank,
            self.size,
            planes,
            time.time(),
            self.error,
            self.entries(),
            self.local_ranks,
            self._planes.events,
            self._pauses,
        )

    def dump(self, path: str | Path) -> None:
        Path(path).write_bytes(msgspec.json.encode(self.recording()))

    def dump_at_end(self) -> None:
        """Write it there if MRC_RECORDER=always; the group is closed."""
        WATCH.remove(self)
        if os.environ.get(WHEN_VARIABLE) == ALWAYS and not self.error:
            self.dump_to_folder()

    def dump_to_folder(self) -> None:
        """Write the recording to the folder that MRC_RECORDER_DIR names, if it is set; log a failure."""
        folder = os.environ.get(DIRECTORY_VARIABLE)
        if folder:
            path = Path(folder) / f"{self.name.replace('/', '-')}-rank{self.rank}.json"
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self.dump(path)
                log.log(logging.ERROR if self.error else logging.INFO, "mrc: wrote the flight recorder to %s", path)
            except OSError as failure:
                log.error("mrc: cannot write the flight recorder to %s: %s", path, failure)

    def _record_losses(self, entry: CollectiveRecord, links: Mapping[int, RankLink]) -> None:
        """Record retransmissions and losses since the previous call."""
        for rank, link in links.items():
            count = link.retransmitted()
            new, self._retransmitted[rank] = count - self._retransmitted.get(rank, 0), count
            if new:
                entry.retransmitted[rank] = new
        if not entry.retransmitted:
            return
        self._watch_planes()
        for plane in self._context.plane_counters():
            new, self._lost[plane.plane] = plane.lost - self._lost.get(plane.plane, 0), plane.lost
            if new:
                entry.lost[plane.plane] = new
        entry.bad_evs = sorted(
            {
                f"plane {ev.plane} EV {ev.ev:#x} {ev.label}"
                for rank in entry.retransmitted
                for ev in links[rank].qp.ev_states()
                if ev.silent or not ev.is_usable
            }
        )


def _listen_for_signal() -> None:
    """Let SIGUSR1 write the recorders of this process, unless the program itself uses the signal."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, lambda number, frame: write_all())


def write_all() -> None:
    """Write the recorders of all open groups of this process."""
    for recorder in WATCH.all():
        if isinstance(recorder, FlightRecorder):
            recorder.dump_to_folder()
