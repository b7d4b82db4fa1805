"""`mrc sim` as users call it: what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from openmrc.cli.main import app
from tests.sim.workloads.traces import chakra_writer as et

FABRIC = "name: x\nhosts: {count: 8}\nplanes: [{host_gbps: 100, count: 2, t0: {down: 4, up: 4}, t1: {down: 2}}]\n"


@pytest.fixture
def fabric(tmp_path: Path) -> Path:
    path = tmp_path / "fabric.yaml"
    path.write_text(FABRIC)
    return path


def mrc(*words: str | Path, code: int = 0) -> Any:
    done = CliRunner().invoke(app, ["sim", *map(str, words)])
    assert done.exit_code == code, (done.stdout, done.stderr, done.exception)
    return done


def test_a_trace_runs_without_a_scenario(tmp_path: Path, fabric: Path) -> None:
    et.write(tmp_path, [[et.collective(0, et.ALL_REDUCE, 1 << 16)] for _ in range(8)])
    done = mrc("run", "--trace", tmp_path / "trace.0.et", "--topo", fabric, "--json")
    summary = json.loads(done.stdout)
    assert (summary["flows"], summary["finished"]) == (112, 112)
    assert summary["workloads"][0]["name"] == "trace.0.et"


def test_a_trace_needs_a_fabric(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["sim", "run", "--trace", str(tmp_path / "x.goal")])
    assert "--trace FILE with --topo FABRIC" in str(done.exception)
