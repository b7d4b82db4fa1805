"""Run torch's own test suite for distributed backends with `mrc`.

Runs `DistributedTest` of the installed torch, including the tests reserved for Gloo and MPI, each test in separate
processes. Prints a line per failed test, and the numbers of passed, failed and skipped tests. `--beside-gloo` runs the
same tests with Gloo and lists those that Gloo passes and `mrc` does not. Mark: none.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib.util
import io
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
import types
import unittest
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MODULE = "torch.testing._internal.distributed.distributed_test"
CONDITIONS = {  # conditions in the suite that list backends for CPU tensors -> the same including `mrc`
    'BACKEND != "gloo"': 'BACKEND not in ("gloo", "mrc")',
    'BACKEND == "gloo"': 'BACKEND in ("gloo", "mrc")',
    'BACKEND != "mpi"': 'BACKEND not in ("mpi", "mrc")',
    '{"gloo"}': '{"gloo", "mrc"}',
}


def load(backend: str, ranks: int) -> types.ModuleType:
    """Import the suite; for `mrc` with the tests reserved for Gloo and MPI enabled."""
    os.environ.update(BACKEND=backend, WORLD_SIZE=str(ranks), MRC_PLANES=os.environ.get("MRC_PLANES", "2"))
    os.environ.setdefault("TEMP_DIR", "/tmp")
    if backend != "mrc":
        return importlib.import_module(MODULE)
    from torch.testing._internal.common_distributed import DistTestCases

    for feature in DistTestCases.backend_feature.values():
        feature.add("mrc")
    spec = importlib.util.find_spec(MODULE)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text()
    for condition, replacement in CONDITIONS.items():
        source = source.replace(condition, replacement)
    module = types.ModuleType(MODULE)
    module.__file__ = spec.origin
    sys.modules[MODULE] = module
    exec(compile(source, spec.origin, "exec", dont_inherit=True), module.__dict__)
    return module


def case_of(module: types.ModuleType) -> type:
    """Return the suite as a test case whose ranks are forked, which avoids importing torch in each."""

    class Case(module.TestDistBackend, module.DistributedTest._DistTestBase):  # type: ignore[misc, name-defined]
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(multiprocessing.get_context("fork").Process)

    return Case


def warm() -> None:
    """Load compiled code before the ranks are forked."""
    from openmrc.train.links.devices import open_context
    from openmrc.train.pytorch import process_group

    assert process_group.SHAPE
    open_context("1", 1).close()


@dataclass(frozen=True)
class Outcome:
    """The outcome of one test: passed, failed or skipped, and why."""

    name: str
    state: str
    reason: str
    seconds: float


def run_one(case: Any, name: str) -> Outcome:
    """Run a test, without its output."""
    result = unittest.TestResult()
    begun = time.monotonic()
    with contextlib.redirect_stdout(io.StringIO()):
        case(name).run(result)
    seconds = time.monotonic() - begun
    for _, text in (*result.errors, *result.failures):
        return Outcome(name, "failed", text, seconds)
    for _, reason in result.skipped:
        return Outcome(name, "skipped", reason, seconds)
    return Outcome(name, "passed", "", seconds)


def last_line(text: str) -> str:
    """Return the line of a traceback that gives the error."""
    lines = [line for line in text.splitlines() if re.match(r"^[\w.]*(Error|Exception|Failed)\b", line)]
    causes = [line for line in lines if "exited with error code" not in line]
    return (causes or lines or text.strip().splitlines())[-1][:300]


def run_suite(options: argparse.Namespace) -> list[Outcome]:
    """Run the selected tests with one backend, and print those that fail, or all."""
    case: Any = case_of(load(options.backend, options.ranks))
    part, parts = map(int, options.shard.split("/"))
    names = [name for name in unittest.TestLoader().getTestCaseNames(case) if re.search(options.pattern, name)]
    if options.backend == "mrc":
        warm()
    outcomes = []
    for name in names[part - 1 :: parts]:
        outcome = run_one(case, name)
        outcomes.append(outcome)
        if outcome.state == "failed" or options.verbose:
            text = outcome.reason if options.verbose else last_line(outcome.reason)
            print(f"{outcome.state} {name} ({outcome.seconds:.1f} s): {text}", flush=True)
    return outcomes


def outcomes_of_gloo() -> dict[str, Outcome]:
    """Run this command again, with Gloo: a process imports the suite for one backend only."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gloo.json"
        words = [word for word in sys.argv[1:] if word != "--beside-gloo"]
        command = [sys.executable, "-m", "bench.train.torch_suite", *words, "--backend", "gloo", "--json", str(path)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return {each["name"]: Outcome(**each) for each in json.loads(path.read_text())}


def print_skips(outcomes: list[Outcome], gloo: dict[str, Outcome]) -> None:
    """Print each reason, how many tests it skipped and, if it is known, how many of these Gloo skipped as well."""
    skipped = [each for each in outcomes if each.state == "skipped"]
    for reason, count in collections.Counter(each.reason for each in skipped).most_common():
        theirs = [each for each in skipped if each.reason == reason and is_skipped(gloo.get(each.name))]
        print(f"skipped {count}{f' (Gloo {len(theirs)} of these)' if gloo else ''}: {reason}")


def is_skipped(outcome: Outcome | None) -> bool:
    """Whether a test was run and skipped."""
    return outcome is not None and outcome.state == "skipped"


def print_lost_to_gloo(outcomes: list[Outcome], gloo: dict[str, Outcome]) -> None:
    """Print the tests that Gloo passes and `mrc` does not, and how many `mrc` alone passes."""
    lost = [each for each in outcomes if each.state != "passed" and gloo[each.name].state == "passed"]
    for each in lost:
        print(f"Gloo passes {each.name}, which mrc {each.state}: {last_line(each.reason)}")
    alone = sum(each.state == "passed" and gloo[each.name].state != "passed" for each in outcomes)
    print(f"Gloo passes {len(lost)} that mrc does not (mark 0: {'missed' if lost else 'ok'}); mrc alone passes {alone}")


def main() -> None:
    """Run the selected tests, and print their outcomes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--backend", choices=("mrc", "gloo"), default="mrc")
    parser.add_argument("--beside-gloo", action="store_true", help="run the same tests with Gloo, and compare")
    parser.add_argument(
        "-k", dest="pattern", default="", help="run only tests whose names match this regular expression"
    )
    parser.add_argument("--shard", default="1/1", help="run only part I of N, as I/N")
    parser.add_argument("--json", dest="path", default="", help="write every outcome to this file")
    parser.add_argument("-v", dest="verbose", action="store_true", help="print all tests, with tracebacks")
    options = parser.parse_args()
    gloo = outcomes_of_gloo() if options.beside_gloo else {}
    outcomes = run_suite(options)
    if options.path:
        Path(options.path).write_text(json.dumps([asdict(each) for each in outcomes]))
    print_skips(outcomes, gloo)
    if gloo:
        print_lost_to_gloo(outcomes, gloo)
    counts = collections.Counter(each.state for each in outcomes)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")


if __name__ == "__main__":
    main()
