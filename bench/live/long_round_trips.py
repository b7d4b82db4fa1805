"""What is left of the goodput when round trips are long, and when a long path loses packets?

Two processes on loopback, one queue pair, four planes; impairments hold every packet back for half of the round trip at
each end. In turns with each row the same is measured with 2 us held back, which costs the endpoints as much work; the
turn of the median ratio is printed. Marks: 0.8 of the lesser of that and of the peer's window (`mpr`, 16 MiB) in each
round trip, on a machine that has processors to spare; with 1 % loss at 20 ms a third of the rate without, and there a
window of 4,096 packets of which each lost one is sent again 1.25 round trips later passes in 2.4 round trips (0.41).
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass

from harness.live_peers import Task, goodput

ROUND_TRIPS_MS = (0.1, 1.0, 5.0, 20.0, 100.0)
WINDOW = 32 * 128 * 4096  # bytes: ConnectionOptions.mpr
LOSSY_MS, LOSS = 20.0, "1%"
SHARE, LOSSY_SHARE = 0.8, 1 / 3
ROUNDS = 30  # round trips until the window is as large as it gets


@dataclass(frozen=True)
class Row:
    """One round trip, with or without loss."""

    round_trip_ms: float
    loss: str
    mb_per_s: float
    of_mb_per_s: float  # what it is compared with
    mark: float
    srtt_us: float
    retransmitted: int
    timeouts: int

    @property
    def ratio(self) -> float:
        """Return the share of what it is compared with."""
        return self.mb_per_s / self.of_mb_per_s


def measured(round_trip_ms: float, loss: str, seconds: float) -> dict[str, float]:
    """Return MB/s and what the sender counted."""
    held = f"delay: {round(round_trip_ms * 500)}us"
    lossy = f"{held}, loss: {loss}" if loss else held
    took = ROUNDS * round_trip_ms / 1e3
    task = Task(seconds=seconds + took, warm=0.5 + took, depth=64, slots=64, faults=lossy, returning=held)
    result = goodput(task)
    return {"mb_per_s": result["gbps"] * 125, **result["counters"]}


def row(round_trip_ms: float, loss: str, turns: int, seconds: float) -> Row:
    """Measure a row in turns with what it is compared with; return the turn of the median ratio."""
    taken = []
    for _ in range(turns):
        if loss:
            of_mb_per_s = measured(round_trip_ms, "", seconds)["mb_per_s"]
        else:
            of_mb_per_s = min(measured(0.002, "", seconds)["mb_per_s"], WINDOW / round_trip_ms / 1e3)
        got = measured(round_trip_ms, loss, seconds)
        counts = int(got["retransmitted"]), int(got["timeouts"])
        mark = LOSSY_SHARE if loss else SHARE
        taken.append(Row(round_trip_ms, loss, got["mb_per_s"], of_mb_per_s, mark, got["srtt_us"], *counts))
    return sorted(taken, key=lambda each: each.ratio)[turns // 2]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--round-trips", type=float, nargs="+", default=list(ROUND_TRIPS_MS), metavar="MS")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = []
    for path in asked.round_trips:
        for loss in ["", LOSS] if path == LOSSY_MS else [""]:
            rows.append(row(path, loss, asked.turns, asked.seconds))
            print(rows[-1], file=sys.stderr, flush=True)
    if asked.json:
        print(json.dumps([{**asdict(each), "ratio": each.ratio} for each in rows]))
    else:
        print("round trip   loss   MB/s     of  ratio   mark   srtt  retransmitted  timeouts")
        for each in rows:
            print(
                f"{each.round_trip_ms:7g} ms  {each.loss or '0':>5}  {each.mb_per_s:5.0f}  {each.of_mb_per_s:5.0f}  "
                f"{each.ratio:5.2f}  {each.mark:5.2f}  {each.srtt_us / 1e3:5.1f}  {each.retransmitted:13}  "
                f"{each.timeouts:8}"
            )


if __name__ == "__main__":
    main()
