"""Does the conformance tester notice when one rule of the engine is broken, and only the tests that it concerns?

    python -m bench.conform.mutants [--workers 2] [--only CLAUSE] [--all] [--write]

Runs the tests of its clause in virtual time against every mutant of spec/mutants.toml, with `--all` all tests: a few
seconds each. A mutant is noticed when a test of its clause changes its verdict; others that change with it must follow
from the same line. `--write` keeps what was found as `fails` in the file; without it the exit code is 1 if something
differs from what is kept, or if a mutant survives without a reason.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from openmrc.conform.catalogue import shipped_tests
from spec.mutation import MUTANTS, Mutant, changed_tests, outcome, read_mutants


def main() -> None:
    """Read the options and run."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--only", action="append", default=[], help="a clause; may be repeated")
    options.add_argument("--all", action="store_true")
    options.add_argument("--write", action="store_true")
    chosen = options.parse_args()
    tests, every = shipped_tests(), read_mutants()
    mutants = [each for each in every if each.clause in chosen.only or not chosen.only]
    clauses = {each.clause for each in mutants}
    begun = time.monotonic()
    unbroken = {test.id: outcome(test) for test in tests if chosen.all or test.clause in clauses}
    with ThreadPoolExecutor(chosen.workers) as pool:
        outcomes = pool.map(lambda each: changed_tests(each, tests, unbroken, not chosen.all), mutants)
        found, problems = [], 0
        for mutant, changed in zip(mutants, outcomes, strict=True):
            found.append(changed)
            problems += report(mutant, changed, chosen.all)
    noticed = sum(1 for changed in found if changed)
    print(
        f"{len(mutants)} mutants, {noticed} noticed, {time.monotonic() - begun:.0f} s, {problems} differ from the list"
    )
    if chosen.write:
        write(every, {id(mutant): changed for mutant, changed in zip(mutants, found, strict=True)})
    sys.exit(1 if problems and not chosen.write else 0)


def report(mutant: Mutant, changed: list[str], is_all: bool) -> int:
    """Print what noticed a mutant; return 1 if that is not what the list says."""
    clauses = {test.id: test.clause for test in shipped_tests()}
    own = [name for name in changed if clauses[name] == mutant.clause]
    state = "noticed" if own else "by others" if changed else "survives"
    print(f"{state:<10} {mutant.clause:<28} {' '.join(changed)[:120]}", flush=True)
    unexplained = not own and not mutant.survives
    kept = [name for name in mutant.fails if is_all or clauses[name] == mutant.clause]
    return int(unexplained or bool(mutant.fails and changed != kept))


def write(mutants: list[Mutant], found: dict[int, list[str]]) -> None:
    """Keep what was found in the file."""
    blocks = re.split(r"(?=^\[\[mutant\]\]$)", MUTANTS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for number, mutant in enumerate(mutants, 1):
        if id(mutant) in found:
            names = ", ".join(f'"{name}"' for name in found[id(mutant)])
            blocks[number] = re.sub(r"^fails = .*$", f"fails = [{names}]", blocks[number], flags=re.MULTILINE)
    MUTANTS.write_text("".join(blocks), encoding="utf-8")


if __name__ == "__main__":
    main()
