"""Time the training step of a transformer of 17 million parameters with DDP, over `mrc` and over Gloo, in turns.

Every rank has one thread of torch. Mark: the median step at most 0.95 of Gloo's. `--layers 3 --width 240` has
2.6 million parameters; MRC_SHARED_MEMORY=0 keeps ranks off shared memory.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

from bench.train.ranks import run

MARK = 0.95
_TOKENS, _WORDS = 32, 1000
_STEPS = 3  # of one turn


def steps(module: Any, group: Any) -> list[float]:
    """Return the seconds of some steps."""
    import torch
    import torch.distributed as dist
    from torch.nn import functional

    seconds = []
    words = torch.randint(_WORDS, (2, _TOKENS + 1), generator=torch.Generator().manual_seed(dist.get_rank()))
    for _ in range(_STEPS):
        dist.barrier(group=group)
        begun = time.perf_counter()
        module.zero_grad()
        functional.cross_entropy(module(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten()).backward()
        dist.barrier(group=group)
        seconds.append(time.perf_counter() - begun)
    return seconds


def measure(
    rank: int, size: int, address: str, rounds: int, layers: int, width: int
) -> tuple[int, list[float], list[float]]:
    """Return (parameters, seconds of the steps over mrc, over Gloo)."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    os.environ.setdefault("MRC_PLANES", "4")
    torch.set_num_threads(1)
    dist.init_process_group("mrc", init_method=f"tcp://{address}", rank=rank, world_size=size)
    groups = [dist.group.WORLD, dist.new_group(backend="gloo")]
    modules = []
    for group in groups:
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
        parts = nn.Embedding(_WORDS, width), nn.TransformerEncoder(layer, layers), nn.Linear(width, _WORDS)
        modules.append(DistributedDataParallel(nn.Sequential(*parts), process_group=group))
    times: list[list[float]] = [[], []]
    for turn in range(rounds + 1):
        for module, group, seconds in zip(modules, groups, times, strict=True):
            taken = steps(module, group)
            seconds += taken if turn else []  # the first turn warms up
    count = sum(each.numel() for each in modules[0].parameters())
    dist.destroy_process_group()
    return count, *times


def main() -> None:
    """Print a line per number of ranks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--width", type=int, default=512)
    options = parser.parse_args()
    for ranks in options.ranks:
        count, ours, theirs = run(ranks, measure, options.rounds, options.layers, options.width)[0]
        quotient = statistics.median(ours) / statistics.median(theirs)
        print(
            f"{ranks} ranks, {count / 1e6:.1f} M parameters: step {statistics.median(ours) * 1e3:.0f} ms, Gloo "
            f"{statistics.median(theirs) * 1e3:.0f} ms: {quotient:.2f}: {'ok' if quotient <= MARK else 'missed'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
