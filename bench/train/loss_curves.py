"""Check that DDP has the same loss curve, bit for bit, with and without faults.

The same processes train the same network twice: undisturbed, then while planes fail and lose, delay, reorder,
duplicate and corrupt packets at every rank. Mark: no bit differs over 200 steps and 20 faults.
"""

from __future__ import annotations

import argparse
import os
import random

from bench.train.fault_schedules import PLANES, step
from bench.train.ranks import run
from openmrc.base.faults import Schedule
from openmrc.programs.training.digits import Outcome
from openmrc.programs.training.digits import run as train
from openmrc.units import PS_PER_S


def schedule(faults: int, seconds: float, seed: int) -> str:
    """Return `faults` successive faults over `seconds`, none of them at plane 0."""
    rng = random.Random(seed)
    each = seconds / faults
    steps = [step(rng, f"plane {rng.randrange(1, PLANES)}", number * each, each * 0.7) for number in range(faults)]
    return "[" + ", ".join(steps) + "]"


def verdict(outcomes: list[Outcome], ranks: int) -> str:
    """Return the result line for one number of ranks."""
    outcome = outcomes[0]
    disturbed = outcome.disturbed
    started = sum(
        not each.ends and each.at / PS_PER_S < disturbed.at[-1] for each in Schedule.parse(outcome.faults).steps
    )
    different = sum(one.undisturbed.loss != one.disturbed.loss for one in outcomes)
    retransmitted = sum(one.disturbed.retransmitted for one in outcomes)
    return (
        f"{ranks} ranks, {len(disturbed.loss)} steps, {started} faults, {retransmitted:,} packets retransmitted: loss "
        f"{disturbed.loss[0]:.6f} to {disturbed.loss[-1]:.9f}, curves of {different} ranks differ: "
        f"{'missed' if different else 'ok'}"
    )


def main() -> None:
    """Print a line for each number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=2.0, help="period of the faults")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    faults = schedule(options.faults, options.seconds, options.seed)
    for ranks in options.ranks:
        print(verdict(run(ranks, train, PLANES, options.steps, faults), ranks), flush=True)


if __name__ == "__main__":
    main()
