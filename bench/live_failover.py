"""How long is the longest gap between deliveries when one of 4 planes goes silent at full load?

The receiver silences one plane after another under a stream of writes with immediate, each for a
while, and times the gap between completions around each cut. Mark: 99th percentile under 5 ms.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from multiprocessing.connection import Connection as Pipe
from typing import Any

from live_peers import PLANES, Task, planes, run_pair

SETTLE, WATCH = 0.15, 0.10  # seconds with all planes, and with one silent
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
            quiet = [_watch(peer, 0.5)]
            gaps = []
            for cut in range(task.slots):
                _watch(peer, SETTLE)
                context.impair(f"down: plane {cut % PLANES}")
                gaps.append(_watch(peer, WATCH))
                context.impair(f"up: plane {cut % PLANES}")
            quiet.append(_watch(peer, 0.5))
            peer.tell("stop")
            _drain(peer)
            pipe.recv()
            pipe.send((gaps, quiet))


def _watch(peer: Any, seconds: float) -> float:
    """Return the longest time between two completions, ms."""
    longest, began = 0.0, time.perf_counter()
    last = began
    while last - began < seconds:
        count = len(peer.recv_cq.wait(10, 64))
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
        peer.qp.post_recv(count)
    return longest * 1e3


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
    gaps.sort()
    p99 = gaps[min(len(gaps) - 1, round(0.99 * len(gaps)) - 1)]
    result = {
        "p50_ms": statistics.median(gaps),
        "p99_ms": p99,
        "max_ms": gaps[-1],
        "undisturbed_ms": max(quiet),
        "cuts": len(gaps),
        "ratio": p99 / 5.0,
        "mark": 1.0,
        **sent,
    }
    if asked.json:
        print(json.dumps(result))
    else:
        print(
            f"{len(gaps)} cuts at {sent['gbps']:.1f} Gb/s: longest gap "
            f"p50 {result['p50_ms']:.2f}, p99 {p99:.2f}, max {gaps[-1]:.2f} ms"
        )
        print(f"without a cut the longest gap was {max(quiet):.2f} ms; ratio to 5 ms: {result['ratio']:.2f} (mark: 1)")


if __name__ == "__main__":
    main()
