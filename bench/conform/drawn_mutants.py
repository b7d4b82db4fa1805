"""What notices a mutant made by machine: the conformance tests, the fast tests beside them, or nothing?

    python -m bench.conform.drawn_mutants [--count 400] [--seed 1] [--conform] [--seconds 3000] [--to FILE.jsonl]

Draws changes of all kinds alike from the engine, the wire and the profiles. Each runs against the conformance tests in
virtual time until one notices, then, if none did, against the tests of its folder, interpreted. Prints one line a
mutant and the share that each noticed. `--to` keeps the results; a run goes on with what is not in the file yet.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from openmrc.conform.catalogue import shipped_tests
from openmrc.conform.language import ScriptTest
from spec.drawn_mutants import MutationSite, drawn
from spec.mutation import LONG, RELOADED, ROOT, first_noticing, outcome

FAST_SECONDS = 1800  # that the tests of a folder may take
FAST_TESTS = {  # of the top folder of a module
    "engine": ["tests/engine"],
    "wire": ["tests/wire", "tests/conform/test_language.py", "tests/conform/test_relay.py"],
    "ctl": ["tests/ctl"],
}


@dataclass(frozen=True)
class DrawnOutcome:
    """What noticed a mutant first."""

    place: str
    kind: str
    conform: str | None  # id of the test
    fast: str | None = None  # the line of pytest


def main() -> None:
    """Read the options and run."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=400)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--seconds", type=float, default=float("inf"), help="start no mutant after so long")
    options.add_argument("--conform", action="store_true", help="run no fast tests: which mutants do devices fail by?")
    options.add_argument("--to", type=Path, help="keep results in this file")
    chosen = options.parse_args()
    kept = _kept(chosen.to)
    tests = [test for test in shipped_tests() if test.id not in LONG]
    unbroken = {test.id: outcome(test) for test in tests}
    begun = time.monotonic()

    def run(site: MutationSite) -> DrawnOutcome | None:
        if site.place in kept:
            return kept[site.place]
        if time.monotonic() - begun > chosen.seconds:
            return None
        found = noticed(site, tests, unbroken, chosen.conform)
        if chosen.to is not None:
            with chosen.to.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found.__dict__) + "\n")
        return found

    done: list[DrawnOutcome] = []
    with ThreadPoolExecutor(chosen.workers) as pool:
        for found in pool.map(run, drawn(chosen.count, chosen.seed)):
            if found is not None:
                done.append(found)
                print(f"{found.conform or found.fast or 'SURVIVES':<40} {found.kind:<18} {found.place}", flush=True)
    print(summary(done))


def _kept(path: Path | None) -> dict[str, DrawnOutcome]:
    if path is None or not path.exists():
        return {}
    found = [DrawnOutcome(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    return {each.place: each for each in found}


def noticed(
    site: MutationSite, tests: Sequence[ScriptTest], unbroken: dict[str, str], conform_only: bool
) -> DrawnOutcome:
    """Return what notices a mutant."""
    name, conform = f"openmrc.{site.module}", None
    if any(name.startswith(each) for each in RELOADED):
        conform = first_noticing(site.mutant(), tests, unbroken)
    fast = _fast(site) if conform is None and not conform_only else None
    return DrawnOutcome(site.place, site.kind.value, conform, fast)


def _fast(site: MutationSite) -> str | None:
    """Return the first of the fast tests that fails with a mutant; None if all pass."""
    folder = site.module.partition(".")[0]
    with tempfile.NamedTemporaryFile("w", suffix=".py", encoding="utf-8") as file:
        file.write(site.mutant().new)
        file.flush()
        changed = {"CHANGED_MODULE": f"openmrc.{site.module}", "CHANGED_SOURCE": file.name}
        passed_over = [f"--deselect={each}" for each in _failing_anyway(folder)]
        try:
            failed = _failed(folder, ["-x", *passed_over], changed)
        except subprocess.TimeoutExpired:
            return "timeout"
    return failed[0] if failed else None


@functools.cache
def _failing_anyway(folder: str) -> tuple[str, ...]:
    """Return the fast tests that fail without a mutant, such as those that need a compiler."""
    return tuple(_failed(folder, [], {}))


def _failed(folder: str, options: Sequence[str], environment: dict[str, str]) -> list[str]:
    words = [sys.executable, "-m", "pytest", "-p", "spec.changed_import", "-q", "--fast", "--no-header", *options]
    done = subprocess.run(
        [*words, "-p", "no:cacheprovider", "-n", "0", *FAST_TESTS[folder]],
        cwd=ROOT,
        env=os.environ | environment | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=FAST_SECONDS,
    )
    named = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    failed = [line.partition(" ")[2].partition(" - ")[0] for line in named]
    return failed or ([f"pytest ended with {done.returncode}"] if done.returncode else [])


def summary(done: Sequence[DrawnOutcome]) -> str:
    """Return the shares, of all and of each kind."""
    lines = [f"{'':<18} {'mutants':>7} {'conform':>8} {'fast':>6} {'none':>6}"]
    for kind in ("all", *sorted({each.kind for each in done})):
        of_kind = [each for each in done if kind in ("all", each.kind)]
        by = Counter("conform" if each.conform else "fast" if each.fast else "none" for each in of_kind)
        shares = (f"{100 * by[name] / len(of_kind):.0f} %" if of_kind else "-" for name in ("conform", "fast", "none"))
        conform, fast, none = shares
        lines.append(f"{kind:<18} {len(of_kind):>7} {conform:>8} {fast:>6} {none:>6}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
