"""Bytes of others, mutated, at the library with the compilers' checks: see native/tests/fuzz.c.

Ten seconds a target; `MRC_FUZZ_SECONDS=200 pytest tests/native/test_fuzz.py` takes ten minutes, `MRC_FUZZ_SEED` is
another seed. Inputs are the same for the same seed.
"""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.native.building import beside, library
from tests.native.test_sanitizers import CHECKS

pytestmark = [pytest.mark.needs("cc", "verbs.h", "jit"), pytest.mark.exhaustive]
SECONDS = os.environ.get("MRC_FUZZ_SECONDS", "10")
SEED = os.environ.get("MRC_FUZZ_SEED", "1")


@pytest.mark.parametrize("target", ["greetings", "packets", "configuration"])
def test_whatever_comes_the_device_works_afterwards(target: str) -> None:
    of_library, of_program = CHECKS["address and locks"]
    made = beside(library(*of_library), "fuzz.c", "-Wall", "-Wextra", "-Werror", *of_program)
    settings = {"MRC_PLANES": "127.0.0.1", "MRC_LOG": "off", "PATH": "/usr/bin:/bin"}
    words = [str(made), target, SECONDS, SEED]
    limit = 10 * float(SECONDS) + 60
    done = subprocess.run(words, env=settings, capture_output=True, text=True, timeout=limit, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    count = re.fullmatch(rf"{target}: (\d+) inputs\n", done.stdout)
    assert count is not None
    assert int(count[1]) > 0
