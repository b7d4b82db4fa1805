"""Connect, write and close at random for as long as asked: do memory and descriptors stay flat?

    python -m bench.live.soak_connections [--seconds 3600]

One process on loopback. Contexts of 1 to 4 planes are opened and closed, connections between them made, used and
closed in any order, some without a close of the other end first. Prints resident memory and open descriptors now and
then, and at the end their growth since a tenth of the time had passed. Mark: at most 8 MiB and no descriptor.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import random
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from harness.live_pair import SMALL, addresses
from openmrc.verbs import Connection, ConnectionOptions, Context, Listener, MemoryRegion, connect

MARK_BYTES = 8 << 20
SAMPLES = 20  # of the whole time
OPTIONS = ConnectionOptions(mpr=4, max_wimm=16, max_recv_wr=16, max_send_wr=16)
SIZE = 1 << 16


class Site:
    """Two contexts and the connections between them."""

    def __init__(self, number: int, rng: random.Random) -> None:
        self.rng = rng
        self._stack = ExitStack()
        planes = rng.randint(1, 4)
        attr = replace(SMALL, max_qp=8, max_mr=16, seed=0)
        self._contexts = [
            self._stack.enter_context(Context(addresses(side, number, planes, 4), attr)) for side in (0, 1)
        ]
        self._regions: list[MemoryRegion] = [context.alloc_pd().reg_mr(bytearray(SIZE)) for context in self._contexts]
        self._listener = self._stack.enter_context(Listener(self._contexts[1], "127.0.0.1", 0))
        self._connections: list[tuple[Connection, Connection]] = []

    def connect(self) -> None:
        """Add a connection."""
        if len(self._connections) == 8:
            return self.disconnect()
        accepted: list[Connection] = []

        def accept() -> None:
            accepted.append(self._listener.accept(regions=[self._regions[1]], options=OPTIONS, timeout=60))

        thread = threading.Thread(target=accept)
        thread.start()
        here = connect(
            self._contexts[0], "127.0.0.1", self._listener.port, regions=[self._regions[0]], options=OPTIONS, timeout=60
        )
        thread.join()
        self._connections.append((here, accepted[0]))

    def write(self) -> None:
        """Write a piece over one of the connections and compare."""
        if not self._connections:
            return self.connect()
        here, _ = self.rng.choice(self._connections)
        length = self.rng.choice((1, 100, 5000, SIZE))
        begin = self.rng.randrange(SIZE - length + 1)
        piece = slice(begin, begin + length)
        self._regions[0].bytes[piece] = np.frombuffer(self.rng.randbytes(length), np.uint8)
        target = here.remote.regions[0]
        here.qp.post_write(self._regions[0][piece], target.addr + begin, target.r_key)
        for completion in here.send_cq.wait(60):
            if not completion.ok:
                raise RuntimeError(completion.error)
        if not np.array_equal(self._regions[0].bytes[piece], self._regions[1].bytes[piece]):
            raise RuntimeError("a write was acknowledged and is not there")

    def disconnect(self) -> None:
        """Close both ends of a connection, in either order."""
        if self._connections:
            ends = self._connections.pop(self.rng.randrange(len(self._connections)))
            for end in ends if self.rng.random() < 0.5 else ends[::-1]:
                end.close()

    def close(self) -> None:
        """Close the contexts; some connections may still be open."""
        self._stack.close()


def state() -> dict[str, int]:
    """Return resident bytes, descriptors and threads of this process."""
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {"rss": resident, "descriptors": len(os.listdir("/proc/self/fd")), "threads": threading.active_count()}


def run(seconds: float, rng: random.Random) -> dict[str, Any]:
    """Work so long and return what was done and what grew."""
    began, numbers = time.monotonic(), itertools.count()
    counts = {"connect": 0, "write": 0, "disconnect": 0, "sites": 0}
    samples: list[dict[str, int]] = []
    while time.monotonic() < began + seconds or len(samples) < SAMPLES:
        site = Site(next(numbers) % 200, rng)
        counts["sites"] += 1
        for _ in range(rng.randint(1, 60)):
            action = rng.choice(("connect", "write", "write", "write", "disconnect"))
            getattr(site, action)()
            counts[action] += 1
        site.close()
        del site  # and with it the descriptors of its completion queues
        if time.monotonic() > began + (len(samples) + 1) * seconds / SAMPLES:
            samples.append(state())
            print(f"{time.monotonic() - began:.0f} s: {counts}, {samples[-1]}", file=sys.stderr)
    halves = samples[: SAMPLES // 2], samples[SAMPLES // 2 :]
    first, second = ({name: max(each[name] for each in half) for name in samples[0]} for half in halves)
    grown = {f"{name}_grown": second[name] - first[name] for name in second}
    return {"seconds": seconds, **counts, **second, **grown}


def main() -> int:
    """Run, print, and return 1 if memory or descriptors grew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = run(asked.seconds, random.Random(asked.seed))
    found["ok"] = found["rss_grown"] <= MARK_BYTES and found["descriptors_grown"] <= 0 and found["threads_grown"] <= 0
    print(json.dumps(found) if asked.json else ", ".join(f"{name} {value}" for name, value in found.items()))
    return int(not found["ok"])


if __name__ == "__main__":
    sys.exit(main())
