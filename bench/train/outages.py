"""Measure what a training job does when it hears nothing for seconds: all planes out, or a rank stopped.

Two ranks on four planes of the loopback all-reduce 1 MiB again and again. Outages take all planes of both ranks; for a
pause rank 1 is stopped (SIGSTOP) and continued. Each must be survived, with correct sums; the figure is how much longer
than the outage the interrupted step took. Mark: every one is survived, and the job goes on within a second of its end.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import threading
import time
from typing import Any

import numpy as np

from bench.train.ranks import run
from openmrc.train.group import Group

PLANES, MARK = 4, 1.0  # s
SIZE = 1 << 20  # bytes
_BEFORE = 0.3  # s of steps before an outage
_GAP = 0.5  # s of steps after one


def survive(rank: int, size: int, address: str, outages: list[tuple[str, float]]) -> list[float]:
    """Return for each outage (kind, seconds) how much longer than it the slowest step took (s)."""
    delays = []
    with Group.rendezvous(rank, size, address, planes=str(PLANES), timeout=60) as group:
        processes = np.zeros(size, np.int64)
        group.all_gather(processes, np.array([os.getpid()]))
        for kind, seconds in outages:
            group.barrier()
            if kind == "planes":
                fault = f"at: {_BEFORE}s, for: {seconds}s, down: plane"
                group.context.impair(";".join(f"{fault} {plane}" for plane in range(PLANES)))
            elif rank == 0:
                threading.Thread(target=_pause, args=(int(processes[1]), seconds)).start()
            delays.append(_slowest_step(group, seconds) - seconds)
    return delays


def _pause(process: int, seconds: float) -> None:
    time.sleep(_BEFORE)
    os.kill(process, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(process, signal.SIGCONT)


def _slowest_step(group: Group, seconds: float) -> float:
    """Run steps until well after the outage; return the time of the slowest (s)."""
    slowest = 0.0
    array = np.empty(SIZE // 4, np.float32)
    is_over = np.zeros(1, np.int64)  # of rank 0's clock, so that both make as many calls
    begun = time.monotonic()
    while not is_over[0]:
        array.fill(group.rank + 1)
        started = time.monotonic()
        group.all_reduce(array)
        slowest = max(slowest, time.monotonic() - started)
        assert (array == group.size * (group.size + 1) / 2).all(), "a wrong sum"
        is_over[0] = time.monotonic() - begun > _BEFORE + seconds + _GAP
        group.broadcast(is_over, 0)
    return slowest


def main() -> None:
    """Print a line per kind of outage: how many were survived, and how long the job took to go on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="per kind")
    options = parser.parse_args()
    kinds = [("planes", 5.0), ("planes", 10.0), ("pause", 8.0)]
    outages: list[Any] = [kind for kind in kinds for _ in range(options.runs)]
    delays = run(2, survive, outages)[0]
    for kind in kinds:
        mine = [delay for outage, delay in zip(outages, delays, strict=True) if outage == kind]
        name = "all planes out" if kind[0] == "planes" else "a rank stopped"
        print(
            f"{name} for {kind[1]:g} s: {len(mine)} of {len(mine)} survived, went on after "
            f"{statistics.median(mine) * 1e3:.0f} ms (median), {max(mine) * 1e3:.0f} ms at most; "
            f"mark {MARK * 1e3:.0f} ms: {'ok' if max(mine) <= MARK else 'missed'}"
        )


if __name__ == "__main__":
    main()
