"""Try thousands of rows of spec/space.toml: one seed after the other until so many are done; say which seeds failed.

python -m bench.space [--rows 2000] [--seed 1] [--surfaces wire python_api]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from spec.space import VARIABLE, rows, surfaces

TESTS = Path(__file__).parent.parent / "tests" / "space"


def failed(surface: str, seed: int) -> str:
    """Run all rows of a surface for a seed; return what pytest says of those that failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS / f"test_{surface}.py")]
    done = subprocess.run(command, env={**os.environ, VARIABLE: str(seed)}, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout


def main() -> None:
    """Try seeds and print a line for each; exit code 1 if any row failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2000, help="of each surface")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--surfaces", nargs="+", default=list(surfaces()), choices=list(surfaces()))
    asked = parser.parse_args()
    is_good = True
    for surface in asked.surfaces:
        seed, done = asked.seed, 0
        while done < asked.rows:
            count, problem = len(rows(surface, seed)), failed(surface, seed)
            is_good, done = is_good and not problem, done + count
            print(f"{surface}: {count} rows, {VARIABLE}={seed}: {'failed' if problem else 'passed'}", flush=True)
            print(problem, end="", flush=True)
            seed += 1
    raise SystemExit(0 if is_good else 1)


if __name__ == "__main__":
    main()
