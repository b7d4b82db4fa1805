"""What a process does between its collectives, and when it does not run: why a rank is late.

A collective's end and the next call mark the time between them. Of one that lasts, the kernel's accounts say whether it
was spent computing, waiting for a processor or reading memory from a disk, and the stacks of the calling thread where.
A thread of the process takes these stacks; that it oversleeps shows that the whole process was stopped.
"""

import collections
import gc
import os
import resource
import sys
import threading
import time
import weakref
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Protocol

import msgspec

LEAST = 0.01  # s between calls from which on it is accounted for
_LOOKS = 0.1  # s between two looks at a process
_PAUSED = 0.1  # s that the watching thread oversleeps without using or awaiting a processor: the process was stopped
_OURS = str(Path(__file__).parents[2])  # frames of this package are no place of the program
KNOWN_PLACES = {  # what a file says about the frames that it calls
    "torch/utils/data/": "data loader",
    "torch/serialization.py": "checkpoint",
    "torch/distributed/checkpoint/": "checkpoint",
    "safetensors/": "checkpoint",
}


class Occupation(msgspec.Struct, gc=False):
    """Of a process, between two calls."""

    seconds: float
    used: float = 0.0  # s of processor time, of all its threads
    starved: float = 0.0  # s for which the calling thread waited for a processor
    collecting: float = 0.0  # s of garbage collections
    reads: int = 0  # page faults that waited for a disk
    place: str = ""  # where the calling thread was seen most often


class Pause(msgspec.Struct, gc=False):
    """A time in which the process did not run: it was stopped, or its host was."""

    began_at: float  # since 1970
    seconds: float


class _Accounts(NamedTuple):
    """What had been used up to a moment."""

    at: float  # monotonic s
    used: float
    starved: float
    collecting: float
    reads: int


class OccupationLog:
    """Follows one rank's calls in one group."""

    def __init__(self) -> None:
        self._thread, self._thread_id = threading.get_ident(), threading.get_native_id()  # that calls
        self._free_since = time.monotonic()  # the latest call, or end of one
        self._places: collections.Counter[str] = collections.Counter()  # since then
        self._accounts = _take(self._thread_id)

    def called(self, now: float) -> Occupation | None:
        """Note a call by this thread; return what came before it, unless that was short. `now` in monotonic seconds."""
        seconds, self._free_since = now - self._free_since, now
        if seconds < LEAST:
            return None
        places, self._places = self._places, collections.Counter()
        if threading.get_ident() != self._thread:
            self._thread, self._thread_id = threading.get_ident(), threading.get_native_id()
            self._accounts = _take(self._thread_id)
            return Occupation(seconds)
        place = max(list(places.items()), key=lambda each: each[1], default=("", 0))[0]  # a look may just add one
        return msgspec.structs.replace(self._since(now), seconds=seconds, place=place)

    def ended(self, now: float, began: float) -> float:
        """Note the end of a collective; return for how long the calling thread waited for a processor meanwhile."""
        self._free_since = now
        if self._places:
            self._places.clear()
        if now - self._accounts.at < LEAST:
            return 0.0
        return min(self._since(now).starved, now - began)

    def look(self, now: float) -> None:
        """Note where the calling thread is, if its last call is some time ago."""
        if now - self._free_since >= _LOOKS / 2:
            place = _place_of(sys._current_frames().get(self._thread))
            if place:
                self._places[place] += 1

    def _since(self, now: float) -> Occupation:
        before, self._accounts = self._accounts, _take(self._thread_id)
        used, starved, collecting, reads = (new - old for new, old in zip(self._accounts[1:], before[1:], strict=True))
        return Occupation(now - before.at, used, starved, collecting, int(reads))


class Watched(Protocol):
    """A group, as the watching thread of this process sees it."""

    def look(self, now: float) -> None:
        """Look at it; `now` in monotonic seconds."""

    def note_pause(self, pause: Pause) -> None:
        """Note that the process was stopped until now."""


class ProcessWatch:
    """A thread that looks at the groups of this process, while there are any."""

    _looked: _Accounts  # at the latest look, or when the thread was started; while there is one

    def __init__(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        """Forget everything in a forked child: groups and threads are the parent's, which may have had the lock."""
        self.watched: weakref.WeakSet[Watched] = weakref.WeakSet()
        self._lock = threading.RLock()  # a signal may come while its thread has it
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, watched: Watched) -> None:
        """Look at it from now on."""
        if _on_collection not in gc.callbacks:
            gc.callbacks.append(_on_collection)
        with self._lock:
            self.watched.add(watched)
            if self._thread is None:
                self._is_over = threading.Event()
                thread = threading.Thread(
                    target=self._look, args=(self._is_over,), name="openmrc recorder", daemon=True
                )
                thread.start()
                self._looked = _take(thread.native_id, os.getpid())
                self._thread = thread

    def remove(self, watched: Watched) -> None:
        with self._lock:
            self.catch_up()
            self.watched.discard(watched)
            if not self.watched:
                self._is_over.set()
                self._thread = None

    def all(self) -> list[Watched]:
        with self._lock:
            return list(self.watched)

    def catch_up(self) -> None:
        """Note a pause since the latest look, which the thread may not have noticed yet.

        Looks leave no time out between them: the process may be stopped while the thread looks.
        """
        with self._lock:
            if self._thread is None:
                return
            # The main thread may have the interpreter while it waits for a processor, so that this one must wait, too.
            before, self._looked = self._looked, _take(self._thread.native_id, os.getpid())
            accounted = self._looked.used - before.used + self._looked.starved - before.starved
            overslept = self._looked.at - before.at - _LOOKS - accounted
            if overslept > _PAUSED:
                for each in self.watched:
                    each.note_pause(Pause(time.time() - overslept, overslept))

    def _look(self, is_over: threading.Event) -> None:
        while not is_over.wait(_LOOKS):
            self.catch_up()
            for each in self.all():
                each.look(time.monotonic())


WATCH = ProcessWatch()
os.register_at_fork(after_in_child=WATCH.abandon)


class _Collections:
    """The time of garbage collections in this process."""

    seconds = 0.0
    begun = 0.0


def _on_collection(phase: str, info: object) -> None:
    now = time.perf_counter()
    if phase == "start":
        _Collections.begun = now
    else:
        _Collections.seconds += now - _Collections.begun


def _take(*threads: int | None) -> _Accounts:
    """Return what this process used until now, and for how long some of its threads waited for a processor."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = usage.ru_utime + usage.ru_stime
    return _Accounts(time.monotonic(), used, sum(map(_starved, threads)), _Collections.seconds, usage.ru_majflt)


def _starved(thread: int | None) -> float:
    """Return for how long (s) a thread waited for a processor; 0 if the kernel does not say, or it has ended."""
    try:
        with open(f"/proc/self/task/{thread}/schedstat", "rb", buffering=0) as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def _place_of(frame: FrameType | None) -> str:
    """Return the innermost line of the program, with what it is known to do; empty: it is in a call of this package."""
    known, line = "", ""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_OURS):
            return ""
        known = known or next((what for part, what in KNOWN_PLACES.items() if part in file), "")
        if not line and "site-packages" not in file and not file.startswith(("<", sys.base_prefix + "/lib")):
            line = f"{frame.f_code.co_name} ({Path(file).name}:{frame.f_lineno})"
        frame = frame.f_back
    return f"{known}, {line}" if known and line else known or line
