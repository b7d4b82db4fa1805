"""The front end of the compiler runs once for each state of the sources, whatever processors are compiled for."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from openmrc.core.calls import WORD
from openmrc.core.object_code import compile_object
from tests.core.small_entry import sum_of_squares

pytestmark = pytest.mark.needs("jit")

on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="compiles for an older x86-64, and runs it")


def run(cache: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.core.small_entry"]
    inherited = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return subprocess.run(command, check=True, capture_output=True, text=True, env={**inherited, **environment})


@on_x86
def test_code_for_another_processor_is_made_from_what_the_front_end_left(tmp_path: Path) -> None:
    first = run(tmp_path)
    other = run(tmp_path, NUMBA_CPU_NAME="x86-64-v2", NUMBA_CPU_FEATURES="")
    assert (first.stdout, other.stdout) == ("285\n", "285\n")
    assert "compiling sum_of_squares" in first.stderr
    assert other.stderr == ""
    assert len(list(tmp_path.rglob("*sum_of_squares*.nbc"))) == 3  # for two processors, and for any


def test_of_several_processes_one_compiles_and_the_others_wait(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "tests.core.small_entry"]
    running = [
        subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    said = [process.communicate(timeout=120) for process in running]
    assert [out for out, _ in said] == ["285\n"] * 4
    assert sum("compiling sum_of_squares (once" in err for _, err in said) == 1


def test_a_process_that_is_killed_while_it_compiles_leaves_no_lock(tmp_path: Path) -> None:
    folder = tmp_path / "held"
    run(folder)
    (lock,) = folder.rglob("*sum_of_squares*.lock")
    for path in folder.rglob("*sum_of_squares*.nb?"):
        path.unlink()
    with subprocess.Popen(["flock", str(lock), "sleep", "60"]) as holder:
        holder.kill()
    assert "compiling sum_of_squares" in run(folder).stderr


def test_without_it_the_front_end_runs(tmp_path: Path) -> None:
    run(tmp_path)
    for path in tmp_path.rglob("*sum_of_squares*.nbi"):
        path.unlink()
    assert "compiling sum_of_squares" in run(tmp_path, NUMBA_CPU_NAME="x86-64-v2", NUMBA_CPU_FEATURES="").stderr


@on_x86
def test_an_object_file_of_a_cached_entry_holds_it_under_its_name_in_c() -> None:
    sum_of_squares(1)  # now it is cached
    code = compile_object(sum_of_squares, "the_sum", (WORD,), "x86_64-unknown-linux-gnu", "x86-64-v2", is_shown=True)
    assert code.startswith(b"\x7fELF")
    assert b"the_sum" in code
    assert b"cpython" not in code, "the wrapper for Python is dropped"
