"""What does a stream move over four planes of which one is slower? `sudo python -m bench.lab.unequal_planes [ROUNDS]`.

Two NICs of a lab, `mrc perf` at both, 60 Mb/s a port; all links of plane 0 have a tenth or half of that, or as much.
The share is that of payload in the sum of the ports' rates, of which a 4 KiB packet's headers take three in a hundred.
The endpoints know their ports by a NIC file, which states the rate that all should have, or know nothing of them.
Mark: 90 % where one has a tenth, in the median of the rounds. Fails when a stream did not end.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.lab.experiments import priorities
from openmrc.base.faults import Schedule
from openmrc.lab import lifetime, run
from openmrc.lab.faults import Breaker

MBPS, PLANES = 60, 4
FABRIC = f"""
name: unequal
hosts: {{count: 4}}
planes:
  - count: {PLANES}
    host_gbps: {MBPS / 1000}
    t0: {{down: 2, up: 2, bundle: 1, buffer_kb: 64}}
    t1: {{buffer_kb: 64}}
"""
NAME, SOURCE, TARGET = "bench-unequal", "h0", "h3"
SLOW = {"a tenth": 6, "half": 30, "as much": MBPS}  # Mb/s of plane 0
SECONDS, LONGEST = 4, 120
MARK = 0.9


def perf(lab: str, nic: str, is_described: bool, *words: str) -> subprocess.Popen[bytes]:
    """Start `mrc perf` at a NIC, with its file or with its plain addresses."""
    number = int(nic[1:]) + 1
    addresses = ",".join(f"fd00:{plane:x}::{number}" for plane in range(PLANES)).replace("fd00:0::", "fd00::")
    planes = [] if is_described else ["--planes", addresses]
    command = [sys.executable, "-m", "openmrc.programs.main", "perf", "-s", "256K", "-t", "64", *planes, *words]
    return run.start(lab, nic, command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def gbps(lab: str, is_described: bool) -> float:
    """Return the Gb/s of payload of one stream."""
    receiver = perf(lab, TARGET, is_described)
    try:
        assert receiver.stderr is not None
        while b"waiting" not in receiver.stderr.readline():
            if receiver.poll() is not None:
                raise RuntimeError("the receiver ended before it began")
        words = ("-w", "100", "-D", str(SECONDS), "--json", TARGET)
        out, said = perf(lab, SOURCE, is_described, *words).communicate(timeout=LONGEST)
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
    with tempfile.TemporaryDirectory() as folder, priorities.network_first():
        fabric = Path(folder, "unequal.yaml")
        fabric.write_text(FABRIC)
        with lifetime.held(fabric, NAME):
            breaker = Breaker(NAME)
            for is_described in (True, False):
                for name, mbps in SLOW.items():
                    breaker.clear()
                    breaker.run(Schedule.parse(f"rate: {mbps}Mbps, on: plane 0"))
                    whole = (MBPS * (PLANES - 1) + mbps) / 1000
                    shares = [gbps(NAME, is_described) / whole for _ in range(rounds)]
                    print(line(name, is_described, shares), flush=True)


def line(name: str, is_described: bool, shares: list[float]) -> str:
    """Return the result of one kind in words."""
    median = statistics.median(shares)
    verdict = f", mark {MARK}: {'met' if median >= MARK else 'missed'}" if name == "a tenth" else ""
    known = "NIC file" if is_described else "addresses only"
    return f"{known:14}  plane 0 has {name:8} share {median:.3f}{verdict}  ({', '.join(f'{x:.3f}' for x in shares)})"


if __name__ == "__main__":
    main()
