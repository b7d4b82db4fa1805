"""Compare the collectives of `torch.distributed` on `mrc` and on Gloo by size, in turns in the same processes.

Marks: at every size at most as long as Gloo, and at most 0.8 of its time in the median of all sizes, per collective.
Each figure is the quotient of the medians of all rounds. `--network` keeps the ranks of this host off shared memory.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from bench.train.ranks import run
from bench.train.sweep_results import Sweep, keep, size_text, verdict
from harness.commit import commit

KINDS = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
SIZES = (8, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)  # bytes
ROUND_SECONDS = 0.03  # of calls of one backend before it is the other's turn


def call_of(kind: str, size: int, nbytes: int, group: Any) -> Callable[[], Any]:
    """Return a function that makes one call; `nbytes` is the larger of what a rank sends and receives."""
    import torch
    import torch.distributed as dist

    count = max(nbytes // 4, 2)
    whole = torch.ones(-(-count // size) * size)
    part = torch.ones(len(whole) // size)
    rank = dist.get_rank()
    to = (rank + 1) % size
    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "broadcast": lambda: dist.broadcast(whole, 0, group=group),
        "reduce": lambda: dist.reduce(whole, 0, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
        "all_to_all": lambda: dist.all_to_all_single(torch.empty_like(whole), whole, group=group),
    }
    if kind == "send_recv":
        out = torch.empty_like(whole)

        def shift() -> None:
            works = [dist.isend(whole, to, group=group), dist.irecv(out, (rank - 1) % size, group=group)]
            for work in works:
                work.wait()

        return shift
    return calls[kind]


def seconds(call: Callable[[], Any], iterations: int, group: Any) -> float:
    """Return the time of one call, by this rank's clock."""
    import torch.distributed as dist

    dist.barrier(group=group)
    begun = time.perf_counter()
    for _ in range(iterations):
        call()
    dist.barrier(group=group)
    return (time.perf_counter() - begun) / iterations


def measure(rank: int, size: int, address: str, kinds: list[str], sizes: list[int], rounds: int, faces: str) -> Any:
    """Return {kind: {size: (seconds, Gloo's seconds)}}, the medians of all rounds at rank 0."""
    import torch
    import torch.distributed as dist

    os.environ["MRC_SHARED_MEMORY"] = faces
    os.environ.setdefault("MRC_PLANES", "4")
    torch.set_num_threads(1)
    dist.init_process_group("mrc", init_method=f"tcp://{address}", rank=rank, world_size=size)
    groups = [None, dist.new_group(backend="gloo")]
    results: dict[str, dict[int, tuple[float, float]]] = {}
    for kind in kinds:
        for nbytes in sizes:
            calls = [call_of(kind, size, nbytes, group) for group in groups]
            once = torch.tensor([seconds(calls[1], 3, groups[1])])
            seconds(calls[0], 2, groups[0])
            dist.broadcast(once, 0)
            iterations = min(max(int(ROUND_SECONDS / once.item()), 1), 300)
            pairs = [
                [seconds(call, iterations, group) for call, group in zip(calls, groups, strict=True)]
                for _ in range(rounds)
            ]
            ours, theirs = (statistics.median(each) for each in zip(*pairs, strict=True))
            results.setdefault(kind, {})[nbytes] = ours, theirs
    dist.destroy_process_group()
    return results


def main() -> None:
    """Print a table per number of ranks: the quotient by size, the median, and whether the marks are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--network", action="store_true", help="no shared memory between the ranks of this host")
    parser.add_argument(
        "--keep", metavar="MACHINE", help="add the run, under this label, to what docs/evidence/training.md shows"
    )
    options = parser.parse_args()
    for ranks in options.ranks:
        faces = "0" if options.network else "1"
        results = run(ranks, measure, options.kinds, options.sizes, options.rounds, faces)[0]
        _print(ranks, results, options.sizes)
        if options.keep:
            times = {
                kind: {
                    str(size): (round(ours * 1e6, 1), round(theirs * 1e6, 1)) for size, (ours, theirs) in each.items()
                }
                for kind, each in results.items()
            }
            keep(Sweep(ranks, datetime.now(UTC).date().isoformat(), options.keep, commit(), times))


def _print(ranks: int, results: dict[str, dict[int, tuple[float, float]]], sizes: list[int]) -> None:
    print(f"\n{ranks} ranks: time of mrc / Gloo (mrc in us)", flush=True)
    print("| | " + " | ".join(map(size_text, sizes)) + " | median | |")
    print("|---" * (len(sizes) + 3) + "|")
    for kind, by_size in results.items():
        quotients = [ours / theirs for ours, theirs in by_size.values()]
        cells = [f"{ours / theirs:.2f} ({ours * 1e6:,.0f})" for ours, theirs in by_size.values()]
        median = statistics.median(quotients)
        print(f"| {kind} | {' | '.join(cells)} | {median:.2f} | {verdict(quotients)} |", flush=True)


if __name__ == "__main__":
    main()
