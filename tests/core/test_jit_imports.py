"""Compiled code neither needs nor imports SciPy; a program's own linear algebra still finds it."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import numba, numpy
import openmrc.core.jit
assert numba.njit(lambda number: number + 1)(1) == 2
print("scipy.linalg" in sys.modules)
"""
LINEAR_ALGEBRA = "print(numba.njit(lambda values: numpy.dot(values, values))(numpy.ones(3)))"


def run(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return done.stdout.split()


def test_compiling_does_not_import_scipy() -> None:
    assert run(PROGRAM) == ["False"]


def test_linear_algebra_of_a_program_still_finds_scipy() -> None:
    pytest.importorskip("scipy")
    assert run(PROGRAM + LINEAR_ALGEBRA) == ["False", "3.0"]
