"""The tutorial's commands run as printed, and what it tells is what happens."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from openmrc.lab import lifetime, record, run
from openmrc.lab.run import sockets_of
from tests.operations.control.traffic import PORT, sent, snapshots
from tests.waiting import await_true

pytestmark = pytest.mark.needs("lab")
ROOT = Path(__file__).parents[3]
LAB = "day"
LINES = [
    line
    for block in re.findall(r"^```shell\n(.*?)^```$", (ROOT / "docs" / "operate.md").read_text("utf-8"), re.M | re.S)
    for line in block.splitlines()
]


def frames() -> list[dict[str, Any]]:
    with urllib.request.urlopen("http://127.0.0.1:8765/frames", timeout=5) as answer:
        found: list[dict[str, Any]] = json.load(answer)
    return found


def last_frame() -> dict[str, Any]:
    return frames()[-1]


def is_listening() -> bool:
    show = run.command_line(LAB, "h5", ["ss", "-ltnH", f"sport = :{PORT}"])
    return subprocess.run(show, capture_output=True, check=True).stdout != b""


def page_is_up() -> bool:
    try:
        return bool(last_frame())
    except (OSError, IndexError):
        return False


def traffic_flows() -> bool:
    found = snapshots(sockets_of(LAB))
    return len(found) == 2 and all(sent(each) > 200 for each in found)


def cable_is_named_and_denied() -> bool:
    named = [verdict["suspect"] for verdict in last_frame()["verdicts"]]
    evs = [ev for each in snapshots(sockets_of(LAB)) for pair in each.queue_pairs for ev in pair.evs]
    return "p0-t0-00<>p0-t1-01" in named and any(ev.state == "DENIED" for ev in evs)


def switch_is_shown_down() -> bool:
    return 3 in last_frame()["health"]


def all_is_well() -> bool:
    frame = last_frame()
    return not frame["verdicts"] and set(frame["health"]) == {0}


def page_says_that_the_lab_is_down() -> bool:
    found = frames()
    assert max(sum(each["goodput"]) for each in found) < 0.5, "h0 and h5 have 0.16 Gb/s together"
    return bool(found[-1]["finished"]) and "lab day is down" in found[-1]["events"][-1]["text"]


AFTERWARDS: dict[str, Callable[[], bool]] = {  # what is true soon after a command that begins so
    "mrc lab exec -l day h5": is_listening,
    "mrc lab exec -l day h0": traffic_flows,
    "mrc view": page_is_up,
    'mrc lab fault -l day "loss': cable_is_named_and_denied,
    'mrc lab fault -l day "down': switch_is_shown_down,
    "mrc undrain": all_is_well,
    "mrc lab down": page_says_that_the_lab_is_down,
}


@pytest.fixture
def background() -> Iterator[list[subprocess.Popen[bytes]]]:
    if LAB in record.recorded():
        pytest.skip(f"a lab called {LAB} is up already")
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for each in started:
        each.send_signal(signal.SIGTERM)
    for each in started:
        each.wait(20)
    if LAB in record.recorded():
        lifetime.down(LAB)


def test_the_story_happens_as_it_is_told(background: list[subprocess.Popen[bytes]]) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    env.pop("MRC_CTL", None)
    assert len(LINES) == 11
    for line in LINES:
        words = [*_program("mrc"), *_inner(shlex.split(line.removesuffix(" &"))[1:])]
        if line.endswith(" &"):
            background.append(subprocess.Popen(words, cwd=ROOT, env=env, stdout=-3, stderr=-3))
        else:
            done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=100, check=False)
            assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        for begin, is_true in AFTERWARDS.items():
            if line.startswith(begin):
                try:
                    await_true(is_true, 100)
                except AssertionError as error:
                    error.add_note(f"the page shows {last_frame()['verdicts']}, {last_frame()['events'][-20:]}")
                    raise


def _program(name: str) -> list[str]:
    return [sys.executable, "-m", "openmrc.programs.main"] if name == "mrc" else [name]


def _inner(words: list[str]) -> list[str]:
    """Return arguments in which a command for a node is this package's own program."""
    if "--" not in words:
        return words
    at = words.index("--") + 1
    return [*words[:at], *_program(words[at]), *words[at + 1 :]]
