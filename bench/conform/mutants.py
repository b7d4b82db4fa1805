"""Does the conformance tester notice when one rule of the engine is broken, and only the tests that it concerns?

    python -m bench.conform.mutants [--workers 2] [--only CLAUSE] [--own] [--again] [--test ID] [--seconds 280]
    python -m bench.conform.mutants --write

Runs all tests in virtual time against every mutant of spec/mutants.toml, a few seconds each; with `--own` those of
its clause only. A mutant is noticed when a test of its clause changes its verdict. Why others must change with it
stands beside the mutant, but for transfers between two devices, which need every rule; any other is unexpected. What
is found is kept at once in bench/results/series/mutants.json, and a run goes on where the one before it ended,
`--seconds` after it began. `--again` forgets what is kept of the chosen mutants; `--test` runs tests that are new or
changed against the mutants whose result is of older scripts, and adds to it. `--write` runs none and puts the table
of what is kept into docs/conform_mutants.md. The exit code is 1 if a mutant survives unexplained, or a test notices
it unexpectedly.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from harness.page import put
from openmrc.conform.catalogue import clauses, shipped_tests
from openmrc.conform.language import PartOfDevice
from spec.mutation import LONG, ROOT, Mutant, changed_tests, outcome, read_mutants

KEPT = ROOT / "bench" / "results" / "series" / "mutants.json"
PAGE = ROOT / "docs" / "conform_mutants.md"
SECTION = "mutants"
MANY = 8  # tests named in a row of the table
TRANSFERS = frozenset(test.id for test in shipped_tests() if test.part == PartOfDevice.BOTH)
A_TRANSFER = "A transfer between two devices needs every rule."


def main() -> None:
    """Read the options and run."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--only", action="append", default=[], help="a clause; may be repeated")
    options.add_argument("--own", action="store_true", help="tests of the mutant's clause only; nothing is kept")
    options.add_argument("--again", action="store_true", help="run what has been run before")
    options.add_argument("--test", action="append", default=[], help="a test; may be repeated")
    options.add_argument("--seconds", type=float, default=float("inf"), help="start no mutant after so long")
    options.add_argument("--write", action="store_true", help="write the table of the page, run nothing")
    chosen = options.parse_args()
    if chosen.write:
        put(PAGE, SECTION, "\n".join(table(kept())))
        return
    mutants = [each for each in read_mutants() if each.clause in chosen.only or not chosen.only]
    sys.exit(1 if run(mutants, chosen) else 0)


def run(mutants: list[Mutant], chosen: argparse.Namespace) -> int:
    """Run the mutants that have no result, keep what is found, and return how many survive unexplained."""
    results = {} if chosen.own else kept()
    current = scripts()
    due = [each for each in mutants if chosen.again or is_due(results.get(each.key), current, bool(chosen.test))]
    begun = time.monotonic()
    tests = [test for test in shipped_tests() if test.id in chosen.test or not chosen.test]
    unbroken = {test.id: outcome(test) for test in tests if due}

    def found(mutant: Mutant) -> list[str] | None:
        late = time.monotonic() - begun > chosen.seconds
        return None if late else changed_tests(mutant, tests, unbroken, chosen.own)

    with ThreadPoolExecutor(chosen.workers) as pool:
        for mutant, changed in zip(due, pool.map(found, due), strict=True):
            if changed is None:
                continue
            if chosen.test and mutant.key in results:
                changed = merged(results[mutant.key]["fails"], changed, chosen.test)
            results[mutant.key] = {"clause": mutant.clause, "fails": changed, "date": today(), "scripts": current}
            print(line_of(mutant, results[mutant.key]), flush=True)
            if not chosen.own:
                keep(results)
    done = [each for each in mutants if each.key in results]
    unexplained = [each for each in done if not each.survives and not own_of(each, results[each.key])]
    surprises = [name for each in done for name in unexpected(each, results[each.key])]
    print(f"{len(done)} of {len(mutants)} mutants run, {len(unexplained)} survive unexplained")
    print(f"{len(surprises)} tests noticed a mutant unexpectedly: {' '.join(surprises) or 'none'}")
    print(f"{time.monotonic() - begun:.0f} s")
    return len(unexplained) + len(surprises)


def scripts() -> str:
    """Return a digest of all tests, so that a result says which it is about."""
    return sha256("\0".join(f"{test.id} {test.wanted} {test.text}" for test in shipped_tests()).encode()).hexdigest()[
        :8
    ]


def is_due(result: dict[str, Any] | None, current: str, adds: bool) -> bool:
    """Whether a mutant has to run: it has no result, or one that tests are to be added to."""
    return result.get("scripts") != current if adds and result is not None else result is None


def merged(before: list[str], changed: list[str], run_again: list[str]) -> list[str]:
    """Return the tests that notice a mutant, in their order, with those that were run again as they are now."""
    noticing = {*before, *changed} - (set(run_again) - set(changed))
    return [test.id for test in shipped_tests() if test.id in noticing]


def today() -> str:
    """Return the date."""
    return datetime.now(UTC).date().isoformat()


def kept(path: Path = KEPT) -> dict[str, dict[str, Any]]:
    """Return what was found, by the mutant's key."""
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def keep(results: dict[str, dict[str, Any]]) -> None:
    """Write what was found, a line a mutant in the order of their list; those that are no longer in it are dropped."""
    keys = [each.key for each in read_mutants() if each.key in results]
    lines = [f"{json.dumps(key)}: {json.dumps(results[key])}" for key in keys]
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def own_of(mutant: Mutant, result: dict[str, Any]) -> list[str]:
    """Return the tests of the mutant's own clause that noticed it."""
    clause_of = {test.id: test.clause for test in shipped_tests()}
    return [name for name in result["fails"] if clause_of.get(name) == mutant.clause]


def unexpected(mutant: Mutant, result: dict[str, Any]) -> list[str]:
    """Return the tests of other clauses that noticed a mutant though nothing says why they must."""
    return [name for name in _without_reason(mutant, result) if name not in TRANSFERS]


def _without_reason(mutant: Mutant, result: dict[str, Any]) -> list[str]:
    own = own_of(mutant, result)
    return [
        name for name in result["fails"] if name not in own and not any(each.covers(name) for each in mutant.follow)
    ]


def line_of(mutant: Mutant, result: dict[str, Any]) -> str:
    """Return one line about a mutant."""
    state = "noticed" if own_of(mutant, result) else "by others" if result["fails"] else "survives"
    surprises = unexpected(mutant, result)
    noticing = " ".join(result["fails"])[:120]
    return f"{state:<10} {mutant.clause:<28} {noticing}" + (f" unexpected: {' '.join(surprises)}" if surprises else "")


def table(results: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield what is kept as a table: a row a mutant, and before it the counts."""
    mutants = [each for each in read_mutants() if each.key in results]
    noticed = [each for each in mutants if own_of(each, results[each.key])]
    alone = [each for each in noticed if set(own_of(each, results[each.key])) == set(results[each.key]["fails"])]
    others = [each for each in mutants if each not in noticed and results[each.key]["fails"]]
    named_clauses = {each.clause for each in mutants}
    yield f"{len(mutants)} mutants of {len(named_clauses)} clauses against {len(shipped_tests())} tests; those of"
    yield f"thousands of packets ({', '.join(sorted(LONG))}) run for mutants of their clause only."
    yield f"{len(noticed)} are noticed by a test of their clause, {len(alone)} of these by no other test;"
    none = len(mutants) - len(noticed) - len(others)
    yield f"{len(others)} are noticed by tests of other clauses only, {none} by none."
    yield ""
    yield "| clause | changed in | noticed by its tests | and by others, which follow | survives because |"
    yield "|---|---|---|---|---|"
    for mutant in mutants:
        yield row(mutant, results[mutant.key])


def row(mutant: Mutant, result: dict[str, Any]) -> str:
    """Return the row of a mutant."""
    own = own_of(mutant, result)
    others = [name for name in result["fails"] if name not in own]
    following = [f"{named(filter(each.covers, others))}: {each.why}" for each in mutant.follow]
    if transfers := [name for name in _without_reason(mutant, result) if name in TRANSFERS]:
        following.append(f"{named(transfers)}: {A_TRANSFER}")
    if surprises := unexpected(mutant, result):
        following.append(f"{named(surprises)}: unexpected")
    reason = mutant.survives if not own else ""
    section = clauses()[mutant.clause].section
    cells = [f"{section}, `{mutant.clause}`", f"`{mutant.module}`", named(own), " ".join(following), reason]
    return "| " + " | ".join(cells) + " |"


def named(tests: Iterable[str]) -> str:
    """Return names of tests, or their number if there are many."""
    names = list(tests)
    return ", ".join(names) if len(names) <= MANY else f"{len(names)} tests"


if __name__ == "__main__":
    main()
