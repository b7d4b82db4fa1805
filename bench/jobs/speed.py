"""How long do 200 jobs of 30 days on 100,000 GPUs take? On one thread and on all processors; the goal is 20 s.

python -m bench.jobs.speed
"""

from __future__ import annotations

import os
import time
from dataclasses import replace

import numpy as np

from openmrc.fabric.model.parts import load_parts
from openmrc.planner.comparison import JobQuestion, answer

GOAL_S = 20.0


def main() -> None:
    """Print the time of each network, compiled before."""
    parts, question = load_parts(), JobQuestion(jobs=200)
    answer(replace(question, jobs=1), "mrc", parts)
    for network in ("mrc", "roce"):
        shares = []
        for threads in (1, os.cpu_count() or 1):
            begun = time.perf_counter()
            found = answer(replace(question, threads=threads), network, parts)
            shares.append(found.spent)
            took = time.perf_counter() - begun
            events = found.counts.sum()
            print(
                f"{network}, {threads} threads: {took:.1f} s (goal {GOAL_S:g}), {events / took / 1e6:.2f} M failures/s"
            )
        print(f"{network}: the same numbers: {np.array_equal(shares[0], shares[1])}")


if __name__ == "__main__":
    main()
