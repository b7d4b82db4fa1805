"""Every shell command that the README and the pages print runs as printed, in a folder of its own.

The commands of a page run in their order; one that serves runs until the next one has ended. The folder holds links to
the files of the repository that the commands name, and the files that a page tells its reader to have.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = re.compile(r"^\w*\$ ")
INLINE = re.compile(r"`((?:mrc|python) [^`]+)`")
PROGRAMS = ("mrc ", "make ", "python ", "torchrun ", ".venv/bin/")
SHELLS = {"sh", "bash"}
SECONDS = 100.0  # for one command, also on a busy machine
SERVING_SECONDS = 20.0  # for a server to listen

SERVERS = {  # what a command that serves writes to stderr or stdout once it listens
    r"\bmrc perf --planes 4$": "TCP port",
    r"write_memory\.py serve|send_file\.py receive": "",
    r"\bmrc metrics --listen\b": "metrics at",
}
EXIT_CODES = {  # other exit codes than 0 that a page announces
    r"^mrc doctor": {0, 1},  # 1 where this machine lacks something
}
SKIPPED = {  # commands that do not run here -> why
    r"^mrc top\b(?! --)": "runs until it is interrupted: tests/telemetry runs it once",
    r"^mrc view (demo(?! --record)|my-scenario)": "serves until it is interrupted: tests/view opens pages",
    r"^make ": "installs into the repository or runs all tests",
    r"^mrc plan job --deep --out runs/month$": "docs/month.md runs it for 100,000 GPUs",
    r"^mrc plan job$": "docs/month.md and its tutorial run it with more options",
    r"^mrc demo( --train)?$": "tests/cli/test_demo.py runs it, the transfer for a shorter time",
    r"192\.0\.2\.|^mrc perf$": "needs a second machine",
    r"conform --bridge": "needs two devices between interfaces: tests/conform/test_bridge.py has namespaces",
    r"^mrc (run|native)\b": "needs a C compiler and programs of others: tests/native runs them",
    r"^mrc ctl (?!list)": "needs an endpoint that runs: tests/cli/test_ctl.py runs them on one",
    r"^mrc lab ": "needs root: tests/cli/test_lab.py and tests/lab run them on labs of their own",
    r"^mrc map agent": "needs a host of the fabric: tests/operate/agents runs agents in a lab's hosts",
    r"^mrc (view --lab|map watch|undrain|drain .*--apply)": "needs root and a lab: tests/operate runs them on one",
    r"^mrc train explain": "needs a recorder of a training job, which tests/train makes",
    r"^torchrun |--backend gloo|^python -m bench|^mrc collperf all_reduce -b 8 -e 64M": "minutes, or needs torch",
}

ON_FIXED_PORTS = r"\b(perf|collperf|metrics|write_memory|send_file)\b"  # listen, or connect, where everyone does


def commands(page: Path) -> list[str]:
    """Return the commands of a page's shell blocks, in order."""
    found = []
    for language, body in FENCE.findall(page.read_text(encoding="utf-8")):
        for line in body.splitlines():
            text = PROMPT.sub("", line)
            is_command = text.startswith(PROGRAMS) and (language in SHELLS or PROMPT.match(line))
            if is_command or (not language and line.startswith(PROGRAMS)):
                found.append(text)
    return found


def inline_commands(page: Path) -> list[str]:
    """Return the commands in the page's tables that name no placeholder."""
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    found = [command for row in rows for command in INLINE.findall(row)]
    return [each for each in found if not re.search(r"\b[A-Z]{3,}\b|\.\.\.", each) and len(each.split()) > 2]


def reason_to_skip(command: str) -> str | None:
    return next((why for pattern, why in SKIPPED.items() if re.search(pattern, command)), None)


def server_word(command: str) -> str | None:
    """Return what a serving command prints when it listens; None for a command that ends."""
    return next((word for pattern, word in SERVERS.items() if re.search(pattern, command)), None)


GROUPS = {page: [each for each in commands(page) if reason_to_skip(each) is None] for page in PAGES}
GROUPS[ROOT / "README.md"] += [
    each
    for each in inline_commands(ROOT / "README.md")
    if reason_to_skip(each) is None and each not in GROUPS[ROOT / "README.md"]
]
WITH_COMMANDS = [page for page, group in GROUPS.items() if group]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with what the pages tell their reader to have."""
    for name in ("scenarios", "examples", "README.md", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    for name, size in (("weights.bin", 3 << 20), ("notes.txt", 20), ("big.file", 20 << 20)):
        (tmp_path / name).write_bytes(bytes(size))
    small = (ROOT / "scenarios" / "fabrics" / "lab.yaml").read_text(encoding="utf-8")
    (tmp_path / "old.yaml").write_text(small)
    (tmp_path / "new.yaml").write_text(small)
    (tmp_path / "faults.yaml").write_text("- {at: 10ms, for: 50ms, down: plane 1}\n")
    (mine,) = (
        body
        for language, body in FENCE.findall((ROOT / "docs/tutorial/first-simulation.md").read_text(encoding="utf-8"))
        if language == "yaml"
    )
    (tmp_path / "mine.yaml").write_text(mine)
    (tmp_path / "roce.yaml").write_text(
        mine.replace("name: mine", "name: roce").replace("{name: mrc}", "{name: roce, qps: 4}")
    )
    return tmp_path


@contextmanager
def ports_of(group: list[str]) -> Iterator[None]:
    """Keep others off the ports that these commands use: the defaults, one user at a time."""
    if not any(re.search(ON_FIXED_PORTS, command) for command in group):
        yield
        return
    with open(Path(tempfile.gettempdir()) / "openmrc-printed-commands.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def start(command: str, folder: Path, log: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as out:
        return subprocess.Popen(
            ["bash", "-c", f"exec {command}" if server_word(command) is not None else command],
            cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_all(group: list[str], folder: Path) -> None:
    servers: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(group):
            log = folder / f"log-{number}"
            process = start(command, folder, log)
            if server_word(command) is not None:
                servers.append(process)
                await_listening(process, log, str(server_word(command)))
                continue
            process.wait(SECONDS)
            allowed = next((codes for pattern, codes in EXIT_CODES.items() if re.search(pattern, command)), {0})
            assert process.returncode in allowed, f"{command}: {process.returncode}\n{log.read_text()[-2000:]}"
            while servers:
                end(servers.pop())
    finally:
        for each in [*servers, process]:
            end(each)


def await_listening(process: subprocess.Popen[bytes], log: Path, word: str) -> None:
    """Wait until a server says that it listens; one that says nothing gets a second."""
    for _ in range(int(SERVING_SECONDS / 0.1)):
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            process.wait(0.1 if word else 3.0)
        except subprocess.TimeoutExpired:
            if word in log.read_text():
                return
    pytest.fail(f"not listening after {SERVING_SECONDS:g} s: {log.read_text()[-2000:]}")


@pytest.mark.exhaustive
@pytest.mark.needs("jit")
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=[str(page.relative_to(ROOT)) for page in WITH_COMMANDS])
def test_the_commands_of_a_page_run_as_printed(page: Path, folder: Path) -> None:
    with ports_of(GROUPS[page]):
        run_all(GROUPS[page], folder)


def test_no_reason_to_skip_is_stale() -> None:
    printed = [each for page in PAGES for each in commands(page)] + inline_commands(ROOT / "README.md")
    assert len(printed) > 30
    for pattern in SKIPPED:
        assert any(re.search(pattern, command) for command in printed), pattern


def test_every_bench_that_a_page_names_exists() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    modules = set(re.findall(r"python -m (bench[\w.]+)", text))
    files = set(re.findall(r"\b(bench/[\w/]+\.py)", text)) | {f"{name.replace('.', '/')}.py" for name in modules}
    assert len(files) > 20
    assert [name for name in sorted(files) if not (ROOT / name).is_file()] == []
