"""Which tests the options choose."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("option", "seeds"), [("--fast", []), ("--rest", [2, 3]), ("--strict-markers", [*range(2, 12)])]
)
def test_the_rest_begins_a_search_that_only_a_run_of_everything_ends(option: str, seeds: list[int]) -> None:
    name = "test_any_shuffle_is_exported_again"
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-o", "addopts=", "-p", "no:cacheprovider"]
    chosen = [option, "-k", f"{name} and one-block-eos", "tests/fabric/test_learn.py"]
    found = subprocess.run([*command, *chosen], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    assert "deselected" in found
    assert [seed for seed in range(100) if f"{name}[one-block-eos-{seed}]" in found] == seeds
