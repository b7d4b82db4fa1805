"""When are the processors paused? As a program it prints the pauses; `Pauses` notes them beside a benchmark.

A process on each processor, with the highest real-time priority, sleeps for half a millisecond and notes when it wakes
up late: then nothing else ran there either. A hypervisor that takes a processor away may count it as stolen in steps of
10 ms, or not at all if it throttles the whole machine.

`sudo python -m bench._support.pauses [SECONDS]`
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from types import TracebackType

_EVERY_NS, _LATE_NS = 500_000, 300_000
_PRIORITY = 50  # SCHED_FIFO; above all that runs here, below the kernel's own watchdogs


class Pauses:
    """Those of all processors while a block runs, by the monotonic clock."""

    def __enter__(self) -> Pauses:
        """Start a process on each processor."""
        command = [sys.executable, "-m", "bench._support.pauses", "--on"]
        self._processes = [
            subprocess.Popen([*command, str(processor)], stdout=subprocess.PIPE)
            for processor in sorted(os.sched_getaffinity(0))
        ]
        self.found: list[tuple[int, int]] = []  # begin and end, ns
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop them and collect what they noted."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
            noted, _ = process.communicate(timeout=10)
            self.found += [(begin, end) for begin, end in json.loads(noted)]
        self.found.sort()

    def longest_ms(self, begin: int, end: int) -> float:
        """Return the longest that reaches into begin..end (ns), in milliseconds."""
        inside = [until - since for since, until in self.found if until >= begin and since <= end]
        return max(inside, default=0) / 1e6


def _watch(processor: int) -> None:
    """Note the pauses of one processor until SIGTERM; print them."""
    found: list[tuple[int, int]] = []
    is_over: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: is_over.append(True))
    os.sched_setaffinity(0, {processor})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    while not is_over:
        due = time.monotonic_ns() + _EVERY_NS
        time.sleep(_EVERY_NS / 1e9)
        now = time.monotonic_ns()
        if now - due > _LATE_NS:
            found.append((due, now))
    print(json.dumps(found))


def main() -> None:
    if sys.argv[1:2] == ["--on"]:
        _watch(int(sys.argv[2]))
        return
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    with Pauses() as watch:
        time.sleep(seconds)
    lengths = sorted(((end - begin) / 1e6 for begin, end in watch.found), reverse=True)
    print(f"{len(lengths)} pauses over {_LATE_NS / 1e6:g} ms in {seconds:g} s, all processors together")
    print(
        f"over 1 ms: {sum(each > 1 for each in lengths)}; the longest: {', '.join(f'{e:.1f}' for e in lengths[:8])} ms"
    )


if __name__ == "__main__":
    main()
