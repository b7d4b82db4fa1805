"""Does DDP have the same loss curve, bit for bit, with and without faults?

The same network is trained twice by the same processes: undisturbed, then while planes fall silent, lose, delay,
reorder, duplicate and corrupt packets at every rank. Mark: no bit differs over 200 steps and 20 faults.
"""

from __future__ import annotations

import argparse
import os
import random

from bench.train.fault_schedules import PLANES, step
from bench.train.ranks import run
from openmrc.faults import Schedule
from openmrc.train.demo import Outcome
from openmrc.train.demo import run as train
from openmrc.units import PS_PER_S


def schedule(faults: int, seconds: float, seed: int) -> str:
    """Return so many faults, one after the other over that time, of which the first plane is spared."""
    rng = random.Random(seed)
    each = seconds / faults
    steps = [step(rng, f"plane {rng.randrange(1, PLANES)}", number * each, each * 0.7) for number in range(faults)]
    return "[" + ", ".join(steps) + "]"


def verdict(outcomes: list[Outcome], ranks: int) -> str:
    """Return the line for one number of ranks."""
    outcome = outcomes[0]
    seen = outcome.disturbed
    begun = sum(not each.ends and each.at / PS_PER_S < seen.at[-1] for each in Schedule.parse(outcome.faults).steps)
    differ = sum(one.undisturbed.loss != one.disturbed.loss for one in outcomes)
    again = sum(one.disturbed.retransmitted for one in outcomes)
    return (
        f"{ranks} ranks, {len(seen.loss)} steps, {begun} faults, {again:,} packets sent again: loss "
        f"{seen.loss[0]:.6f} to {seen.loss[-1]:.9f}, curves of {differ} ranks differ: {'missed' if differ else 'ok'}"
    )


def main() -> None:
    """Print a line for each number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2.0, help="over which the faults are spread")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    faults = schedule(options.faults, options.seconds, options.seed)
    for ranks in options.ranks:
        print(verdict(run(ranks, train, PLANES, options.steps, faults), ranks), flush=True)


if __name__ == "__main__":
    main()
