"""Every command in a fence `sh` or `console` of the README and the pages runs as printed, in a folder of its own.

What does not run here (it needs root, another machine, a running endpoint, minutes, or runs on another page) stands in
a fence `shell` or `shell-session`, which look the same. The commands of a page run in their order; one that serves
runs until the next one has ended. The folder holds links to the files of the repository that the commands name, and
the files that a page tells its reader to have.
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
FENCE = re.compile(r"^```([\w-]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = re.compile(r"<!-- needs: ([\w., -]+) -->")  # what the commands of a page take, see tests/needs.py
SAVED = re.compile(r"^Save this as `([\w.]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = re.compile(r"^\w*\$ ")
PROGRAMS = ("mrc ", "make ", "python ", "torchrun ", ".venv/bin/", "MRC_", "cc ")
SECONDS = 100.0  # for one command, also on a busy machine
SERVING_SECONDS = 20.0  # for a server to listen

SERVERS = {  # what a command that serves writes to stderr or stdout once it listens
    r"\bmrc perf --planes 4$": "TCP port",
    r"write_memory\.py serve|send_file\.py receive": "",
    r"\bmrc metrics --listen\b": "metrics at",
}
ON_FIXED_PORTS = r"\b(perf|collperf|metrics|write_memory|send_file)\b"  # listen, or connect, where everyone does


def commands(page: Path) -> list[str]:
    """Return the commands of a page that run as printed, in order."""
    found = []
    for language, body in FENCE.findall(page.read_text(encoding="utf-8")):
        for line in body.splitlines():
            text = PROMPT.sub("", line)
            if text.startswith(PROGRAMS) and (language == "sh" or (language == "console" and PROMPT.match(line))):
                found.append(text)
    return found


def server_word(command: str) -> str | None:
    """Return what a serving command prints when it listens; None for a command that ends."""
    return next((word for pattern, word in SERVERS.items() if re.search(pattern, command)), None)


def needs_of(page: Path) -> list[pytest.MarkDecorator]:
    """Return the mark of what the commands of a page take; none if nothing."""
    named = NEEDS.search(page.read_text(encoding="utf-8"))
    return [pytest.mark.needs(*named[1].split(", "))] if named else []


GROUPS = {page: group for page in PAGES if (group := commands(page))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with what the pages tell their reader to have."""
    for name in ("scenarios", "examples", "native", "README.md", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    for page in GROUPS:
        for name, text in SAVED.findall(page.read_text(encoding="utf-8")):
            (tmp_path / name).write_text(text)
    mine = (tmp_path / "mine.yaml").read_text()
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
            ["bash", "-c", f"exec env {command}" if server_word(command) is not None else command],
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
            assert process.returncode == 0, f"{command}: {process.returncode}\n{log.read_text()[-2000:]}"
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
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=needs_of(page), id=str(page.relative_to(ROOT))) for page in GROUPS]
)
def test_the_commands_of_a_page_run_as_printed(page: Path, folder: Path) -> None:
    with ports_of(GROUPS[page]):
        run_all(GROUPS[page], folder)


def test_commands_are_found() -> None:
    assert sum(map(len, GROUPS.values())) > 40
    assert any(PROMPT.match(line) for page in GROUPS for line in page.read_text(encoding="utf-8").splitlines())


def test_every_bench_that_a_page_names_exists() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    modules = set(re.findall(r"python -m (bench[\w.]+)", text))
    files = set(re.findall(r"\b(bench/[\w/]+\.py)", text)) | {f"{name.replace('.', '/')}.py" for name in modules}
    assert len(files) > 20
    assert [name for name in sorted(files) if not (ROOT / name).is_file()] == []
