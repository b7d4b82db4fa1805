"""Commands on every terminal that there is and without one, in every locale, under limits, as another user.

Each runs to its end, whatever reads what it prints: no exception, no escape sequences where nothing interprets them.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import resource
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.needs import is_root

from .drawing import drawn

SECONDS = 180.0  # for any of them, also on a busy machine
ROOT = Path(__file__).parents[2]
COMMANDS = {
    "demo": "demo --size 8MiB --no-tcp --no-simulation --out {folder}",
    "perf": "perf --loopback --duration 0.3",
    "sim run": "sim run {root}/tests/space/two.yaml --out {folder}/run",
    "top": "top --once --interval 0.2",
    "doctor": "doctor --timeouts",
    "plan": "plan --gpus 1024",
    "clause": "clause qpcc-shared",
    "fabric cables": "fabric cables {root}/scenarios/fabrics/lab.yaml --out {folder}/cables.csv",
}
QUICK = {"doctor", "clause", "plan"}
LOCALES = {"C": {"LC_ALL": "C", "PYTHONUTF8": "0"}, "C.UTF-8": {"LC_ALL": "C.UTF-8"}, "none": {}}
SHELLS = {"pipe": "{} | cat", "head": "{} | head -n 1", "closed": "{} >&-", "both closed": "{} >&- 2>&-"}
WITHOUT_RIGHTS = ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"]
ESCAPE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
COLOUR = re.compile(rb"\x1b\[[0-9;]*(?:3|4|9)[0-9][0-9;]*m")
RESET = b"\x1b[0m"  # of colorama, if it is installed: Numba imports it
HANGUP = 20  # bytes that are read before a terminal goes away


def environment(row: SimpleNamespace) -> dict[str, str]:
    """Return the environment, without what else says which terminal there is."""
    unset = {"NO_COLOR", "COLUMNS", "LINES", "TERM", "LC_ALL", "LANG", "PYTHONUTF8"}
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    kept |= LOCALES[row.locale] | ({"NO_COLOR": "1"} if row.colour == "NO_COLOR" else {})
    if row.colour != "TERM unset":
        kept["TERM"] = "dumb" if row.stdout == "dumb terminal" else "xterm"
    return kept


def limits(row: SimpleNamespace) -> None:
    """Limit this process, which is to become the command."""
    if row.limit == "32 files":
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
    elif row.limit == "no file may grow":
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def words(row: SimpleNamespace, folder: Path) -> list[str]:
    """Return a command line that writes into `folder`."""
    given = COMMANDS[row.command].format(folder=folder, root=ROOT).split()
    without = WITHOUT_RIGHTS if row.rights == "none" and is_root() else []
    return [*without, sys.executable, "-m", "openmrc.programs.main", *given]


def on_terminal(command: list[str], columns: int, hangs_up: bool, how: dict[str, Any]) -> tuple[int, bytes]:
    """Run a command on a terminal of its own; return its exit code and what it printed."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, **how)
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


def without_terminal(command: list[str], shell: str, how: dict[str, Any]) -> tuple[int, bytes]:
    """Run a command whose output goes elsewhere; return its exit code and what was printed in the end."""
    line = ["bash", "-o", "pipefail", "-c", shell.format(" ".join(command))]
    done = subprocess.run(line, capture_output=True, timeout=SECONDS, check=False, **how)
    return done.returncode, done.stdout + done.stderr


@drawn("command_line", few=4, quick=lambda row: row.command in QUICK)
def test_a_command_runs_to_its_end(row: SimpleNamespace, tmp_path: Path) -> None:
    command = words(row, tmp_path)
    how: dict[str, Any] = {"env": environment(row), "preexec_fn": lambda: limits(row), "cwd": tmp_path}
    if row.stdout in SHELLS:
        code, printed = without_terminal(command, SHELLS[row.stdout], how)
        interprets = False
    else:
        columns = 40 if row.stdout == "narrow terminal" else 80
        code, printed = on_terminal(command, columns, row.stdout == "terminal that goes away", how)
        interprets = row.stdout != "dumb terminal" and row.colour != "TERM unset"
    text = printed.decode(errors="replace")
    assert "Traceback" not in text, text
    assert "Exception ignored" not in text, text
    if not interprets:
        assert not ESCAPE.search(printed.replace(RESET, b"")), text
    if row.colour == "NO_COLOR":
        assert not COLOUR.search(printed), text
    if row.limit == "none" and row.stdout in {"pipe", "terminal", "narrow terminal", "dumb terminal"}:
        assert code == 0, text
        assert printed
    assert code in (0, 1, 128 + signal.SIGPIPE, -signal.SIGHUP, -signal.SIGPIPE), text
