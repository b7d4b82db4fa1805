"""Measure the delay of a training step when one of four planes fails under full load.

A step is an all-reduce of 16 MiB; steps follow each other without a pause. In every second round one plane fails at
every rank in the middle of a step, and recovers later; the other rounds measure the same steps undisturbed. With the
remaining bandwidth a step takes 4/3 of the usual time. Mark: the slowest step after the fault takes at most 20 ms
longer than that, or than the slowest step of the undisturbed rounds if that is longer.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from typing import Any

import numpy as np

from bench.train.ranks import run
from openmrc.train.group import Group

PLANES, MARK = 4, 0.020  # s
SIZE = 16 << 20  # bytes
STEPS = 6  # per round; the fault occurs in the third


def rounds(rank: int, size: int, address: str, count: int, seed: int) -> list[list[float]]:
    """Return the step times (s) of each round at this rank."""
    array = np.ones(SIZE // 4, np.float32)
    rng = random.Random(seed)
    with Group.rendezvous(rank, size, address, planes=str(PLANES), timeout=60) as group:
        usual = statistics.median(step(group, array) for _ in range(8))
        measured = []
        for number in range(2 * count):
            plane, moment = rng.randrange(PLANES), (2 + rng.random()) * usual
            group.barrier()
            if number % 2:
                group.context.impair(f"at: {moment * 1e3:.2f}ms, for: {4 * usual * 1e3:.2f}ms, down: plane {plane}")
            times = np.array([step(group, array) for _ in range(STEPS)])
            time.sleep(0.3)  # until probes have restored the plane
            measured.append(times.tolist())
    return measured


def step(group: Group, array: Any) -> float:
    """Run one step; return its duration (s)."""
    started = time.monotonic()
    group.all_reduce(array)
    return time.monotonic() - started


def main() -> None:
    """Print the delay of the slowest step: the median and the worst round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for ranks in options.ranks:
        per_rank = np.array(run(ranks, rounds, options.rounds, options.seed))
        steps = per_rank.max(axis=0)  # the slowest rank of each step
        usual = float(np.median(steps[:, :2]))
        slowest = steps[:, 2:].max(axis=1)  # the fault is in the third step, or in the fourth if the third was fast
        share = usual / (PLANES - 1)  # delay of a step with three quarters of the bandwidth
        delays, undisturbed = slowest[1::2] - usual, slowest[::2] - usual
        worst = delays.max() - max(share, undisturbed.max())
        print(
            f"{ranks} ranks, steps of {usual * 1e3:.1f} ms, {len(delays)} failures of a plane: slowest step "
            f"delayed by {_ms(delays)}, in undisturbed rounds by {_ms(undisturbed)}; lost share {share * 1e3:.1f} ms, "
            f"mark {MARK * 1e3:.0f} ms: {'ok' if worst <= MARK else 'missed'}",
            flush=True,
        )


def _ms(delays: Any) -> str:
    return f"{np.median(delays) * 1e3:.1f} ms (median) to {delays.max() * 1e3:.1f} ms"


if __name__ == "__main__":
    main()
