"""Torch's own reader of flight recordings reads ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from openmrc.train.execution.recorder import CollectiveRecord, FlightRecording
from tests.programs.in_process import run_here

CALLS = (
    "all_reduce SUM of 1,000 float32", "broadcast of 5 int64, root 1", "all_gather of 7 bfloat16", "barrier",
    "reduce_scatter AVG of 9 float64", "gather of 3 uint8, root 0",
)  # fmt: skip


def recording(rank: int, calls: tuple[str, ...]) -> FlightRecording:
    empty: Any = ({}, {}, {}, {}, [])
    entries = [
        CollectiveRecord(n + 1, call, 100, -1, 10.0 + n, 10.1 + n, 10.2 + n, "done", *empty)
        for n, call in enumerate(calls)
    ]
    return FlightRecording("default", rank, 2, ["10.0.0.1"], 20.0, "", entries)


def read_by_torch(tmp_path: Path, *ranks: tuple[str, ...]) -> str:
    tmp_path.mkdir()
    for rank, calls in enumerate(ranks):
        (tmp_path / f"{rank}.json").write_bytes(msgspec.json.encode(recording(rank, calls)))
    code, out, error = run_here("train", "explain", str(tmp_path), "--torch", str(tmp_path / "torch"))
    assert code == 0, error
    command = [sys.executable, *out.split()[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.exhaustive
@pytest.mark.needs("torch")
def test_torch_finds_equal_calls_equal_and_the_first_different_one(tmp_path: Path) -> None:
    equal = read_by_torch(tmp_path / "equal", CALLS, CALLS)
    assert "error" not in equal
    assert "missing" not in equal
    different = read_by_torch(tmp_path / "different", CALLS, (CALLS[0], CALLS[1].replace("5", "6"), *CALLS[2:]))
    assert "Collective sequence number: 2 has errors" in different
    assert "Culprit rank 1" in different
    behind = read_by_torch(tmp_path / "behind", CALLS, CALLS[:3])
    assert "sequence number: 4" in behind
    assert "missing ranks: {1}" in behind
