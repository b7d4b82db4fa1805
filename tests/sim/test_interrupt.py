"""Ctrl-C on a real process in the middle of a real run, and of a sweep."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from openmrc.wire.pcapng import read_frames

LONG = """
name: long
fabric: {name: x, hosts: {count: 16}, planes: [{count: 2, host_gbps: 100, t0: {down: 4, up: 4}, t1: {down: 4}}]}
transport: {name: mrc, settings: {evs: 16}}
workloads: [{kind: permutation, size: 2000MB}]
faults: [{at: 100us, for: 50us, every: 1ms, times: 1000, down: p0-t0-00<>p0-t1-01}]
capture: {hosts: [3], limit: 500}
"""
STANDS = re.compile(rb"simulated ([\d,.]+) us, ([\d,.]+) M packet-hops")  # the line of progress
PATIENCE_S = 300  # compiling included, on a slow machine


@pytest.mark.parametrize("threads", [1, 2])
def test_sigint_leaves_whole_files_that_say_interrupted(threads: int, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(LONG)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "openmrc.programs.main", "sim", "run", str(tmp_path / "s.yaml"), "--json"]
    screen, terminal = pty.openpty()
    process = subprocess.Popen(
        [*command, "--threads", str(threads), "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env=os.environ | {"TERM": "xterm"},
        preexec_fn=_hear_sigint,
    )
    try:
        simulated_us, packet_hops = _progress(process, screen)
        process.send_signal(signal.SIGINT)
        stdout, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        os.close(terminal)
        os.close(screen)
    assert process.returncode == 130
    summary = json.loads(stdout)
    assert summary == json.loads((out / "summary.json").read_text()) | {"warnings": summary["warnings"]}
    assert summary["interrupted"]
    assert (summary["flows"], summary["finished"]) == (16, 0)
    assert summary["simulated_us"] >= max(simulated_us, 1)
    assert summary["packet_hops"] >= max(packet_hops, 1)
    assert json.loads((out / "manifest.json").read_text())["scenario"]["name"] == "long"
    assert "</html>" in (out / "report.html").read_text()
    with (out / "h3.pcapng").open("rb") as file:
        (captured,) = summary["captures"]
        assert 0 < sum(1 for _ in read_frames(file)) == captured["packets"] <= captured["limit"] == 500
    import polars

    for name in ("samples", "flows", "paths", "windows"):
        assert polars.read_parquet(out / f"{name}.parquet").height > 0
    assert not list(out.glob("*.part"))


SHORT_AND_LONG = """
scenario: s.yaml
vary: {workloads.0.size: [20KB, 2000MB]}
"""


@pytest.mark.parametrize(
    ("number", "whole_group", "how"),
    [
        pytest.param(signal.SIGINT, True, "interrupted", id="Ctrl-C in a terminal, which all processes get"),
        pytest.param(signal.SIGINT, False, "interrupted", id="SIGINT to the command alone"),
        pytest.param(signal.SIGTERM, False, "terminated", id="SIGTERM"),
    ],
)
def test_a_sweep_that_is_ended_says_what_is_done_and_how_to_go_on(
    number: int, whole_group: bool, how: str, tmp_path: Path
) -> None:
    (tmp_path / "s.yaml").write_text(LONG.replace("capture: {hosts: [3], limit: 500}\n", ""))
    (tmp_path / "sweep.yaml").write_text(SHORT_AND_LONG)
    points = tmp_path / "out" / "points"
    command = [sys.executable, "-m", "openmrc.programs.main", "sim", "sweep", str(tmp_path / "sweep.yaml"), "--json"]
    process = subprocess.Popen(
        [*command, "--processes", "1", "--out", str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=_hear_sigint,
        process_group=0,
    )
    try:
        _until(process, lambda: bool(list(points.glob("*.json"))))
        (os.killpg if whole_group else os.kill)(process.pid, number)
        stdout, stderr = process.communicate(timeout=PATIENCE_S)  # ends when the last process of the group does
    finally:
        process.kill()
    assert process.returncode == 128 + number, stderr.decode()
    last = stderr.decode().splitlines()[-1]
    assert last.startswith(f"mrc: {how}: 1 of 2 points are done"), stderr.decode()
    assert "the same command again runs only the other 1" in last
    assert "Traceback" not in stderr.decode()
    assert json.loads(stdout) == {"points": 2, "done": 1, "interrupted": True, "out": str(tmp_path / "out")}
    (kept,) = points.iterdir()
    assert json.loads(kept.read_text())["summary"]["finished"] == 16


def _hear_sigint() -> None:
    """Undo what a shell does to jobs in the background, which would ignore the signal."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _progress(process: subprocess.Popen[bytes], screen: int) -> tuple[float, float]:
    """Wait until the run has shown three times where it stands; return what it showed last, rounded down."""
    os.set_blocking(screen, False)
    seen = b""

    def is_shown() -> bool:
        nonlocal seen
        with contextlib.suppress(BlockingIOError):
            seen += os.read(screen, 1 << 16)
        return len(STANDS.findall(seen)) >= 3

    _until(process, is_shown)
    now_us, hops = (float(number.replace(b",", b"")) for number in STANDS.findall(seen)[-1])
    return now_us - 0.1, (hops - 0.1) * 1e6


def _until(process: subprocess.Popen[bytes], happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        if happened():
            return
        time.sleep(0.05)
    process.kill()
    raise AssertionError(f"no progress: {process.communicate()}")
