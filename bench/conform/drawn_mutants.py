"""What notices a mutant made by machine: the conformance tests, the fast tests beside them, or nothing?

    python -m bench.conform.drawn_mutants [--count 400] [--seed 1] [--conform] [--seconds 3000] [--to FOLDER]

Draws changes of all kinds alike from the engine, the wire and the profiles. Each runs against the conformance tests in
virtual time that reach its statement until one notices, with the settings of a network card and with those of the
endpoint over sockets, which `mrc conform` tests by default. Then, if none did, it runs against the tests of its folder
that reach it, interpreted. Prints one line a mutant and the share that each noticed, with its interval of 95 %. `--to`
keeps results, and which fast tests reach what; a run goes on with what is not there yet.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import coverage

from openmrc.conform.catalogue import shipped_tests
from openmrc.conform.devices.virtual import VirtualDevice
from openmrc.conform.language import PartOfDevice, ScriptTest
from openmrc.live.host.sockets import Sockets
from openmrc.live.host.tuning import settings_for
from spec.drawn_mutants import MutationSite, drawn
from spec.mutation import DEFAULTS, LONG, RELOADED, ROOT, SECONDS, first_noticing, forget, outcome

FAST_SECONDS = 1800  # that the tests of a folder may take
FAST_TESTS = {  # of the top folder of a module
    "engine": ["tests/engine"],
    "wire": ["tests/wire", "tests/conform/test_language.py", "tests/conform/test_relay.py"],
    "ctl": ["tests/ctl"],
}
MEASURED = [str(ROOT / "openmrc" / folder / "*") for folder in FAST_TESTS]
NORMAL_95 = 1.96
FEW = 40  # tests that reach a statement: those of thousands of packets run, too
Reach = dict[str, dict[int, set[str]]]  # file, line: tests


@dataclass(frozen=True)
class DrawnOutcome:
    """What noticed a mutant first."""

    place: str
    kind: str
    conform: str | None  # id of the test
    fast: str | None = None  # the line of pytest
    reached: int = 0  # conformance tests that run the statement


@dataclass(frozen=True)
class SuiteRun:
    """All tests against the unbroken endpoint with one set of settings."""

    name: str
    settings: Mapping[str, Any]
    unbroken: dict[str, str]  # what each test comes to
    reach: Reach


def configurations() -> list[tuple[str, Mapping[str, Any]]]:
    """Return the sets of settings: the engine's defaults, and those of the endpoint over sockets."""
    sockets = cast(Sockets, SimpleNamespace(segmentation=True))
    own = asdict(settings_for(sockets, mtu=1024))
    del own["mtu"]  # is the test's
    return [("", DEFAULTS), ("over sockets", own)]


def main() -> None:
    """Read the options and run."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=400)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--seconds", type=float, default=float("inf"), help="start no mutant after so long")
    options.add_argument("--conform", action="store_true", help="run no fast tests: which mutants do devices fail by?")
    options.add_argument("--to", type=Path, help="keep results in this folder")
    chosen = options.parse_args()
    folder = chosen.to or Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    results = folder / f"seed{chosen.seed}.jsonl"
    kept = _kept(results)
    names, settings = zip(*configurations(), strict=True)
    with multiprocessing.get_context("fork").Pool(chosen.workers, maxtasksperchild=1) as pool_of_runs:
        found_by_run = pool_of_runs.map(measured, settings, chunksize=1)
    runs = [SuiteRun(*each) for each in zip(names, settings, *zip(*found_by_run, strict=True), strict=True)]
    begun = time.monotonic()

    def run(site: MutationSite) -> DrawnOutcome | None:
        before = kept.get(site.place)
        if before is not None and (before.conform or before.fast or chosen.conform):
            return before
        if time.monotonic() - begun > chosen.seconds:
            return before
        conform, tests = (None, before.reached) if before is not None else by_conformance(site, runs)
        fast = None if conform is not None or chosen.conform else by_fast_tests(site, folder)
        found = DrawnOutcome(site.place, site.kind.value, conform, fast, tests)
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(found.__dict__) + "\n")
        return found

    done: list[DrawnOutcome] = []
    with ThreadPoolExecutor(chosen.workers) as pool:
        for found in pool.map(run, drawn(chosen.count, chosen.seed)):
            if found is not None:
                done.append(found)
                state = found.conform or found.fast or f"SURVIVES {found.reached or 'unreached'}"
                print(f"{state:<40} {found.kind:<18} {found.place}", flush=True)
    print(summary(done))


def _kept(path: Path) -> dict[str, DrawnOutcome]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {each.place: each for each in (DrawnOutcome(**json.loads(line)) for line in lines)}


def measured(settings: Mapping[str, Any]) -> tuple[dict[str, str], Reach]:
    """Return what the conformance tests come to without a mutant, and which statements each of them runs.

    The endpoint is loaded again, so that what runs as it is loaded counts for every test. A test that takes nearly as
    long as a mutant may is left out: whether one hangs must not depend on the machine.
    """
    watch = coverage.Coverage(data_file=None, include=MEASURED)
    watch.start()
    forget(RELOADED)
    device: type[VirtualDevice] = importlib.import_module("openmrc.conform.devices.virtual").VirtualDevice
    found = {}
    for test in sorted(shipped_tests(), key=_cost):
        watch.switch_context(test.id)
        begun = time.process_time()
        came = outcome(test, device, settings)
        if test.id in LONG or time.process_time() - begun < SECONDS:  # watched, it takes twice as long
            found[test.id] = came
    watch.stop()
    return found, _reach(watch.get_data())


def _cost(test: ScriptTest) -> tuple[bool, bool, int]:
    """Return how long a test takes beside others: of two devices longer, of thousands of packets longest."""
    return test.id in LONG, test.part == PartOfDevice.BOTH, test.wanted.mpr


def _reach(data: coverage.CoverageData) -> Reach:
    found: Reach = defaultdict(dict)
    for path in data.measured_files():
        for line, contexts in data.contexts_by_lineno(path).items():
            found[path][line] = set(contexts)
    return found


def _reaching(site: MutationSite, reach: Reach) -> set[str]:
    lines = reach.get(str(site.path), {})
    return set().union(*(lines.get(line, set()) for line in site.statement))


def by_conformance(site: MutationSite, runs: Sequence[SuiteRun]) -> tuple[str | None, int]:
    """Return the conformance test that notices a mutant, and how many run its statement, with any settings."""
    reached: set[str] = set()
    for run in runs:
        reaching = _reaching(site, run.reach)
        tests = [test for test in sorted(shipped_tests(), key=_cost) if test.id in reaching or "" in reaching]
        tests = [test for test in tests if test.id in run.unbroken and (len(tests) <= FEW or test.id not in LONG)]
        reached |= {test.id for test in tests}
        noticing = first_noticing(site.mutant(), tests, run.unbroken, run.settings) if tests else None
        if noticing is not None:
            return f"{noticing} {run.name}".strip(), len(reached)
    return None, len(reached)


def by_fast_tests(site: MutationSite, folder: Path) -> str | None:
    """Return the first of the fast tests that fails with a mutant; None if all pass."""
    failing, reach = _fast_tests(site.module.partition(".")[0], folder)
    reaching = _reaching(site, reach)
    tests = FAST_TESTS[site.module.partition(".")[0]] if "" in reaching else sorted(reaching)
    if not tests:
        return None
    with tempfile.TemporaryDirectory() as name:
        source, names = Path(name, "changed.py"), Path(name, "tests")
        source.write_text(site.mutant().new, encoding="utf-8")
        names.write_text("\n".join(tests), encoding="utf-8")
        changed = {"CHANGED_MODULE": f"openmrc.{site.module}", "CHANGED_SOURCE": str(source)}
        try:
            passed_over = [f"--deselect={each}" for each in failing]
            failed = _failed(["-x", "-p", "spec.changed_import", *passed_over, f"@{names}"], changed)
        except subprocess.TimeoutExpired:
            return "timeout"
    return failed[0] if failed else None


@functools.cache
def _fast_tests(top: str, folder: Path) -> tuple[list[str], Reach]:
    """Return the fast tests that fail without a mutant, such as those that need a compiler, and what each test runs."""
    failing, contexts = folder / f"{top}.failing", folder / f"{top}.coverage"
    if not failing.exists():
        options = ["--cov-report=", "--cov-context=test", *(f"--cov={path[:-2]}" for path in MEASURED)]
        failed = _failed([*options, *FAST_TESTS[top]], {"COVERAGE_FILE": str(contexts)})
        failing.write_text("\n".join(failed), encoding="utf-8")
    data = coverage.CoverageData(str(contexts))
    data.read()
    found = _reach(data)
    named: Reach = {
        path: {line: {_node(name) for name in names} for line, names in lines.items()} for path, lines in found.items()
    }
    return failing.read_text(encoding="utf-8").splitlines(), named


def _node(context: str) -> str:
    """Return the test of a context of pytest-cov, `tests/a.py::test_b|run`."""
    return context.rpartition("|")[0]


def _failed(options: Sequence[str], environment: dict[str, str]) -> list[str]:
    words = [sys.executable, "-m", "pytest", "-q", "--fast", "--no-header", "-p", "no:cacheprovider", "-n", "0"]
    done = subprocess.run(
        [*words, *options],
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
    """Return the shares, of all, of each kind and of each part."""
    lines = [f"{'':<18} {'mutants':>7} {'conform':>14} {'fast':>14} {'none':>14} {'unreached':>14}"]
    groups: dict[str, list[DrawnOutcome]] = defaultdict(list)
    for each in done:
        for name in ("all", each.kind, each.place.partition(".")[0]):
            groups[name].append(each)
    for name, group in groups.items():
        by = Counter("conform" if each.conform else "fast" if each.fast else "none" for each in group)
        by["unreached"] = sum(1 for each in group if not each.reached)
        shares = " ".join(f"{share(by[kind], len(group)):>14}" for kind in ("conform", "fast", "none", "unreached"))
        lines.append(f"{name:<18} {len(group):>7} {shares}")
    return "\n".join(lines)


def share(count: int, of: int) -> str:
    """Return a share and its interval of 95 % (Wilson), in per cent."""
    z, p = NORMAL_95**2 / of, count / of
    middle, half = (p + z / 2) / (1 + z), math.sqrt(z * p * (1 - p) + z * z / 4) / (1 + z)
    return f"{100 * p:.0f} ({100 * max(middle - half, 0):.0f}-{100 * min(middle + half, 1):.0f})"


if __name__ == "__main__":
    main()
