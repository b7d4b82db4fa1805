# ruff: noqa: N802, N815 - names of unittest
"""Run test cases that are written to pyverbs, with Debian's Python: prints what became of each, as JSON.

    /usr/bin/python3 pyverbs_runner.py FOLDER MODULE ...

FOLDER: where the modules are, those of rdma-core as its package ships them, compressed or not.
"""

from __future__ import annotations

import gzip
import importlib
import json
import shutil
import sys
import tempfile
import types
import unittest
from pathlib import Path
from typing import Any


def unpack(source: Path, target: Path) -> None:
    """Copy modules, uncompressed."""
    for path in source.iterdir():
        if path.suffix == ".gz":
            (target / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        elif path.suffix == ".py":
            shutil.copy(path, target)


def settle(folder: Path) -> None:
    """Do for rdma-core's modules what their own main program does."""
    package = types.ModuleType("tests")
    package.__path__ = [str(folder)]
    sys.modules["tests"] = package
    sys.path.insert(0, str(folder))
    arguments = importlib.import_module("args_parser").parser
    arguments.args = {"dev": "mrc0", "port": 1, "gid": 3, "pci_dev": None, "gpu": 0, "gtt": False, "verbosity": 0}
    importlib.import_module("tests.base")


class Outcomes(unittest.TestResult):
    """What became of each test, in one line."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, str] = {}

    def stopTest(self, test: unittest.TestCase) -> None:
        """Pass, unless it has been said to be something else."""
        self.of.setdefault(test.id().removeprefix("tests."), "ok")
        super().stopTest(test)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        """Keep the reason."""
        self.of[test.id().removeprefix("tests.")] = f"skipped: {reason}"

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        """Keep the exception."""
        self.of[test.id().removeprefix("tests.")] = f"failed: {err[0].__name__}: {err[1]}"

    addFailure = addError


def main() -> None:
    """Run the modules named on the command line."""
    source = Path(sys.argv[1])
    outcomes, suite = Outcomes(), unittest.TestSuite()
    with tempfile.TemporaryDirectory() as name:
        sys.dont_write_bytecode = True
        is_of_others = (source / "args_parser.py").exists()
        if is_of_others:
            unpack(source, Path(name))
            settle(Path(name))
        for module in sys.argv[2:]:
            made = importlib.import_module(f"tests.{module}" if is_of_others else module)
            suite.addTests(unittest.defaultTestLoader.loadTestsFromModule(made))
        suite.run(outcomes)
    sys.stdout.write(json.dumps(outcomes.of) + "\n")


if __name__ == "__main__":
    main()
