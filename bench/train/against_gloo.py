"""Compare collectives with Gloo's over TCP on the loopback, measured alternately in the same processes.

Marks: all_reduce, all_gather, reduce_scatter and alltoall of 64 MiB take at most as long as Gloo's, an all_reduce of 8
bytes at most 1.5 times as long.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from bench.train.ranks import run
from openmrc.programs.training.collperf_run import GlooBackend
from openmrc.programs.training.measurement import CollperfSettings, MrcCollectives, seconds_in_place
from openmrc.train.group import Group

LARGE, SMALL = 64 << 20, 8
CASES = (
    ("all_reduce", SMALL, 1.5),
    ("all_reduce", LARGE, 1.0),
    ("all_gather", LARGE, 1.0),
    ("reduce_scatter", LARGE, 1.0),
    ("alltoall", LARGE, 1.0),
)


def compare(rank: int, size: int, address: str, rounds: int) -> None:
    """Measure both backends alternately for every case; rank 0 prints a line per case."""
    host, port = address.split(":")
    with Group.rendezvous(rank, size, address, planes="4", timeout=60) as group:
        gloo = GlooBackend(rank, size, f"{host}:{int(port) + 1}")
        backends: list[Any] = [MrcCollectives(group), gloo]
        for name, amount, mark in CASES:
            settings = CollperfSettings(collective=name, iterations=200 if amount == SMALL else 2, check=False)
            pairs = [[seconds_in_place(backend, settings, amount) for backend in backends] for _ in range(rounds)]
            ours, theirs = (statistics.median(each) * 1e6 for each in zip(*pairs, strict=True))
            if rank == 0:
                ratio = ours / theirs
                print(
                    f"{size} ranks, {name} of {amount:,} bytes: {ours:,.0f} us, Gloo {theirs:,.0f} us, "
                    f"{ratio:.2f} x, mark {mark} x: {'ok' if ratio <= mark else 'missed'}",
                    flush=True,
                )
        gloo.close()


def main() -> None:
    """Print a line per case: both medians, the ratio and the mark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for ranks in options.ranks:
        run(ranks, compare, options.rounds)


if __name__ == "__main__":
    main()
