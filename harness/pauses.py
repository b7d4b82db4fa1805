"""When are the processors paused? `Pauses` notes it beside a benchmark; needs root.

A process on each processor, with a real-time priority above all that a benchmark runs, sleeps for half a millisecond
and notes when it wakes up late: then nothing else ran there either. A hypervisor that takes a processor away may count
it as stolen in steps of 10 ms, or not at all if it throttles the whole machine.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from types import TracebackType

_EVERY_NS, _LATE_NS = 500_000, 300_000
_PRIORITY = 50  # SCHED_FIFO; below the kernel's own watchdogs


class Pauses:
    """Those of all processors while a block runs, by the monotonic clock."""

    def __enter__(self) -> Pauses:
        """Start a process on each processor."""
        command = [sys.executable, "-m", "harness.pauses"]
        self._processes = [
            subprocess.Popen([*command, str(processor)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for processor in sorted(os.sched_getaffinity(0))
        ]
        self.found: list[tuple[int, int]] = []  # begin and end, ns
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop them and collect what they noted; nothing from one that failed, whose traceback stands on stderr."""
        for process in self._processes:
            noted, _ = process.communicate()
            self.found += [(begin, end) for begin, end in json.loads(noted or "[]")]
        if error is None and any(process.returncode != 0 for process in self._processes):
            raise RuntimeError("the processors were not watched, see above")

    def longest_ms(self, begin: int, end: int) -> float:
        """Return the longest that reaches into begin..end (ns), in milliseconds."""
        inside = [until - since for since, until in self.found if until >= begin and since <= end]
        return max(inside, default=0) / 1e6


def _watch(processor: int) -> None:
    """Note the pauses of one processor until standard input ends, as it does with the parent; print them."""
    found: list[tuple[int, int]] = []
    os.sched_setaffinity(0, {processor})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    is_over = False
    while not is_over:
        due = time.monotonic_ns() + _EVERY_NS
        is_over = bool(select.select([sys.stdin], [], [], _EVERY_NS / 1e9)[0])
        now = time.monotonic_ns()
        if now - due > _LATE_NS:
            found.append((due, now))
    print(json.dumps(found))


if __name__ == "__main__":
    _watch(int(sys.argv[1]))
