"""How long does it take to bring a lab up, and down? `sudo python -m bench.lab.up [FABRIC]`."""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

from harness import labs

RUNS = 3
DEFAULT = Path(__file__).parents[2] / "scenarios" / "fabrics" / "lab.yaml"


def main() -> None:
    fabric = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    ups, downs = [], []
    for _ in range(RUNS):
        with labs.held(fabric, "bench-up") as written:
            began = time.perf_counter()
        ups.append(written.build_s)
        downs.append(time.perf_counter() - began)
    print(f"{fabric.name}: {written.ports} ports; up {statistics.median(ups):.2f} s (most {max(ups):.2f}),", end=" ")
    print(f"down {statistics.median(downs):.2f} s; median of {RUNS}")


if __name__ == "__main__":
    main()
