"""Does every pair of NICs keep a path, whatever is killed or cut off?

    python -m bench.probing.kills [--count 100] [--first 0]

Runs schedules of agents and controllers that are killed, restarted and partitioned, two controllers at a time, on hosts
whose clocks differ by minutes, in virtual time over the code that runs on sockets. The exit code is 1 if a pair ever
had no path, or a denial outlived its lease.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from harness.agent_hosts import twelve
from harness.kill_schedule import run_schedule
from openmrc.operations.diagnosis.path_index import PathIndex


def main() -> int:
    """Run the schedules asked for, and say which broke the rule."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="seed of the first schedule")
    asked = parser.parse_args()
    plan = twelve()
    index, begun, broken = PathIndex(plan), time.monotonic(), list[int]()
    for seed in range(asked.first, asked.first + asked.count):
        with tempfile.TemporaryDirectory() as folder:
            try:
                run_schedule(plan, index, Path(folder), seed)
            except AssertionError:
                broken.append(seed)
    print(f"{asked.count} schedules in {time.monotonic() - begun:.0f} s: {len(broken)} broke the rule", *broken)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
