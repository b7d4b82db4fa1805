"""Debian's pyverbs on the device: cases of ours, and the tests of rdma-core that its package ships."""

from __future__ import annotations

import ast
import functools
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.native.building import run

pytestmark = pytest.mark.needs("pyverbs", "cc", "verbs.h", "jit")
HERE = Path(__file__).parent
OURS = ("pyverbs_objects", "pyverbs_traffic")
THEIRS = Path("/usr/share/doc/rdma-core/tests")
OF_CERTAIN_NICS = ("mlx5", "efa", "cuda")
VERSION = "1.14.44.0"  # of rdma-core's library, which the table is about


def cases(module: str) -> list[str]:
    tree = ast.parse((HERE / f"{module}.py").read_text("utf-8"))
    return [
        f"{module}.{group.name}.{each.name}"
        for group in tree.body
        if isinstance(group, ast.ClassDef)
        for each in group.body
        if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")
    ]


@functools.cache
def outcomes(folder: Path, *modules: str) -> dict[str, str]:
    """What became of each test of these modules."""
    words = ["/usr/bin/python3", str(HERE / "pyverbs_runner.py"), str(folder), *modules]
    done = run(words, timeout=300, MRC_EMULATE="send,read", MRC_LOG="off")
    assert done.returncode == 0, done.stderr
    result: dict[str, str] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("case", [case for module in OURS for case in cases(module)])
def test_a_case_of_ours(case: str) -> None:
    assert outcomes(HERE, *OURS)[case] == "ok"


@pytest.fixture(scope="module")
def theirs() -> dict[str, str]:
    if not (THEIRS / "args_parser.py").exists():
        pytest.skip("python3-pyverbs was installed without its documents")
    if not list(Path("/usr/lib").glob(f"*/libibverbs.so.{VERSION}")):
        pytest.skip("the table is about another version of rdma-core")
    names = sorted(path.name.split(".")[0] for path in THEIRS.glob("test_*"))
    return outcomes(THEIRS, *(name for name in names if not any(nic in name for nic in OF_CERTAIN_NICS)))


def table() -> dict[str, Any]:
    return tomllib.loads((HERE / "pyverbs.toml").read_text("utf-8"))


def test_those_of_rdma_core_pass_that_the_table_names(theirs: dict[str, str]) -> None:
    expected = {f"{module}.{name}" for module, names in table()["passes"].items() for name in names}
    assert {name for name, outcome in theirs.items() if outcome == "ok"} - set(table()["either"]) == expected


def test_those_of_rdma_core_fail_that_the_table_names(theirs: dict[str, str]) -> None:
    failed = {name: outcome for name, outcome in theirs.items() if outcome.startswith("failed")}
    assert failed.keys() == table()["fails"].keys()
    assert all(words in failed[name] for name, words in table()["fails"].items())


def test_those_of_rdma_core_skip_what_the_device_refuses(theirs: dict[str, str]) -> None:
    words = table()["refused"]["words"]
    skipped = [outcome for outcome in theirs.values() if outcome.startswith("skipped")]
    assert skipped
    assert [outcome for outcome in skipped if not any(each in outcome for each in words)] == []
