"""What of a GB's processor time is the kernel's? Patterns of calls without any protocol, beside one queue pair.

    python -m bench.live.kernel_cost [--seconds 1.5] [--turns 3]

`kernel_cost.c` sends trains of datagrams of 4 KiB packets from one process to another over loopback, each pinned to a
processor, as the live path does: headers and payload in places of their own, two trains a call. What it takes is the
least that one queue pair can; the rest is checksums, answers, the engine, and placing. No mark.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from dataclasses import astuple, dataclass
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".c")


@dataclass(frozen=True)
class Pattern:
    """What one run does, in the order of the program's arguments."""

    packets: int = 15  # of a train
    trains: int = 1  # of a call
    region: int = 1 << 20  # bytes that the payload is taken from
    vectors: int = 0
    placed: int = 0


PATTERNS = {
    "one piece of memory, a train a call": Pattern(),
    "headers and payload in vectors": Pattern(vectors=1),
    "the same, two trains a call": Pattern(vectors=1, trains=2),
    "the same, four trains a call": Pattern(vectors=1, trains=4),
    "the same, two trains, payload from 64 MiB": Pattern(vectors=1, trains=2, region=64 << 20),
    "the same, two trains of 8 packets": Pattern(vectors=1, trains=2, packets=8),
    "two trains, received and copied to a region": Pattern(vectors=1, trains=2, placed=1),
    "two trains, received into the region by vectors": Pattern(vectors=1, trains=2, placed=2),
}


def build(folder: str) -> str:
    """Compile the program; return its path."""
    program = f"{folder}/kernel_cost"
    subprocess.run(["cc", "-O2", "-o", program, str(_SOURCE)], check=True)
    return program


def run(program: str, pattern: Pattern, seconds: float) -> list[float]:
    """Return Gb/s of payload, and the processor seconds that a GB takes to send and to receive."""
    words = [program, *(str(each) for each in astuple(pattern)), str(seconds)]
    out = subprocess.run(words, check=True, capture_output=True, text=True, timeout=seconds + 30).stdout
    return [float(word) for word in out.split()]


def main() -> None:
    """Measure all patterns in turns and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each run")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    runs: dict[str, list[list[float]]] = {name: [] for name in PATTERNS}
    with tempfile.TemporaryDirectory() as folder:
        program = build(folder)
        for _ in range(asked.turns):
            for name, pattern in PATTERNS.items():
                runs[name].append(run(program, pattern, asked.seconds))
    if not asked.json:
        print(f"{'':48}   Gb/s   s/GB to send   to receive")
    for name, each in runs.items():
        gbps, sends, receives = (statistics.median(column) for column in zip(*each, strict=True))
        if asked.json:
            print(json.dumps({"pattern": name, "gbps": gbps, "send_s_per_gb": sends, "receive_s_per_gb": receives}))
        else:
            print(f"{name:48} {gbps:6.1f} {sends:14.3f} {receives:12.3f}")


if __name__ == "__main__":
    main()
