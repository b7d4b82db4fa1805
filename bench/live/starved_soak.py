"""Do connections live while the process is starved of processor time and the planes fail in turn?

    python -m bench.live.starved_soak [--seconds 600] [--seed 1] [--rate 0] [--load 10] [--niceness 15]

One process on loopback, two contexts of four planes, 64 queue pairs that write random pieces of memory both ways.
Faults of 0.5 to 4 s (loss, a plane down, delay, reordering, corruption) come and go on what arrives at either end.
`--load` starts so many processes beside it that only compute; `--niceness` then lowers the priority of this one. At the
end every byte of both memories is compared with what was written. Mark: no queue pair in ERROR, no write without a
completion, no wrong byte. With `--rate` a long soak leaves room for other work beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import threading
import time
from collections import Counter, deque
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from harness.busy import busy
from harness.live_pair import addresses
from harness.many_queue_pairs import Group, context_attr, open_group
from openmrc.engine.state.machines import QpState
from openmrc.verbs import Connection, ConnectionOptions, Context, Listener, MemoryRegion, SendWr, connect

PLANES, QUEUE_PAIRS, DEPTH, MPR, MTU = 4, 64, 4, 8, 4096
SLOT = 1 << 17  # bytes of memory of one queue pair; each side writes half of it
OPTIONS = ConnectionOptions(mpr=MPR)
LAST_WRITES_SECONDS = 60.0  # for what is posted when time is over; longer than any user timeout
FAULTS = ("loss: 2%", "loss: 20%", "down: plane {plane}", "delay: 20ms", "reorder: 20%", "corruption: 1%")


def schedule(rng: random.Random, seconds: float) -> str:
    """Return faults of 0.5 to 4 s, one after the other, for so long."""
    at, steps = 0.0, []
    while at < seconds:
        lasts = rng.uniform(0.5, 4.0)
        fault = rng.choice(FAULTS).format(plane=rng.randrange(PLANES))
        steps.append(f"{{at: {at:.3f}s, {fault}, for: {lasts:.3f}s}}")
        at += lasts
    return f"[{', '.join(steps)}]"


@dataclass
class End:
    """One side: its queue pairs, and what it has written and seen completed."""

    side: int
    group: Group
    ours: MemoryRegion
    target: Any  # the peer's region
    rng: random.Random
    posted: dict[int, float] = field(default_factory=dict)  # wr_id -> when
    counts: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0
    written: Any = field(default_factory=lambda: np.zeros(QUEUE_PAIRS * SLOT, bool))

    def post(self, index: int) -> None:
        """Write a random piece of a queue pair's slot."""
        half = SLOT // 2
        length = self.rng.choice((8, 1000, 9000, half))
        begin = index * SLOT + self.side * half + self.rng.randrange(half - length + 1)
        self.written[begin : begin + length] = True
        wr_id = self.counts["posted"] * QUEUE_PAIRS + index
        self.counts["posted"] += 1
        self.posted[wr_id] = time.monotonic()
        local, remote = self.ours[begin : begin + length], self.target.addr + begin
        self.group.qps[index].post_send(SendWr(wr_id=wr_id, local=local, remote_addr=remote, r_key=self.target.r_key))

    def take(self) -> list[int]:
        """Return the queue pairs of the writes that completed."""
        done = self.group.cq.poll(64)
        now = time.monotonic()
        for each in done:
            self.longest = max(self.longest, now - self.posted.pop(each.wr_id))
            self.counts["completed" if each.ok else f"failed: {each.status.name}"] += 1
        return [each.wr_id % QUEUE_PAIRS for each in done if each.ok]


def connected(stack: ExitStack, rng: random.Random) -> tuple[list[Context], list[End]]:
    """Return two contexts and the ends of their queue pairs."""
    attr = replace(context_attr(QUEUE_PAIRS, DEPTH, MPR), seed=rng.randrange(1, 1 << 30))
    contexts = [stack.enter_context(Context(addresses(side, 77, PLANES, 4), attr)) for side in (0, 1)]
    regions = [each.alloc_pd().reg_mr(bytearray(rng.randbytes(QUEUE_PAIRS * SLOT))) for each in contexts]
    listener = stack.enter_context(Listener(contexts[1], "127.0.0.1", 0))
    peers: list[Connection | None] = [None, None]
    ends: list[End | None] = [None, None]
    seeds = [random.Random(rng.random()) for _ in range(2)]

    def open_side(side: int) -> None:
        if side == 1:
            peer = listener.accept(regions=[regions[1]], options=OPTIONS, timeout=300)
        else:
            peer = connect(contexts[0], "127.0.0.1", listener.port, regions=[regions[0]], options=OPTIONS, timeout=300)
        group = open_group(contexts[side], peer, regions[side], QUEUE_PAIRS, DEPTH, MPR, MTU)
        peers[side], ends[side] = peer, End(side, group, regions[side], peer.remote.regions[0], seeds[side])

    threads = [threading.Thread(target=open_side, args=(side,)) for side in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return contexts, [end for end in ends if end is not None]


@dataclass
class Pace:
    """How many writes may be posted by now: without a rate, each as soon as the one before it completed."""

    rate: float  # writes a second of both sides together, 0 for no limit
    begun: float = field(default_factory=time.monotonic)
    waiting: deque[tuple[End, int]] = field(default_factory=deque)
    posted: int = 0

    def post_due(self) -> None:
        """Post what waits and is due."""
        while self.waiting and (not self.rate or self.posted < self.rate * (time.monotonic() - self.begun)):
            end, index = self.waiting.popleft()
            end.post(index)
            self.posted += 1


def drive(ends: list[End], seconds: float, rate: float) -> None:
    """Keep a write posted or waiting for its turn on every queue pair, both ways, then let them complete."""
    pace = Pace(rate, waiting=deque((end, index) for index in range(QUEUE_PAIRS) for end in ends))
    end_at = pace.begun + seconds
    while (now := time.monotonic()) < end_at or (any(e.posted for e in ends) and now < end_at + LAST_WRITES_SECONDS):
        done = [(end, index) for end in ends for index in end.take()]
        pace.waiting.extend(done)
        if now < end_at:
            pace.post_due()
        if not done:
            time.sleep(0.001)


def differing(ends: list[End]) -> int:
    """Return how many bytes differ from what was written."""
    first, second = (end.ours.bytes for end in ends)
    return sum(int(np.count_nonzero((first != second) & end.written)) for end in ends)


def run(seconds: float, seed: int, rate: float) -> dict[str, Any]:
    """Work so long and return what happened."""
    rng = random.Random(seed)
    with ExitStack() as stack:
        contexts, ends = connected(stack, rng)
        for context in contexts:
            context.impair(schedule(rng, seconds))
        drive(ends, seconds, rate)
        states = Counter(qp.state for end in ends for qp in end.group.qps)
        counts = sum((end.counts for end in ends), Counter())
        timeouts = sum(qp.counters().timeouts for end in ends for qp in end.group.qps)
        wrote = sum(qp.counters().sent_bytes for end in ends for qp in end.group.qps)
        return {
            "seconds": seconds,
            "seed": seed,
            "nice": os.nice(0),
            "load": round(os.getloadavg()[1], 1),  # of the last five minutes
            **counts,
            "bytes": wrote,
            "wrong_bytes": differing(ends),
            "without_completion": sum(len(end.posted) for end in ends),
            "longest_s": round(max(end.longest for end in ends), 2),
            "in_error": 2 * QUEUE_PAIRS - states[QpState.RTS],
            "timeouts": timeouts,
        }


def main() -> int:
    """Run, print, and return 1 if a connection died or a write did not complete."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=0.0, help="writes a second at most, 0 for no limit")
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--niceness", type=int, default=0, help="of this process, once the load runs")
    asked = parser.parse_args()
    with busy(asked.load):
        os.nice(asked.niceness)
        found = run(asked.seconds, asked.seed, asked.rate)
    found["ok"] = found["in_error"] == found["without_completion"] == found["wrong_bytes"] == 0
    print(json.dumps(found))
    return int(not found["ok"])


if __name__ == "__main__":
    sys.exit(main())
