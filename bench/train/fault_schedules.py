"""Does a short training end with the same bits under any schedule of faults?

Each of the schedules (drawn from a seed) takes planes away, loses, delays, reorders, duplicates and corrupts packets
at every rank, never all planes at once for long. Every run must end without an error and with the same loss, bit for
bit, as the undisturbed one. Mark: 1,000 schedules.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

import numpy as np

from bench.train.ranks import run
from openmrc.train.group import Group
from openmrc.train.reduction import Op

PLANES, STEPS = 4, 12


def schedule(rng: random.Random) -> str:
    """Return a schedule of a tenth of a second: some steps, each for a while, at random planes."""
    steps = [
        step(rng, f"plane {rng.randrange(PLANES)}", rng.uniform(0, 0.05), rng.uniform(0.005, 0.1))
        for _ in range(rng.randint(1, 6))
    ]
    return "[" + ", ".join(steps) + "]"


def step(rng: random.Random, where: str, at: float, lasts: float) -> str:
    """Return a fault of any kind: where, when and for how long (s)."""
    kind = rng.choice(("down", "loss", "reorder", "duplicate", "corruption", "delay"))
    if kind == "down":
        what = f"down: {where}"
    elif kind == "delay":
        what = f"delay: {rng.uniform(0.1, 3):.2f}ms, jitter: {rng.uniform(0, 1):.2f}ms, on: {where}"
    else:
        what = f"{kind}: {rng.uniform(0.1, 20):.1f}%, on: {where}"
    return "{" + f"at: {at * 1e3:.0f}ms, for: {lasts * 1e3:.0f}ms, {what}" + "}"


def train(group: Group) -> bytes:
    """Return the losses of a linear model that all ranks train together, as bytes."""
    rng = np.random.default_rng(group.rank)
    inputs, truth = rng.standard_normal((256, 400)).astype(np.float32), np.ones((400, 50), np.float32)
    targets = inputs @ truth
    weights, losses = np.zeros((400, 50), np.float32), []
    for _ in range(STEPS):
        error = inputs @ weights - targets
        gradient = inputs.T @ error / len(inputs)
        loss = np.array([np.square(error).mean()])
        group.all_reduce(gradient, Op.AVG)
        group.all_reduce(loss, Op.AVG)
        weights -= np.float32(0.05) * gradient
        losses.append(loss[0])
    return np.array(losses).tobytes() + weights.tobytes()


def many(rank: int, size: int, address: str, schedules: int, seed: int) -> list[Any]:
    """Return for each schedule whether its training ended with the right bits, and what was retransmitted."""
    results: list[Any] = []
    with Group.rendezvous(rank, size, address, planes=str(PLANES), timeout=60) as group:
        undisturbed = train(group)
        rng = random.Random(seed * 1000 + rank)
        for _ in range(schedules):
            group.barrier()
            group.context.impair(schedule(rng))
            results.append(train(group) == undisturbed)
        repeated = sum(plane.retransmitted for plane in group.context.plane_counters())
    return [results, repeated]


def main() -> None:
    """Print how many schedules were run and how many ended otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begun = time.monotonic()
    answers = run(options.ranks, many, options.schedules, options.seed)
    other = sum(not all(each) for each in zip(*(results for results, _ in answers), strict=True))
    repeated = sum(count for _, count in answers)
    print(
        f"{options.ranks} ranks, {options.schedules} schedules in {time.monotonic() - begun:.0f} s: {other} ended "
        f"otherwise, {repeated:,} packets retransmitted: {'ok' if not other else 'missed'}"
    )


if __name__ == "__main__":
    main()
