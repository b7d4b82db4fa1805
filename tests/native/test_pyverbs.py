"""Debian's pyverbs on the device: cases of ours, and the tests of rdma-core that its package ships."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.native.building import run

pytestmark = pytest.mark.needs("pyverbs", "cc", "verbs.h", "jit")
HERE = Path(__file__).parent
OURS = ("pyverbs_objects", "pyverbs_traffic")
THEIRS = Path("/usr/share/doc/rdma-core/tests")
OF_CERTAIN_NICS = ("mlx5", "efa", "cuda")
VERSION = "1.14.44.0"  # of rdma-core's library, which the table is about


def outcomes(folder: Path, *modules: str) -> dict[str, str]:
    """What became of each test of these modules."""
    words = ["/usr/bin/python3", str(HERE / "pyverbs_runner.py"), str(folder), *modules]
    done = run(words, timeout=300, MRC_EMULATE="send,read", MRC_LOG="off")
    assert done.returncode == 0, done.stderr
    result: dict[str, str] = json.loads(done.stdout)
    return result


# One test a suite: workers that shared the cases of one would each run it whole.


def test_all_cases_of_ours_pass() -> None:
    found = outcomes(HERE, *OURS)
    assert {name.partition(".")[0] for name in found} == set(OURS)
    assert {name: outcome for name, outcome in found.items() if outcome != "ok"} == {}


def test_those_of_rdma_core_pass_fail_and_are_skipped_as_the_table_says() -> None:
    if not (THEIRS / "args_parser.py").exists():
        pytest.skip("python3-pyverbs was installed without its documents")
    if not list(Path("/usr/lib").glob(f"*/libibverbs.so.{VERSION}")):
        pytest.skip("the table is about another version of rdma-core")
    names = sorted(path.name.split(".")[0] for path in THEIRS.glob("test_*"))
    found = outcomes(THEIRS, *(name for name in names if not any(nic in name for nic in OF_CERTAIN_NICS)))
    table = tomllib.loads((HERE / "pyverbs.toml").read_text("utf-8"))

    passes = {f"{module}.{name}" for module, names in table["passes"].items() for name in names}
    assert {name for name, outcome in found.items() if outcome == "ok"} - set(table["either"]) == passes

    failed = {name: outcome for name, outcome in found.items() if outcome.startswith("failed")}
    assert failed.keys() == table["fails"].keys()
    assert all(words in failed[name] for name, words in table["fails"].items())

    skipped = [outcome for outcome in found.values() if outcome.startswith("skipped")]
    assert skipped
    assert [outcome for outcome in skipped if not any(each in outcome for each in table["refused"]["words"])] == []
