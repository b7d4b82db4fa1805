"""How many messages of 64 bytes a second does one queue pair write, posted in batches of 64?

Two processes on loopback, 4 planes, one completion a batch; as `SendWr` made for each post, and as a `WriteBatch`,
with two batches outstanding and with a send queue that holds more. Mark: 1,000,000 a second.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from harness.live_peers import Task, goodput

MARK = 1e6
TWO_BATCHES = 2


def main() -> int:
    """Measure, print, and return 1 if the mark is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64, help="writes posted in one call, 1 to 128")
    parser.add_argument("--outstanding", type=int, default=16, help="batches outstanding in the last row, 1 to 64")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = []
    for batched, batches in ((False, TWO_BATCHES), (True, TWO_BATCHES), (True, asked.outstanding)):
        depth = batches * asked.batch
        options = {"max_send_wr": depth}
        task = Task(
            seconds=asked.seconds, size=asked.size, depth=depth, together=asked.batch, batched=batched, options=options
        )
        found = goodput(task)
        rate = found["bytes"] / asked.size / found["seconds"]
        posted = "WriteBatch" if batched else "SendWr"
        rows.append({"posted": posted, "outstanding": depth, "messages_per_second": rate, **found})
        rows[-1] |= {"ratio": rate / MARK, "mark": 1.0}
        if not asked.json:
            _print(rows[-1], asked.size, asked.batch)
    if asked.json:
        print(json.dumps(rows))
    return int(rows[-1]["ratio"] < 1)


def _print(row: dict[str, Any], size: int, batch: int) -> None:
    counters = row["counters"]
    print(
        f"{row['messages_per_second']:,.0f} messages of {size} B a second, {batch} a post as {row['posted']}, "
        f"{row['outstanding']} outstanding; ratio {row['ratio']:.2f}; "
        f"retransmitted {counters['retransmitted']}, timeouts {counters['timeouts']}, drops {row['kernel_drops']}"
    )


if __name__ == "__main__":
    sys.exit(main())
