"""Commands that print progress, on every terminal that there is and without one.

Each runs to its end, whatever reads what it prints: no exception, no escape sequences where nothing interprets them.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

SECONDS = 180.0  # for any of them, also on a busy machine
SCENARIO = """
name: two
fabric: {name: two, hosts: {count: 4}, planes: [{count: 2, host_gbps: 100, t0: {down: 4}}]}
transport: {name: mrc}
workloads: [{kind: incast, senders: 3, size: 100KB}]
"""
COMMANDS = {
    "demo": ("demo", "--size", "8MiB", "--no-simulation", "--out", "{folder}"),
    "perf": ("perf", "--loopback", "--duration", "0.3"),
    "sim run": ("sim", "run", "{folder}/two.yaml", "--out", "{folder}/run"),
    "top": ("top", "--once", "--interval", "0.2"),
}
ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(rb"\x1b\[[0-9;]*(?:3|4|9)[0-9][0-9;]*m")
RESET = b"\x1b[0m"  # of colorama, if it is installed: Numba imports it
HANGUP = 20  # bytes that are read before a terminal goes away


def environment(**changes: str) -> dict[str, str]:
    """Return the environment without what says which terminal there is."""
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS", "LINES", "TERM"}}
    return {**kept, **changes}


def words(command: str, folder: Path) -> list[str]:
    """Return a command line whose files lie in `folder`."""
    (folder / "two.yaml").write_text(SCENARIO, encoding="utf-8")
    given = [word.format(folder=folder) for word in COMMANDS[command]]
    return [sys.executable, "-m", "openmrc.programs.main", *given]


def on_terminal(command: list[str], columns: int, hangs_up: bool, **changes: str) -> tuple[int, bytes]:
    """Run a command on a terminal of its own; return its exit code and what it printed."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(**changes), start_new_session=True
    )
    os.close(theirs)
    printed, end = b"", time.monotonic() + SECONDS
    try:
        while time.monotonic() < end and select.select([ours], [], [], SECONDS)[0]:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:  # the last program has closed it
                break
            printed += part
            if not part or (hangs_up and len(printed) > HANGUP):
                break
        os.close(ours)
        return process.wait(SECONDS), printed
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("term", "columns", "changes"),
    [
        pytest.param("xterm", 80, {}, id="xterm"),
        pytest.param("dumb", 80, {}, id="dumb", marks=pytest.mark.exhaustive),
        pytest.param("xterm", 40, {}, id="narrow", marks=pytest.mark.exhaustive),
        pytest.param("xterm", 80, {"NO_COLOR": "1"}, id="no colour", marks=pytest.mark.exhaustive),
        pytest.param("xterm", 80, {"LC_ALL": "C", "PYTHONUTF8": "0"}, id="C", marks=pytest.mark.exhaustive),
    ],
)
def test_a_command_runs_on_a_terminal(
    command: str, term: str, columns: int, changes: dict[str, str], tmp_path: Path
) -> None:
    code, printed = on_terminal(words(command, tmp_path), columns, False, TERM=term, **changes)
    assert b"Traceback" not in printed, printed.decode(errors="replace")
    assert code == 0, printed.decode(errors="replace")
    assert printed
    if term == "dumb":
        assert not ESCAPE.search(printed.removesuffix(RESET))
    if "NO_COLOR" in changes:
        assert not COLOUR.search(printed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_ends_when_its_terminal_goes_away(command: str, tmp_path: Path) -> None:
    on_terminal(words(command, tmp_path), 80, True, TERM="xterm")  # which waits for its end


@pytest.mark.exhaustive
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    "shell", ["{} | cat", "{} | head -n 1", "{} >&-", "{} >&- 2>&-", "LC_ALL=C PYTHONUTF8=0 {} | cat"]
)
def test_a_command_runs_without_a_terminal(command: str, shell: str, tmp_path: Path) -> None:
    line = shell.format(" ".join(words(command, tmp_path)))
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line], capture_output=True, env=environment(), timeout=SECONDS, check=False
    )
    complaints = done.stderr.decode(errors="replace")
    assert "Traceback" not in complaints, complaints
    assert "Exception ignored" not in complaints, complaints
    assert not ESCAPE.search(done.stdout + done.stderr)
    if "head" not in shell and ">&-" not in shell:
        assert done.returncode == 0, complaints
    assert done.returncode in (0, 1, 128 + signal.SIGPIPE), complaints
