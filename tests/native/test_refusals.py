"""The library in a program to which kernel and C library refuse descriptors, memory, threads and packets."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.native.building import environment, program

pytestmark = pytest.mark.needs("cc", "verbs.h", "jit")
# Not those of other programs: where they hold the first ports, opening makes more calls, and not always as many.
OWN_PLANES = ",".join(f"127.0.{1 + os.getpid() % 254}.{plane}" for plane in range(1, 5))
TESTS = [
    "a_call_that_fails_is_named_or_done_without",
    "packets_that_the_kernel_refuses_are_sent_again",
    "a_kernel_that_takes_no_packet_any_more_ends_in_an_error_completion",
]


def refuse(name: str) -> subprocess.CompletedProcess[str]:
    """Run one of the tests in C, where calls of the library fail and those of the program do not."""
    failing: Path = program("tests/failing.c", "-shared", "-fPIC", linked=False)
    settings = environment(LD_PRELOAD=str(failing), MRC_LOG="off", MRC_PLANES=OWN_PLANES)
    command = [str(program("tests/exhausted.c")), name]
    return subprocess.run(command, env=settings, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.parametrize("name", TESTS)
def test_what_is_refused_has_a_named_end(name: str) -> None:
    done = refuse(name)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-600:] + done.stderr
    if name == TESTS[0]:  # else nothing was refused
        for said in ("socket 3 of ", "mmap 1 of ", "calloc 2 of ", "pthread_create 1 of "):
            assert said in done.stdout
        assert "Too many open files" in done.stdout


def test_the_tests_in_c_are_those_that_run_here() -> None:
    assert (
        subprocess.check_output(
            [program("tests/exhausted.c")],
            text=True,
            env=environment(LD_PRELOAD=str(program("tests/failing.c", "-shared", "-fPIC", linked=False))),
        ).split()
        == TESTS
    )
