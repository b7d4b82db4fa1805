"""What tests leave behind when their process is ended: nothing after SIGTERM, nothing for long after SIGKILL."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import labs
from openmrc.lab import namespaces
from tests.lab.conftest import FABRIC
from tests.lab.test_lifetime import traces
from tests.leftovers import remove_leftovers
from tests.waiting import await_true

UP = """
import os, subprocess, sys, time
from pathlib import Path
from harness import labs
from openmrc.lab import lifetime
name = f"t{os.getpid()}-left"
path = Path(sys.argv[1], "fabric.yaml")
path.write_text(sys.argv[2].format(name=name, planes=1))
lifetime.up(path)
subprocess.run(["ip", "netns", "add", f"mrcf{os.getpid()}-x"], check=True)
print(labs.start(name, "h0", ["sleep", "600"]).pid, flush=True)
time.sleep(600)
"""
WAITS = """
import time
from pathlib import Path
import pytest

@pytest.fixture
def made():
    Path(__file__).with_name("made").touch()
    yield
    Path(__file__).with_name("removed").touch()

def test_waits(made):
    time.sleep(60)
"""


def runs(process: int) -> bool:
    """Return whether a process runs; an orphan that ended may stay as a zombie for a while."""
    path = Path(f"/proc/{process}/stat")
    return path.exists() and path.read_text().rpartition(")")[2].split()[0] != "Z"


def test_what_a_killed_test_process_left_is_removed_by_the_next_run(lab_rights: None, tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", UP, tmp_path, FABRIC], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        inside = int(process.stdout.readline())
        name, other = f"t{process.pid}-left", f"mrcf{process.pid}-x"
        assert not {name, other} & set(remove_leftovers())  # its process lives
        await_true(lambda: inside in labs.processes_in(name))
    finally:
        process.kill()
        process.wait()
    assert {name, other} <= set(remove_leftovers())
    assert traces(name) == []
    assert not (namespaces.NAMED / other).exists()
    await_true(lambda: not runs(inside))  # it leaves its namespace before it has ended


def test_fixtures_end_their_work_when_the_tests_are_terminated(tmp_path: Path) -> None:
    (tmp_path / "test_waits.py").write_text(WAITS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.leftovers", "-p", "no:cacheprovider"]
    process = subprocess.Popen([*command, "--rootdir", tmp_path, tmp_path], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "made").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == pytest.ExitCode.INTERRUPTED
    finally:
        process.kill()
        process.wait()
    assert (tmp_path / "removed").exists()
