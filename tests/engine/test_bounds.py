"""A storm under compiled code that checks every index."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STORM = """
from harness.engine_pair import Pair, NetworkConditions
from tests.engine.test_storms import judge, storm
plan = [(0, True), (1, False), (257, True), (6000, True), (5000, False)]
for seed in range(6):
    conditions = NetworkConditions(
        loss=0.1, duplicate=0.1, mark=0.2, trim=0.1, jitter_us=30.0, silences=((seed % 4, 0, 5000),)
    )
    pair = Pair(conditions=conditions, seed=seed, compiled=True)
    judge(pair, plan, storm(pair, plan))
print("sound")
"""


@pytest.mark.exhaustive  # compiles the engine once more
def test_compiled_code_that_checks_bounds_finds_none_broken() -> None:
    summary = {
        **os.environ,
        "NUMBA_BOUNDSCHECK": "1",
    }  # part of the cache's digest, so such code has a folder of its own
    root = Path(__file__).parents[2]
    run = subprocess.run(  # its own process: the setting is read when Numba is imported
        [sys.executable, "-c", STORM], cwd=root, env=summary, capture_output=True, text=True, timeout=600
    )
    assert run.stdout == "sound\n", run.stderr[-2000:]
