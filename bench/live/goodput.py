"""How much of a bare UDP_SEGMENT/UDP_GRO pair of processes does one queue pair of `mrc perf` over 4 planes move?

1 MiB writes, 4 KiB MTU, two processes on loopback, the bare pair right before and right after.
Mark: at least 0.8.
"""

from __future__ import annotations

import argparse
import json

from harness.live_peers import Task, bare_goodput
from harness.perf_pair import perf


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--size", type=int, default=1 << 20)
    parser.add_argument("--depth", type=int, default=128)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    before = bare_goodput(Task(seconds=asked.seconds))
    theirs, ours = perf({"sizes": [asked.size], "duration": asked.seconds, "depth": asked.depth, "iterations": 0})
    after = bare_goodput(Task(seconds=asked.seconds))
    drops = theirs["kernel_drops"]
    result = {
        "ours_gbps": ours["gbps"],
        "bare_gbps": [before, after],
        "ratio": ours["gbps"] / ((before + after) / 2),
        "mark": 0.8,
        "kernel_drops": drops,
        "counters": ours["counters"],
    }
    if asked.json:
        print(json.dumps(result))
    else:
        print(f"one queue pair, 4 planes: {ours['gbps']:.1f} Gb/s; bare pair: {before:.1f} and {after:.1f} Gb/s")
        print(f"ratio {result['ratio']:.2f} (mark: 0.8); kernel drops {drops}; {ours['counters'][0]}")


if __name__ == "__main__":
    main()
