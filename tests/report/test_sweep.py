"""A sweep's points: where they run, and that a result that exists is whole."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from openmrc.errors import MrcError
from openmrc.report import sweep as report
from openmrc.sim import sweep_runs
from openmrc.sim.sweep import Point, read
from tests.ray_in_process import Ray, RayError

SCENARIO = """
name: x
fabric: {name: x, hosts: {count: 8}, planes: [{count: 2, host_gbps: 100, t0: {down: 4, up: 4}, t1: {down: 2}}]}
transport: {name: datagrams}
workloads: [{kind: permutation, size: 20KB}]
"""
NEVER_THE_SAME = ("wall_s", "setup_s", "peak_rss_mb")


@pytest.fixture
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Point]:
    monkeypatch.setitem(sys.modules, "ray", Ray("ray"))
    monkeypatch.setenv("RAY_ADDRESS", "local")
    (tmp_path / "s.yaml").write_text(SCENARIO)
    (tmp_path / "sweep.yaml").write_text("scenario: s.yaml\nvary: {seed: [1, 2], until: [1us, 1ms]}\n")
    return read(tmp_path / "sweep.yaml")[1]


def quiet(done: int, of: int, shares: list[float]) -> None: ...


def test_ray_and_processes_leave_the_same(points: list[Point], tmp_path: Path) -> None:
    here, there = (sweep_runs.run(points, tmp_path / on, on, 1, quiet) for on in ("processes", "ray"))
    for one, other in zip(here, there, strict=True):
        for summary in (one, other):
            for name in NEVER_THE_SAME:
                del summary["summary"][name]
        assert one == other
    assert [summary["values"]["until"] for summary in there] == ["1us", "1ms"] * 2
    assert {path.suffix for path in (tmp_path / "ray" / "points").iterdir()} == {".json"}


@pytest.mark.parametrize("is_named", [True, False], ids=["RAY_ADDRESS", "ray_current_cluster"])
def test_a_dead_cluster_is_named_in_one_line(
    is_named: bool, points: list[Point], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"  # nobody listens there any more
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setenv("RAY_ADDRESS", address if is_named else "")
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text("" if is_named else f"{address}\n")
    with pytest.raises(MrcError, match=f"^--on ray: the cluster at {address} does not answer .Connection refused.;.*$"):
        sweep_runs.run(points, tmp_path / "out", "ray", 1, quiet)


def test_a_worker_of_ray_that_is_lost_for_good_ends_a_sweep_with_a_word(
    points: list[Point], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: object, __: object) -> Any:
        raise RayError

    monkeypatch.setattr(Ray, "get", lost)
    with pytest.raises(MrcError, match="--on ray: a worker failed repeatedly"):
        sweep_runs.run(points, tmp_path, "ray", 1, quiet)


def test_points_that_run_for_long_report_how_far_they_are(
    points: list[Point], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_runs, "PROGRESS_S", 0.001)
    reports: list[tuple[int, list[float]]] = []
    sweep_runs.run(points, tmp_path, "processes", 2, lambda done, of, shares: reports.append((done, shares)))
    running = [shares for _, shares in reports if shares]
    assert max(map(len, running), default=0) == 2
    assert all(0 <= share <= 1 for shares in running for share in shares)
    assert [done for done, shares in reports if not shares] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("on", ["processes", "ray"])
def test_a_result_that_is_cut_off_while_it_is_written_does_not_exist(
    on: str, points: list[Point], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(path: Path, text: str) -> int:
        with path.open("w") as file:
            file.write(text[: len(text) // 2])
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError, match="no space"):
        sweep_runs.run(points[:1], tmp_path / "out", on, 1, quiet)
    assert sweep_runs.count_done(points, tmp_path / "out") == 0


def test_a_run_that_was_interrupted_where_it_ran_is_still_to_be_done(
    points: list[Point], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = {"values": {}, "summary": {"interrupted": True}}
    monkeypatch.setattr(sweep_runs, "run_point", lambda *_: summary)
    with pytest.raises(KeyboardInterrupt):
        sweep_runs.run(points, tmp_path / "out", "ray", 1, quiet)
    assert sweep_runs.count_done(points, tmp_path / "out") == 0


@pytest.mark.parametrize(
    ("values", "places"),
    [
        ([8, 16, 32, 64], [0.0, 1.0, 2.0, 3.0]),
        ([1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0]),
        ([0.1, 0.2], [0.1, 0.2]),
        (["mrc", "uet"], [0.0, 1.0]),
    ],
)
def test_powers_are_equally_far_apart(values: list[Any], places: list[float]) -> None:
    found, names = report._axis(values)
    assert list(found.values()) == places
    assert len(names) == (len(values) if places[0] == 0 else 0)
