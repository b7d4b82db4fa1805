"""Sweeps on a Ray cluster of two nodes of this machine: workers that die, SIGTERM, errors within a task.

They run where Ray is installed (`pip install 'openmrc[cluster]'`); continuous integration has it not.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openmrc.errors import MrcError
from openmrc.programs.outcome import TERMINATED
from openmrc.sim import sweep_runs
from openmrc.sim.sweep import Point, read, run_point

ray = pytest.importorskip("ray")
ray_nodes = pytest.importorskip("ray.cluster_utils")

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120.0  # a starved machine starts a worker in tens of seconds
SCENARIO = """
name: x
fabric: {name: x, hosts: {count: 64}, planes: [{count: 2, host_gbps: 100, t0: {down: 8, up: 8}, t1: {}}]}
transport: {name: datagrams}
workloads: [{kind: permutation, size: SIZE}]
until: 10s
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))  # of the nodes, and so of their workers
        made = ray_nodes.Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        made.add_node(num_cpus=1)
        patch.setenv("RAY_ADDRESS", made.address)
        yield made
        ray.shutdown()
        made.shutdown()


_TERMINATED = "mrc: terminated: 0 of 4 points are done and kept in out; the same command again runs only the other 4"


def points(folder: Path, size: str = "20KB") -> list[Point]:
    (folder / "s.yaml").write_text(SCENARIO.replace("SIZE", size))
    (folder / "sweep.yaml").write_text("scenario: s.yaml\nvary: {seed: [1, 2, 3, 4]}\n")
    return read(folder / "sweep.yaml")[1]


def quiet(done: int, of: int, shares: list[float]) -> None: ...


def wait_for(folder: Path, pattern: str) -> Path:
    """Wait until a file exists."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if found := next(folder.glob(pattern), None):
            return found
        time.sleep(0.05)
    raise AssertionError(f"no {pattern} in {folder}")


def test_the_point_of_a_killed_worker_runs_again(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_or_hang(encoded: bytes, values: dict[str, Any]) -> Any:
        if values["seed"] == 2 and not (tmp_path / "killed").exists():
            (tmp_path / f"{os.getpid()}.pid").touch()
            threading.Event().wait()
        return run_point(encoded, values)

    def kill() -> None:
        running = wait_for(tmp_path, "*.pid")
        (tmp_path / "killed").touch()
        os.kill(int(running.stem), signal.SIGKILL)

    here = sweep_runs.run(points(tmp_path), tmp_path / "here", "inline", 1, quiet)
    monkeypatch.setattr(sweep_runs, "run_point", run_or_hang)
    killer = threading.Thread(target=kill)
    killer.start()
    there = sweep_runs.run(points(tmp_path), tmp_path / "there", "ray", 1, quiet)
    killer.join()
    assert (tmp_path / "killed").exists()
    assert [each["summary"]["fct_us"] for each in there] == [each["summary"]["fct_us"] for each in here]


def test_what_a_task_raises_is_told_in_one_line(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'numba'")

    monkeypatch.setattr(sweep_runs, "run_point", broken)
    with pytest.raises(MrcError, match=r"^--on ray: a worker failed: No module named 'numba'; the points done are .*$"):
        sweep_runs.run(points(tmp_path), tmp_path / "out", "ray", 1, quiet)


@pytest.mark.parametrize("reports", [1, 2], ids=["while it connects", "while points run"])
def test_sigterm_ends_a_sweep(reports: int, cluster: Any, tmp_path: Path) -> None:
    points(tmp_path, "1GiB")  # minutes
    begun = "import openmrc.sim.sweep_runs as runs; runs.PROGRESS_S = 0.5; "
    begun += "from openmrc.programs.main import main; main()"
    command = [sys.executable, "-c", begun, "sim", "sweep", "sweep.yaml", "--out", "out", "--on", "ray"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as sweep:
        assert sweep.stderr is not None
        for line in sweep.stderr:
            reports -= "0 of 4 points done" in line
            if not reports:
                break
        sweep.send_signal(signal.SIGTERM)
        said = sweep.communicate(timeout=PATIENCE_S)[1]
    assert sweep.returncode == TERMINATED
    assert _TERMINATED in said.splitlines()  # Ray may add lines of its own
