"""Are our collectives as fast as Gloo's over TCP on the loopback, in the same processes, in turns?

Marks: 64 MiB all-reduce, all_gather, reduce_scatter and alltoall at most as long as Gloo's; 8 bytes at most 1.5 x.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from bench.train.ranks import run
from openmrc.train.collperf import MrcBackend, Settings, measure
from openmrc.train.gloo_backend import GlooBackend
from openmrc.train.group import Group

LARGE, SMALL = 64 << 20, 8
CASES = (
    ("all_reduce", SMALL, 1.5),
    ("all_reduce", LARGE, 1.0),
    ("all_gather", LARGE, 1.0),
    ("reduce_scatter", LARGE, 1.0),
    ("alltoall", LARGE, 1.0),
)


def times(rank: int, size: int, address: str, rounds: int) -> dict[tuple[str, int], list[tuple[float, float]]]:
    """Return (ours, Gloo's) microseconds of every case, a pair per round."""
    host, port = address.split(":")
    result: dict[tuple[str, int], list[tuple[float, float]]] = {}
    with Group.rendezvous(rank, size, address, planes="4", timeout=60) as group:
        gloo = GlooBackend(rank, size, f"{host}:{int(port) + 1}")
        backends: list[Any] = [MrcBackend(group), gloo]
        for name, amount, _ in CASES:
            settings = Settings(collective=name, iterations=200 if amount == SMALL else 3, check=False)
            pairs = []
            for _ in range(rounds):
                ours, theirs = (measure(backend, settings, amount).in_place.time_us for backend in backends)
                pairs.append((ours, theirs))
            result[name, amount] = pairs
        gloo.close()
    return result


def main() -> None:
    """Print a line per case: both medians, the ratio, the mark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    for ranks in options.ranks:
        measured = run(ranks, times, options.rounds)[0]
        for name, amount, mark in CASES:
            ours, theirs = (statistics.median(each) for each in zip(*measured[name, amount], strict=True))
            ratio = ours / theirs
            print(
                f"{ranks} ranks, {name} of {amount:,} bytes: {ours:,.0f} us, Gloo {theirs:,.0f} us, "
                f"{ratio:.2f} x, mark {mark} x: {'ok' if ratio <= mark else 'missed'}"
            )


if __name__ == "__main__":
    main()
