"""Is a cable used again by itself, however long it was out? `sudo python -m bench.lab.recovery [SECONDS...]`.

Without arguments: 1 and 60 seconds; 600 is asked for by name, as it takes ten minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.lab.compare import one, table
from harness import labs
from openmrc.lab.faults import Breaker

FABRIC = Path(__file__).parents[2] / "scenarios" / "fabrics" / "lab-calm.yaml"
NAME = "bench-recovery"


def main() -> None:
    with labs.held(FABRIC, NAME):
        breaker = Breaker(NAME)
        for out_s in [float(text) for text in sys.argv[1:]] or [1.0, 60.0]:
            print(f"h0's cable of plane 0 out for {out_s:g} s")
            print(table([one(breaker, "mrc", "h0", "h5", "h0 port 0", out_s)]))


if __name__ == "__main__":
    main()
