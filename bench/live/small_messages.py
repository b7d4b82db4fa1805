"""How many messages of 64 bytes a second does one queue pair write, posted in batches of 64?

Two processes on loopback, 4 planes, one completion a batch. Mark: 1,000,000 a second.
"""

from __future__ import annotations

import argparse
import json
import sys

from bench._support.live_peers import Task, goodput

MARK = 1e6


def main() -> int:
    """Measure, print, and return 1 if the mark is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64, help="writes posted in one call, 1 to 128")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = goodput(Task(seconds=asked.seconds, size=asked.size, depth=128, together=asked.batch))
    rate = found["bytes"] / asked.size / found["seconds"]
    result = {"messages_per_second": rate, "ratio": rate / MARK, "mark": 1.0, **found}
    if asked.json:
        print(json.dumps(result))
    else:
        counters = found["counters"]
        print(f"{rate:,.0f} messages of {asked.size} B a second in batches of {asked.batch}; ratio {rate / MARK:.2f}")
        print(
            f"sent again {counters['retransmitted']}, time-outs {counters['timeouts']}, drops {found['kernel_drops']}"
        )
    return int(rate < MARK)


if __name__ == "__main__":
    sys.exit(main())
