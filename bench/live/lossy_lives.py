"""Does every write of many short lives under loss complete in time?

    python -m bench.live.lossy_lives [--lives 2000] [--seed 1] [--loss 1%] [--longest 10]

A life is two contexts, a connection and some writes of drawn sizes, with loss on both sides by its seed; it ends in
some milliseconds. A write that takes longer than `--longest` seconds fails the life, which is named with its seed and
with what the queue pair says of itself.
"""

from __future__ import annotations

import argparse
import json
import random
import time

from harness.live_pair import SMALL, joined
from openmrc.verbs import ConnectionOptions, ContextAttr, DeadlineError, ExchangeError

SIZES = (1, 8, 256, 4096, 4097, 65_536, 300_000)
OPTIONS = ConnectionOptions(mpr=4, max_wimm=16, max_recv_wr=64)


def life(seed: int, loss: str, longest: float) -> tuple[float, str]:
    """Live once; return how long (s) the slowest write took, and what was wrong."""
    drawn = random.Random(seed)
    planes, writes = drawn.choice((1, 2, 4)), drawn.randint(3, 12)
    attr = ContextAttr(**{**vars(SMALL), "seed": seed})
    slowest = 0.0
    with joined(planes=planes, attr=attr, size=max(SIZES), faults=f"loss: {loss}", options=OPTIONS) as pair:
        pair.contexts[0].impair(f"loss: {loss}")
        end, target = pair.ends[0], pair.ends[0].remote.regions[0]
        for number in range(writes):
            size = drawn.choice(SIZES)
            began = time.monotonic()
            try:
                end.write(pair.regions[0][:size], target, timeout=longest)
            except (DeadlineError, ExchangeError) as error:
                return time.monotonic() - began, f"write {number} of {writes}, {size} bytes, {planes} planes: {error}"
            slowest = max(slowest, time.monotonic() - began)
    return slowest, ""


def main() -> None:
    """Live and print a line; exit code 1 if a life failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lives", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1, help="of the first life; the others follow")
    parser.add_argument("--loss", default="1%")
    parser.add_argument("--longest", type=float, default=10.0, help="s that a write may take")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    slowest, failed = (0.0, 0), []
    for seed in range(asked.seed, asked.seed + asked.lives):
        took, wrong = life(seed, asked.loss, asked.longest)
        slowest = max(slowest, (took, seed))
        if wrong:
            failed.append(seed)
            print(f"seed {seed}: {wrong}", flush=True)
    result = {"lives": asked.lives, "failed": failed, "slowest_s": slowest[0], "its_seed": slowest[1]}
    words = f"{asked.lives} lives, {len(failed)} failed; slowest write {slowest[0]:.3f} s (seed {slowest[1]})"
    print(json.dumps(result) if asked.json else words)
    raise SystemExit(len(failed) > 0)


if __name__ == "__main__":
    main()
