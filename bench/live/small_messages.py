"""How many messages of 64 bytes a second does one queue pair write, posted in batches of 64?

Two processes on loopback, 4 planes, one completion a batch; as `SendWr` made for each post, and as a `WriteBatch`.
Mark: 1,000,000 a second.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

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
    rows = []
    for batched in (False, True):
        task = Task(seconds=asked.seconds, size=asked.size, depth=128, together=asked.batch, batched=batched)
        found = goodput(task)
        rate = found["bytes"] / asked.size / found["seconds"]
        rows.append({"posted": "WriteBatch" if batched else "SendWr", "messages_per_second": rate, **found})
        rows[-1] |= {"ratio": rate / MARK, "mark": 1.0}
        if not asked.json:
            _print(rows[-1], asked.size, asked.batch)
    if asked.json:
        print(json.dumps(rows))
    return int(rows[-1]["ratio"] < 1)


def _print(row: dict[str, Any], size: int, batch: int) -> None:
    counters = row["counters"]
    print(
        f"{row['messages_per_second']:,.0f} messages of {size} B a second, {batch} a post as {row['posted']}; ratio "
        f"{row['ratio']:.2f}; sent again {counters['retransmitted']}, time-outs {counters['timeouts']}, "
        f"drops {row['kernel_drops']}"
    )


if __name__ == "__main__":
    sys.exit(main())
