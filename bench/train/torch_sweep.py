"""Compare the collectives of `torch.distributed` on `mrc` and on Gloo by size, in turns in the same processes.

All ways of two ranks and of four: over shared memory and over the sockets of four loopback planes, with cores that may
sleep and with cores that a process of the lowest priority keeps awake, as the other threads of a job do. Each rank is
pinned to a core. Goals, over the cells of a way: at most Gloo's time in the median, and in no cell more than 1.5 times
as much over shared memory, 2 times over sockets. Each cell is the quotient of the medians of all rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from bench.train.ranks import run
from bench.train.sweep_results import Sweep, Times, keep, table
from harness.commit import commit

KINDS = ("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
SIZES = (8, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20)  # bytes
ROUND_SECONDS = 0.02  # of calls of one backend before it is the other's turn
SPINNER = "import os, sys; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"


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


def measure(rank: int, size: int, address: str, kinds: list[str], rounds: int, shares: bool) -> Times:
    """Return {kind: {size: (us, Gloo's us)}}, the medians of all rounds at rank 0."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})
    import torch
    import torch.distributed as dist

    os.environ["MRC_SHARED_MEMORY"] = str(int(shares))
    os.environ.setdefault("MRC_PLANES", "4")
    torch.set_num_threads(1)
    dist.init_process_group("mrc", init_method=f"tcp://{address}", rank=rank, world_size=size)
    groups = [None, dist.new_group(backend="gloo")]
    results: Times = {}
    for kind in kinds:
        for nbytes in SIZES:
            calls = [call_of(kind, size, nbytes, group) for group in groups]
            once = torch.tensor([seconds(calls[1], 3, groups[1])])
            seconds(calls[0], 3, groups[0])
            dist.broadcast(once, 0)
            iterations = min(max(int(ROUND_SECONDS / once.item()), 1), 200)
            pairs = [
                [seconds(call, iterations, group) for call, group in zip(calls, groups, strict=True)]
                for _ in range(rounds)
            ]
            ours, theirs = (round(statistics.median(each) * 1e6, 1) for each in zip(*pairs, strict=True))
            results.setdefault(kind, {})[str(nbytes)] = ours, theirs
    dist.destroy_process_group()
    return results


@contextmanager
def awake(cores: list[int]) -> Iterator[None]:
    """Keep cores from sleeping."""
    spinners = [subprocess.Popen([sys.executable, "-c", SPINNER]) for _ in cores]
    for each, core in zip(spinners, cores, strict=True):
        os.sched_setaffinity(each.pid, {core})
    try:
        yield
    finally:
        for each in spinners:
            each.kill()
            each.wait()


def main() -> None:
    """Measure every way, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--keep",
        metavar="MACHINE",
        help="show these runs, under this label, in docs/evidence/training.md (`make figures`)",
    )
    options = parser.parse_args()
    today, sweeps = datetime.now(UTC).date().isoformat(), []
    for ranks in options.ranks:
        for shares in (True, False):
            for is_awake in (True, False):
                with awake(sorted(os.sched_getaffinity(0)) if is_awake else []):
                    times = run(ranks, measure, options.kinds, options.rounds, shares)[0]
                sweeps.append(Sweep(ranks, shares, is_awake, today, options.keep or "this machine", commit(), times))
    print("\n".join(table(sweeps)))
    if options.keep:
        keep(sweeps)


if __name__ == "__main__":
    main()
