"""How much of a bare UDP_SEGMENT/UDP_GRO pair of processes does one queue pair over 4 planes move?

1 MiB writes, 4 KiB MTU, two processes on loopback, the bare pair right before and right after.
Mark: at least half, and more than 10 Gb/s.
"""

from __future__ import annotations

import argparse
import json

from bench._support.live_peers import Task, bare_goodput, goodput


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--size", type=int, default=1 << 20)
    parser.add_argument("--depth", type=int, default=32)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    task = Task(seconds=asked.seconds, size=asked.size, depth=asked.depth)
    before = bare_goodput(task)
    ours = goodput(task)
    after = bare_goodput(task)
    bare = (before + after) / 2
    result = {
        "ours_gbps": ours["gbps"],
        "bare_gbps": [before, after],
        "ratio": ours["gbps"] / bare,
        "mark": 0.5,
        **ours,
    }
    if asked.json:
        print(json.dumps(result))
    else:
        print(f"one queue pair, 4 planes: {ours['gbps']:.1f} Gb/s; bare pair: {before:.1f} and {after:.1f} Gb/s")
        print(f"ratio {result['ratio']:.2f} (mark: 0.5); {ours['counters']}, kernel drops {ours['kernel_drops']}")


if __name__ == "__main__":
    main()
