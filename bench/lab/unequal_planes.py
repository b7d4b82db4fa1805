"""What does a stream move over four planes of which one is slower? `sudo python -m bench.lab.unequal_planes [ROUNDS]`.

Two NICs of a lab, `mrc perf` at both, 60 Mb/s a port; all links of plane 0 have a tenth or half of that, or as much.
Before them two planes of 22 Mb/s whose queues hold four packets: a window as small has to keep both in work.
The share is that of payload in the sum of the ports' rates, of which a 4 KiB packet's headers take three in a hundred.
The endpoints know their ports by a NIC file, which states the rate that all should have, or know nothing of them.
Mark: 90 % where one has a tenth, and with short queues, in the median of the rounds. The ends come before all but the
network: a processor that is busy elsewhere for 6 ms would let such a queue run empty. Fails when a stream did not end.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.lab.experiments import priorities
from harness import labs
from openmrc.base.faults import Schedule
from openmrc.lab.faults import Breaker

MBPS, PLANES, QUEUE = 60, 4, 64  # KB
SHORT_MBPS, SHORT_PLANES, SHORT_QUEUE = 22, 2, 16
FABRIC = """
name: unequal
hosts: {{count: 4}}
planes:
  - count: {planes}
    host_gbps: {gbps}
    t0: {{down: 2, up: 2, bundle: 1, buffer_kb: {queue}}}
    t1: {{buffer_kb: {queue}}}
"""
NAME, SOURCE, TARGET = "bench-unequal", "h0", "h3"
SLOW = {"a tenth": 6, "half": 30, "as much": MBPS}  # Mb/s of plane 0
SECONDS, LONGEST = 4, 120
MARK = 0.9


@contextlib.contextmanager
def laboratory(planes: int, mbps: int, queue: int) -> Iterator[None]:
    """Hold a lab with so many planes, of a rate (Mb/s) and with queues (KB)."""
    with tempfile.TemporaryDirectory() as folder, priorities.network_first():
        fabric = Path(folder, "unequal.yaml")
        fabric.write_text(FABRIC.format(planes=planes, gbps=mbps / 1000, queue=queue))
        with labs.held(fabric, NAME):
            yield


def perf(lab: str, nic: str, is_described: bool, planes: int, *words: str) -> subprocess.Popen[bytes]:
    """Start `mrc perf` at a NIC, with its file or with its plain addresses."""
    number = int(nic[1:]) + 1
    addresses = ",".join(f"fd00:{plane:x}::{number}" for plane in range(planes)).replace("fd00:0::", "fd00::")
    named = [] if is_described else ["--planes", addresses]
    program = ["chrt", "--rr", "1", sys.executable, "-m", "openmrc.programs.main"]
    command = [*program, "perf", "-s", "256K", "-t", "64", *named, *words]
    return labs.start(lab, nic, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def gbps(lab: str, is_described: bool, planes: int = PLANES, options: tuple[str, ...] = ()) -> float:
    """Return the Gb/s of payload of one stream, with further options of `mrc perf` at its source."""
    receiver = perf(lab, TARGET, is_described, planes)
    try:
        assert receiver.stderr is not None
        while b"waiting" not in receiver.stderr.readline():
            if receiver.poll() is not None:
                raise RuntimeError("the receiver ended before it began")
        words = ("-w", "100", "-D", str(SECONDS), *options, "--json", TARGET)
        out, said = perf(lab, SOURCE, is_described, planes, *words).communicate(timeout=LONGEST)
        report = json.loads(out.splitlines()[-1]) if out else {}
        if not report.get("mrc", {}).get("ok"):
            raise RuntimeError(f"the stream did not end: {said.decode(errors='replace')[-300:]}")
        return float(report["results"]["BW_average"]) * (8 << 20) / 1e9
    finally:
        receiver.kill()
        receiver.communicate()


def main() -> None:
    """Print a line for each rate of the slow plane."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with laboratory(SHORT_PLANES, SHORT_MBPS, SHORT_QUEUE):
        for is_described in (True, False):
            whole = SHORT_MBPS * SHORT_PLANES / 1000
            shares = [gbps(NAME, is_described, SHORT_PLANES) / whole for _ in range(rounds)]
            print(line("short queues", is_described, shares), flush=True)
    with laboratory(PLANES, MBPS, QUEUE):
        breaker = Breaker(NAME)
        for is_described in (True, False):
            for name, mbps in SLOW.items():
                breaker.clear()
                breaker.run(Schedule.parse(f"rate: {mbps}Mbps, on: plane 0"))
                whole = (MBPS * (PLANES - 1) + mbps) / 1000
                shares = [gbps(NAME, is_described) / whole for _ in range(rounds)]
                print(line(f"plane 0 has {name}", is_described, shares), flush=True)


def line(name: str, is_described: bool, shares: list[float]) -> str:
    """Return the result of one kind in words."""
    median = statistics.median(shares)
    verdict = f", mark {MARK}: {'met' if median >= MARK else 'missed'}" if name.endswith(("a tenth", "queues")) else ""
    known = "NIC file" if is_described else "addresses only"
    return f"{known:14}  {name:20} share {median:.3f}{verdict}  ({', '.join(f'{x:.3f}' for x in shares)})"


if __name__ == "__main__":
    main()
