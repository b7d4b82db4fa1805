"""How long is the longest gap between deliveries when one of 4 planes goes silent at full load?

The receiver silences one plane after another under a stream of writes with immediate, each for a
while, and measures around each cut how long no data landed in memory, and how long no write
completed: completions are in order, so one also waits for the repair of what was lost before it.
Before each cut it measures as long without one: what the machine's own pauses amount to.
Mark: 99th percentile of the gap between deliveries of data under 5 ms.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from multiprocessing.connection import Connection as Pipe
from typing import Any

from harness.data_gaps import longest_gap
from harness.live_peers import PLANES, Task, planes, run_pair

SETTLE, WATCH = 0.15, 0.10  # seconds until a plane is in use again, and of each measurement
WRITE = 256 << 10  # bytes: ten completions a millisecond, and little Python between them


def server(pipe: Pipe, task: Task) -> None:
    """Cut planes and watch the clock between completions."""
    from openmrc.verbs import ConnectionOptions, Context, Listener

    with Context(planes(1)) as context, Listener(context, "127.0.0.1", 0) as listener:
        region = context.alloc_pd().reg_mr(bytearray(WRITE * 64))
        pipe.send(listener.port)
        options = ConnectionOptions(max_recv_wr=1024, max_wimm=64)
        with listener.accept(regions=[region], timeout=300, options=options) as peer:
            peer.qp.post_recv(1024)
            peer.barrier(60)
            gaps, quiet = [], []
            for cut in range(task.slots):
                _watch(context, peer, SETTLE)
                quiet.append(_watch(context, peer, WATCH))
                context.impair(f"down: plane {cut % PLANES}")
                gaps.append(_watch(context, peer, WATCH))
                context.impair(f"up: plane {cut % PLANES}")
            peer.tell("stop")
            _drain(peer)
            pipe.recv()
            pipe.send((gaps, quiet))


def _watch(context: Any, peer: Any, seconds: float) -> tuple[float, float]:
    """Return the longest time without data, and between two completions, ms."""
    longest, began = 0.0, time.perf_counter()
    last = began
    longest_gap(context)
    while last - began < seconds:
        count = len(peer.recv_cq.wait(10, 64))
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
        peer.qp.post_recv(count)
    return longest_gap(context) * 1e3, longest * 1e3


def _drain(peer: Any) -> None:
    while peer.recv_cq.wait(10, 1)[0].immediate != 0xFFFFFFFF:
        peer.qp.post_recv(1)


def client(pipe: Pipe, task: Task) -> None:
    """Write as fast as it goes until told to stop."""
    import select

    from openmrc.verbs import ConnectionOptions, Context, connect

    with Context(planes(0)) as context:
        region = context.alloc_pd().reg_mr(bytearray(WRITE))
        options = ConnectionOptions(max_wimm=64)
        with connect(context, "127.0.0.1", pipe.recv(), regions=[region], timeout=300, options=options) as peer:
            peer.barrier(60)
            target, posted, done, poller = peer.remote.regions[0], 0, 0, select.poll()
            poller.register(peer.channel.fileno(), select.POLLIN)
            began = time.monotonic()
            while not poller.poll(0):
                while posted - done < 16:
                    peer.qp.post_write(region, target.addr + posted % 64 * WRITE, target.r_key, immediate=posted)
                    posted += 1
                done += len(peer.send_cq.wait(30, 64))
            gbps = done * WRITE * 8 / (time.monotonic() - began) / 1e9
            peer.qp.drain(30)
            peer.send_cq.poll(100)
            peer.write(region, target, immediate=0xFFFFFFFF, timeout=30)
            pipe.send({"gbps": gbps, "lost": peer.qp.counters().inferred_losses})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    (gaps, quiet), sent = run_pair(server, client, Task(slots=asked.cuts))
    result = {
        **_percentiles(gaps, ""),
        **_percentiles(quiet, "undisturbed_"),
        "cuts": len(gaps),
        "mark": 1.0,
        **sent,
    }
    result["ratio"] = result["data_p99_ms"] / 5.0
    if asked.json:
        print(json.dumps(result))
        return
    print(f"{len(gaps)} cuts at {sent['gbps']:.1f} Gb/s; longest gap around each, ms:")
    for name in ("data", "completions"):
        print(f"  between {name:<11} {_summary(result, name)}; without a cut {_summary(result, f'undisturbed_{name}')}")
    print(f"ratio of data's p99 to 5 ms: {result['ratio']:.2f} (mark: 1)")


def _percentiles(gaps: list[tuple[float, float]], prefix: str) -> dict[str, float]:
    found = {}
    for name, column in zip(("data", "completions"), zip(*gaps, strict=True), strict=True):
        ranked = sorted(column)
        p99 = ranked[min(len(ranked) - 1, round(0.99 * len(ranked)) - 1)]
        for which, value in (("p50", statistics.median(ranked)), ("p99", p99), ("max", ranked[-1])):
            found[f"{prefix}{name}_{which}_ms"] = value
    return found


def _summary(result: dict[str, float], name: str) -> str:
    return ", ".join(f"{which} {result[f'{name}_{which}_ms']:.2f}" for which in ("p50", "p99", "max"))


if __name__ == "__main__":
    main()
