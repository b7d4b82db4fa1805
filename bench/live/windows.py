"""Is a larger window ever slower over sockets, and does each carry what its closed form says?

    python -m bench.live.windows [--seconds 0.4] [--draw N] [--seed 1] [--json]

One sender with a fixed window, two planes on loopback, both ends in this process; impairments hold packets back for
half of the round trip at each end. By the closed form a window leaves in each round trip, as long as that was with what
the processes waited for their processors; a row keeps to 0.8 of it, where the window is not as large as what a machine
moves in a round trip anyway. A window of twice the size is no slower, 10 % apart, other round trips allowed for. In
virtual time tests/engine/test_conversations.py holds all of it to 1 %; the simulator's half is `bench.sim.windows`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product

from harness.live_pair import Pair, joined
from openmrc.engine.state.params import NOMINAL_OVERHEAD, Settings
from openmrc.verbs import ConnectionOptions, ContextAttr

WINDOWS = tuple(2**k for k in range(1, 11))  # packets
THRESHOLDS = (16_384, 131_072)  # bytes
MTUS = (1024, 4096)
ROUND_TRIPS_MS = (2, 5, 20)
SHARE, SLOWER = 0.8, 1.1
MOST = 100e6  # bytes/s that any machine moves, held packets and all
SIZE = 1 << 18  # bytes of a write
DEPTH = 64


@dataclass(frozen=True)
class Row:
    """What windows carry on one network."""

    threshold: int
    mtu: int
    round_trip_ms: int
    bytes_per_s: tuple[float, ...]
    srtt_us: tuple[float, ...]  # what round trips came to

    def problems(self) -> Iterator[str]:
        """Say which windows miss their closed form, and which are slower than a smaller one."""
        best = 0.0
        for window, got, srtt_us in zip(WINDOWS, self.bytes_per_s, self.srtt_us, strict=True):
            expected = window * self.mtu / srtt_us * 1e6
            name = f"threshold {self.threshold}, MTU {self.mtu}, {self.round_trip_ms} ms, {window} packets"
            if expected < MOST and got < SHARE * expected:
                yield f"{name}: {got / 1e6:.2f} MB/s, closed form {expected / 1e6:.2f}"
            each = got * srtt_us  # bytes in a round trip
            if expected < MOST and each * SLOWER < best:
                yield f"{name}: {each / 1e6:.0f} bytes in a round trip, a smaller one {best / 1e6:.0f}"
            best = max(best, each)


def carried(window: int, threshold: int, mtu: int, round_trip_ms: int, seconds: float) -> tuple[float, float]:
    """Return the bytes/s of one window, and what round trips came to (us)."""
    settings = Settings(
        mtu=mtu, link_gbps=100.0, base_rtt_us=round_trip_ms * 1e3, base_rtt_measured=False, trimming=False,
        sack_threshold=threshold, max_cwnd=window * (mtu + NOMINAL_OVERHEAD), algorithm="uet-1.0-nscc",
        loss_delay_floor_us=1_000.0, silent_timeouts=4, timestamp_unit=1, target_delay_us=50_000.0, loss_threshold=2,
    )  # fmt: skip
    attr = ContextAttr(max_qp=2, max_peers=2, max_mr=8, evs_per_plane=4)
    options = ConnectionOptions(path_mtu=mtu, max_send_wr=DEPTH)
    held = f"delay: {500 * round_trip_ms}us"
    with joined(attr=attr, size=SIZE, faults=held, options=options, settings=settings) as pair:
        pair.contexts[0].impair(held)
        _writes(pair, 10 * round_trip_ms / 1e3)
        return _writes(pair, seconds), pair.ends[0].qp.counters().srtt_us


def _writes(pair: Pair, seconds: float) -> float:
    """Keep writes posted; return the bytes/s that were acknowledged meanwhile."""
    end, target = pair.ends[0], pair.ends[0].remote.regions[0]
    began, before = time.monotonic(), end.qp.counters()
    while time.monotonic() < began + seconds:
        end.send_cq.poll(DEPTH)
        for _ in range(DEPTH - end.qp.outstanding()):
            end.qp.post_write(pair.regions[0], target.addr, target.r_key)
        time.sleep(0.001)
    after = end.qp.counters()
    sent = (after.sent_bytes - after.inflight) - (before.sent_bytes - before.inflight)
    return sent / (time.monotonic() - began)


def main() -> None:
    """Measure and print; exit code 1 if a row was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.4, help="for each window")
    parser.add_argument("--draw", type=int, help="only so many rows, drawn at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    cases = list(product(THRESHOLDS, MTUS, ROUND_TRIPS_MS))
    chosen = cases if asked.draw is None else random.Random(asked.seed).sample(cases, asked.draw)
    rows = []
    for case in chosen:
        measured = [carried(window, *case, asked.seconds) for window in WINDOWS]
        rows.append(Row(*case, *zip(*measured, strict=True)))
        print(rows[-1], file=sys.stderr, flush=True)
    wrong = [each for row in rows for each in row.problems()]
    if asked.json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        print(*wrong, f"{len(rows) * len(WINDOWS)} runs, {len(wrong)} misses", sep="\n")
    raise SystemExit(len(wrong) > 0)


if __name__ == "__main__":
    main()
