"""How late is a training step when one of four planes falls silent under full load?

A step is an all-reduce of 16 MiB, one after the other. In every second round one plane falls silent at every rank in
the middle of a step, and returns later; the other rounds show what the machine does to the same steps anyway. Mark: the
slowest step after the fault takes at most 20 ms more than the share of the bandwidth that is lost explains, which is
the usual time times 4/3; and more than the slowest step of undisturbed rounds, where that is longer.
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
STEPS = 6  # of which the third is disturbed


def rounds(rank: int, size: int, address: str, count: int, seed: int) -> list[list[float]]:
    """Return the times of the steps of each round, the longest over the ranks."""
    array = np.ones(SIZE // 4, np.float32)
    rng = random.Random(seed)
    with Group.rendezvous(rank, size, address, planes=str(PLANES), timeout=60) as group:
        usual = statistics.median(step(group, array) for _ in range(8))
        seen = []
        for number in range(2 * count):
            plane, moment = rng.randrange(PLANES), (2 + rng.random()) * usual
            group.barrier()
            if number % 2:
                group.context.impair(f"at: {moment * 1e3:.2f}ms, for: {4 * usual * 1e3:.2f}ms, down: plane {plane}")
            times = np.array([step(group, array) for _ in range(STEPS)])
            time.sleep(0.3)  # for probes to bring the plane back
            seen.append(times.tolist())
    return seen


def step(group: Group, array: Any) -> float:
    """Return the seconds of one."""
    begun = time.monotonic()
    group.all_reduce(array)
    return time.monotonic() - begun


def main() -> None:
    """Print how late the disturbed step was: the median and the worst round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for ranks in options.ranks:
        per_rank = np.array(run(ranks, rounds, options.rounds, options.seed))
        steps = per_rank.max(axis=0)  # the slowest rank of each step
        usual = float(np.median(steps[:, :2]))
        slowest = steps[:, 2:].max(axis=1)  # the fault falls into the third step, or the fourth if that was quick
        share = usual / (PLANES - 1)  # what a step loses with a quarter of the bandwidth
        late, undisturbed = slowest[1::2] - usual, slowest[::2] - usual
        worst = late.max() - max(share, undisturbed.max())
        print(
            f"{ranks} ranks, steps of {usual * 1e3:.1f} ms, {len(late)} times a plane falls silent: slowest step "
            f"late by {_ms(late)}, in undisturbed rounds by {_ms(undisturbed)}; lost share {share * 1e3:.1f} ms, "
            f"mark {MARK * 1e3:.0f} ms: {'ok' if worst <= MARK else 'missed'}",
            flush=True,
        )


def _ms(late: Any) -> str:
    return f"{np.median(late) * 1e3:.1f} ms (median) to {late.max() * 1e3:.1f} ms"


if __name__ == "__main__":
    main()
