"""What passes a lab's switches when round trips are long? `sudo python -m bench.lab.long_round_trips [--rounds N]`.

Two NICs of a lab, `mrc perf` at both, four planes of 60 Mb/s; impairments hold packets back at both ends (no kernel
needs netem for that), and the lab's own queues stand on the path. The endpoints know nothing of it, or a NIC file
states the base round trip, as `mrc fabric export` writes it for a fabric with that much cable. A share is that of the
rate without a delay, in turns. Mark: 0.8 in the median of the rounds. Fails when a stream did not end.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from contextlib import contextmanager

from bench.lab.unequal_planes import MBPS, NAME, PLANES, QUEUE, SOURCE, TARGET, gbps, laboratory
from openmrc.lab.run import path_of

ROUND_TRIPS_MS = (0.1, 1.0, 5.0, 20.0, 100.0)
MARK = 0.8


@contextmanager
def stated(round_trip_ms: float) -> Iterator[None]:
    """Let the NIC files of both ends say that the base round trip is longer by so much."""
    files = [path_of(NAME, nic) for nic in (SOURCE, TARGET)]
    before = [file.read_bytes() for file in files]
    for file, content in zip(files, before, strict=True):
        nic = json.loads(content)
        nic["base_rtt_us"] += round_trip_ms * 1000
        file.write_text(json.dumps(nic))
    try:
        yield
    finally:
        for file, content in zip(files, before, strict=True):
            file.write_bytes(content)


def share(round_trip_ms: float, is_described: bool) -> float:
    """Return the share of the rate without a delay that is left with one."""
    without = gbps(NAME, is_described)
    with stated(round_trip_ms):
        held = "--impair", f"delay: {round(round_trip_ms * 500)}us"
        return gbps(NAME, is_described, options=held) / without


def main() -> None:
    """Print a line for each round trip."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    with laboratory(PLANES, MBPS, QUEUE):
        for is_described in (True, False):
            for round_trip in ROUND_TRIPS_MS:
                shares = [share(round_trip, is_described) for _ in range(rounds)]
                median = statistics.median(shares)
                known, verdict = "NIC file" if is_described else "addresses only", "met" if median >= MARK else "missed"
                each = ", ".join(f"{each:.3f}" for each in shares)
                print(
                    f"{known:14} {round_trip:5g} ms  share {median:.3f}, mark {MARK}: {verdict}  ({each})", flush=True
                )


if __name__ == "__main__":
    main()
