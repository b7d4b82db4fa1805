"""Measure how much longer `import torch` takes with the backend than without it, in new processes in turns.

Mark: under 0.3 s, in the median of the differences of processor time, which other jobs disturb less than the clock.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys

MARK = 0.3  # s
_BACKEND = "import torch, openmrc.train.torch_backend"


def cpu_seconds(program: str, autoload: str) -> float:
    """Return the processor time (s) of a process that runs `program`."""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload, "OMP_NUM_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the median difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    cpu_seconds(_BACKEND, "1")  # bytecode and the file cache
    pairs = [(cpu_seconds("import torch", "0"), cpu_seconds(_BACKEND, "1")) for _ in range(options.rounds)]
    extra = statistics.median(both - alone for alone, both in pairs)
    alone = statistics.median(each for each, _ in pairs)
    print(
        f"import of the backend: {extra:.2f} s beyond torch's {alone:.2f} s; mark {MARK:g} s: "
        f"{'ok' if extra <= MARK else 'missed'}"
    )


if __name__ == "__main__":
    main()
