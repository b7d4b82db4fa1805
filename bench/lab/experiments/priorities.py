"""Who gets a processor first while a stream runs: the network, then the ends of the stream, then all else.

Forwarding in a lab is work of the kernel (softirqs): partly inside the system calls of the ends, partly in the threads
ksoftirqd. Ends with a real-time priority alone would let those threads, and so the network, starve for milliseconds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from openmrc.lab import record

LOCK = record.FOLDER.parent / "streams.lock"  # shared by all streams of this machine
_ENDS, BETWEEN, _NETWORK = 1, 2, 3  # real-time priorities (sched(7)); what pulls cables on time runs in between
_FIRST, _USUAL = (os.SCHED_RR, _NETWORK), (os.SCHED_OTHER, 0)

Priority = tuple[int, int]  # policy, and real-time priority within it


@contextlib.contextmanager
def network_first() -> Iterator[None]:
    """Give the kernel's forwarding a real-time priority, if this process may; the last stream to end takes it back."""
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        _change(_USUAL, _FIRST)
        try:
            yield
        finally:
            with contextlib.suppress(BlockingIOError):  # another stream runs
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _change(_FIRST, _USUAL)


def ends_second() -> None:
    """Run this process before all but the network; at its usual priority if the network does not come first."""
    threads = softirq_threads()
    if threads and all(of(thread)[1] > _ENDS for thread in threads):
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_ENDS))


def of(thread: int) -> Priority:
    """Return the priority of a thread; 0: the calling one."""
    return os.sched_getscheduler(thread), os.sched_getparam(thread).sched_priority


def softirq_threads() -> list[int]:
    """Return the ksoftirqd threads, one a processor; none is visible from another PID namespace."""
    found = []
    for name in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if name.read_text("ascii", "replace").startswith("ksoftirqd/"):
                found.append(int(name.parent.name))
    return found


def _change(before: Priority, after: Priority) -> None:
    """Change the priority of the threads that have the one before, and not one that the operator has chosen."""
    with contextlib.suppress(PermissionError):
        for thread in softirq_threads():
            if of(thread) == before:
                os.sched_setscheduler(thread, after[0], os.sched_param(after[1]))
