"""Check that a short training ends with the same bits under random fault schedules.

Each schedule (drawn from a seed) takes planes down and loses, delays, reorders, duplicates and corrupts packets at
every rank, but never takes all planes down for long. Every run must end without an error and with the same loss, bit
for bit, as the undisturbed run. Mark: 1,000 schedules.
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
    """Return a schedule of up to six faults within 0.15 s, at random planes."""
    steps = [
        step(rng, f"plane {rng.randrange(PLANES)}", rng.uniform(0, 0.05), rng.uniform(0.005, 0.1))
        for _ in range(rng.randint(1, 6))
    ]
    return "[" + ", ".join(steps) + "]"


def step(rng: random.Random, where: str, at: float, lasts: float) -> str:
    """Return a fault of a random kind at `where`, which starts at `at` (s) and lasts `lasts` (s)."""
    kind = rng.choice(("down", "loss", "reorder", "duplicate", "corruption", "delay"))
    if kind == "down":
        what = f"down: {where}"
    elif kind == "delay":
        what = f"delay: {rng.uniform(0.1, 3):.2f}ms, jitter: {rng.uniform(0, 1):.2f}ms, on: {where}"
    else:
        what = f"{kind}: {rng.uniform(0.1, 20):.1f}%, on: {where}"
    return "{" + f"at: {at * 1e3:.0f}ms, for: {lasts * 1e3:.0f}ms, {what}" + "}"


def train(group: Group) -> bytes:
    """Train a linear model with all ranks; return its losses and weights as bytes."""
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


def run_schedules(rank: int, size: int, address: str, schedules: int, seed: int) -> list[Any]:
    """Return whether each training ended with the expected bits, and the number of retransmitted packets."""
    results: list[Any] = []
    with Group.rendezvous(rank, size, address, planes=str(PLANES), timeout=60) as group:
        undisturbed = train(group)
        rng = random.Random(seed * 1000 + rank)
        for _ in range(schedules):
            group.barrier()
            group.context.impair(schedule(rng))
            results.append(train(group) == undisturbed)
        retransmitted = sum(plane.retransmitted for plane in group.context.plane_counters())
    return [results, retransmitted]


def main() -> None:
    """Print the number of schedules, and how many ended with different bits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    started = time.monotonic()
    answers = run(options.ranks, run_schedules, options.schedules, options.seed)
    different = sum(not all(each) for each in zip(*(results for results, _ in answers), strict=True))
    retransmitted = sum(count for _, count in answers)
    print(
        f"{options.ranks} ranks, {options.schedules} schedules in {time.monotonic() - started:.0f} s: {different} "
        f"ended with different bits, {retransmitted:,} packets retransmitted: {'ok' if not different else 'missed'}"
    )


if __name__ == "__main__":
    main()
