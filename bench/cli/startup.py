"""How long does `mrc --help` take? Mark: under 200 ms. Best and median of ten, interpreter and imports included."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

MARK_MS = 200.0
ROUNDS = 10


def once() -> float:
    """Return the milliseconds of one call."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-m", "openmrc.programs.main", "--help"], check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - begun) * 1e3


def main() -> None:
    """Print the times and their ratio to the mark."""
    once()
    times = [once() for _ in range(ROUNDS)]
    best, median = min(times), statistics.median(times)
    print(f"mrc --help: best {best:.0f} ms, median {median:.0f} ms; mark {MARK_MS:.0f} ms, ratio {best / MARK_MS:.2f}")


if __name__ == "__main__":
    main()
