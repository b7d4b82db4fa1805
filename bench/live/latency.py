"""How long does an 8-byte write with immediate take to the peer and back, against a bare UDP ping-pong?

Ours is what `mrc perf --lat` measures, by the same code; bare UDP is Python too and blocks. Two processes on loopback,
each on a processor of its own, in turns. Marks: at most 3 times as long as bare UDP, the 99th percentile at most 4
times the median.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import time
from multiprocessing.connection import Connection as Pipe
from typing import Any

from harness.live_peers import PLANES, Task, run_pair
from harness.perf_pair import latency

ROUNDS, WARM = 4000, 500
SIZE = 8  # bytes
MARKS = {"ratio": 3.0, "p99": 4.0}


def bare_server(pipe: Pipe, task: Task) -> None:
    """Return every datagram."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(10)
        pipe.send(sock.getsockname()[1])
        for _ in range(ROUNDS + WARM):
            data, where = sock.recvfrom(64)
            sock.sendto(data, where)
        pipe.recv()
        pipe.send(0)


def bare_client(pipe: Pipe, task: Task) -> None:
    """Time every round trip."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        where = ("127.0.0.1", pipe.recv())
        sock.settimeout(10)
        times = []
        for _ in range(ROUNDS + WARM):
            began = time.perf_counter_ns()
            sock.sendto(bytes(SIZE), where)
            sock.recvfrom(64)
            times.append(time.perf_counter_ns() - began)
        pipe.send(times[WARM:])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--planes", type=int, default=PLANES)
    parser.add_argument("--poll-us", type=float, help="how long waits poll; 0: never (default: as on this machine)")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    bare, ours = [], []
    for _ in range(asked.turns):
        bare.append(statistics.median(run_pair(bare_server, bare_client, Task())[1]) / 1000)
        ours.append(latency(SIZE, ROUNDS, asked.planes, asked.poll_us))
    median = 2 * statistics.median(each["t_typical"] for each in ours)  # of half a round trip, as in perftest
    p99 = 2 * statistics.median(each["t_99"] for each in ours)
    bare_us = statistics.median(bare)
    result: dict[str, Any] = {"ours_us": median, "ours_p99_us": p99, "bare_us": bare_us, "ratio": median / bare_us}
    if asked.json:
        print(json.dumps({**result, "turns": {"ours": ours, "bare_us": bare}, "marks": MARKS}))
    else:
        print(f"8-byte write with immediate, round trip: {median:.1f} us (p99 {p99:.1f}); bare UDP: {bare_us:.1f} us")
        print(f"ratio {result['ratio']:.2f} (mark: {MARKS['ratio']:g}); p99 {p99 / median:.1f} medians (mark: 4)")


if __name__ == "__main__":
    main()
