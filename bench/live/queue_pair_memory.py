"""What does a queue pair take of a process's memory: connected and idle, and once it has written?

    python -m bench.live.queue_pair_memory [--count 1000] [--size 262144]

Two processes on loopback, four planes, one context each, everything at its defaults. Resident memory is read before the
first connection, when all are made, and when each has written once; TCP channels and Python's objects are included.
"""

from __future__ import annotations

import argparse
import json
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

from harness.live_peers import Task, planes, run_pair

PLANES = 4
KIB = 1024


def resident() -> int:
    """Return this process's resident memory (bytes)."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4096


def context(side: int, task: Task) -> Any:
    """Return an endpoint with room for all queue pairs."""
    from openmrc.verbs import Context, ContextAttr

    return Context(planes(side, PLANES), ContextAttr(max_qp=task.options["count"]))


def serve(pipe: Pipe, task: Task) -> None:
    """Accept all connections and be written to."""
    from openmrc.verbs import Listener

    with context(1, task) as here, Listener(here, "127.0.0.1", 0) as listener:
        region = here.alloc_pd().reg_mr(bytearray(task.options["size"]))
        sizes = [resident()]
        pipe.send(listener.port)
        accepted = [listener.accept(regions=[region], timeout=60) for _ in range(task.options["count"])]
        sizes.append(resident())
        pipe.recv()
        sizes.append(resident())
        pipe.send((sizes, len(accepted)))


def call(pipe: Pipe, task: Task) -> None:
    """Connect all, then write once on each."""
    from openmrc.verbs import connect

    with context(0, task) as here:
        region, port = here.alloc_pd().reg_mr(bytearray(task.options["size"])), pipe.recv()
        sizes = [resident()]
        made = [connect(here, "127.0.0.1", port, regions=[region], timeout=60) for _ in range(task.options["count"])]
        sizes.append(resident())
        for each in made:
            each.write(region, each.remote.regions[0], timeout=60)
        sizes.append(resident())
        pipe.send((sizes, len(made)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="queue pairs")
    parser.add_argument("--size", type=int, default=256 * KIB, help="bytes that each writes once")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    options = {"count": asked.count, "size": asked.size}
    result: dict[str, float] = {}
    for side, (sizes, count) in zip(("receiver", "sender"), run_pair(serve, call, Task(options=options)), strict=True):
        for what, size in zip(("idle", "after_a_write"), sizes[1:], strict=True):
            result[f"{side}_{what}_kib"] = (size - sizes[0]) / count / KIB
    if asked.json:
        print(json.dumps(options | result))
        return
    print(f"{asked.count} queue pairs, KiB each:")
    for what, kib in result.items():
        print(f"  {what.removesuffix('_kib').replace('_', ' '):<24} {kib:7.1f}")


if __name__ == "__main__":
    main()
