"""What is left of the goodput when every plane loses packets at random?

Marks: 0.1 % loss leaves at least 90 %, 1 % at least a third (the figure published for MRC hardware).
"""

from __future__ import annotations

import argparse
import json

from harness.live_peers import Task, goodput

MARKS = {"0.1%": 0.9, "1%": 1 / 3}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    free = [goodput(Task(seconds=asked.seconds))]
    lossy = {loss: goodput(Task(seconds=asked.seconds, faults=f"loss: {loss}")) for loss in MARKS}
    free.append(goodput(Task(seconds=asked.seconds)))
    whole = sum(each["gbps"] for each in free) / 2
    result = {
        "loss_free_gbps": [each["gbps"] for each in free],
        "lossy": {loss: {**each, "ratio": each["gbps"] / whole, "mark": MARKS[loss]} for loss, each in lossy.items()},
    }
    if asked.json:
        print(json.dumps(result))
        return
    print(f"loss-free: {free[0]['gbps']:.1f} and {free[1]['gbps']:.1f} Gb/s")
    for loss, each in lossy.items():
        counters = each["counters"]
        print(
            f"{loss} loss: {each['gbps']:.1f} Gb/s, ratio {each['gbps'] / whole:.2f} (mark: {MARKS[loss]:.2f}); "
            f"{counters['retransmitted']} of {counters['sent_packets']} retransmitted, {counters['timeouts']} timeouts"
        )


if __name__ == "__main__":
    main()
