"""Is every byte in its place after random faults? `sudo python -m bench.lab.schedules [SCHEDULES] [FIRST SEED]`.

Streams of fifty schedules each, every schedule half a second of one to six faults; a thousand take about eleven
minutes. SCHEDULES and FIRST SEED split them into parts.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench.lab.experiments.schedules import random_schedule
from bench.lab.experiments.trial import stream
from harness import labs
from openmrc.lab.faults import Breaker, ExecutedStep

FABRIC = Path(__file__).parents[2] / "scenarios" / "fabrics" / "lab-slow.yaml"
NAME = "bench-schedules"
A_STREAM = 50
LENGTH_S = 0.5


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with labs.held(FABRIC, NAME):
        damaged = run(Breaker(NAME), range(first, first + count))
    print(f"{count} schedules from seed {first}: {damaged} streams lost or misplaced a byte")
    sys.exit(1 if damaged else 0)


def run(breaker: Breaker, seeds: range) -> int:
    damaged = 0
    for begin in range(0, len(seeds), A_STREAM):
        some = seeds[begin : begin + A_STREAM]

        def during(some: range = some) -> list[ExecutedStep]:
            return [done for seed in some for done in breaker.run(random_schedule(breaker.lab, seed, LENGTH_S))]

        began = time.perf_counter()
        trial = stream(breaker, "mrc", "h0", "h5", len(some) * LENGTH_S * 1.05, during)
        breaker.clear()
        damaged += not trial.is_whole
        state = "whole" if trial.is_whole else f"{trial.arrivals.wrong} wrong of {len(trial.times)}"
        print(f"seeds {some[0]}..{some[-1]}: {len(trial.times)} pieces, {state}, {time.perf_counter() - began:.1f} s")
    return damaged


if __name__ == "__main__":
    main()
