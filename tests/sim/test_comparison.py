"""Scenarios side by side, and what a run says of connections that ended in error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from openmrc.errors import ConfigError
from openmrc.programs.main import app
from openmrc.report.simulation import report
from openmrc.report.terminal import errors, show
from openmrc.sim.comparison import points_of
from openmrc.sim.results.summary import summary
from openmrc.sim.scenario.description import load
from openmrc.sim.simulate import simulate

STEPS = """
name: steps
fabric: {name: x, hosts: {count: 16}, planes: [{count: 2, host_gbps: 100, t0: {down: 4, up: 4}, t1: {down: 4}}]}
transport: {name: datagrams}
workloads:
  - {kind: training_step, steps: 3, compute: 10us, collectives: [{kind: ring_all_reduce, size: 100KB}]}
faults:
  - {at: 15us, for: 30us, delay: 20us, on: h1 port 0}
until: 5ms
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def invoke(*arguments: str) -> tuple[int, str, BaseException | None]:
    result = CliRunner().invoke(app, ["sim", "compare", *arguments])
    return result.exit_code, result.stdout, result.exception


def test_a_comparison_runs_each_with_and_without_its_faults(tmp_path: Path) -> None:
    one = written(tmp_path, "one.yaml", STEPS)
    other = written(
        tmp_path, "other.yaml", STEPS.replace("name: steps", "name: worse").replace("for: 30us", "for: 90us")
    )
    code, out, _ = invoke(str(one), str(other), "--out", str(tmp_path / "out"), "--processes", "1", "--json")
    assert code == 0
    reported = json.loads(out)
    better, worse = reported["scenarios"]
    assert (better["name"], worse["name"]) == ("steps", "worse")
    assert better["without_faults"] == worse["without_faults"]
    assert 0 < better["gpu_time_lost_percent"] < worse["gpu_time_lost_percent"] < 100
    took, needed = sum(better["steps"]["each"]), 3 * better["without_faults"]["mean"]
    assert better["gpu_time_lost_percent"] == pytest.approx(100 * (1 - needed / took), abs=0.01)
    assert reported["differences"] == ["times of faults"]
    assert json.loads((tmp_path / "out" / "comparison.json").read_text())["scenarios"] == reported["scenarios"]
    again, text, _ = invoke(str(one), str(other), "--out", str(tmp_path / "out"), "--processes", "1")
    assert again == 0
    assert "GPU time lost" in text
    assert "differs: times of faults" in text


def test_a_job_that_does_not_finish_has_no_share_of_lost_time(tmp_path: Path) -> None:
    cut = written(tmp_path, "cut.yaml", STEPS.replace("until: 5ms", "until: 60us"))
    code, out, _ = invoke(str(cut), "--out", str(tmp_path / "out"), "--processes", "1", "--json")
    assert code == 1
    (row,) = json.loads(out)["scenarios"]
    assert row["gpu_time_lost_percent"] is None
    assert row["steps"]["finished"] < 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("faults:\n  - {at: 15us, for: 30us, delay: 20us, on: h1 port 0}\n", ""), "faults: none"),
        (("training_step, steps: 3, compute: 10us, collectives: [{kind: ring_all_reduce, size: 100KB}]",
          "permutation, size: 9KB"), "no training_step"),
    ],
)  # fmt: skip
def test_a_comparison_wants_steps_and_faults(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        points_of([written(tmp_path, "one.yaml", STEPS.replace(*change))])


CUT_OFF = """
name: cut off
fabric: {name: x, hosts: {count: 16}, planes: [{count: 2, host_gbps: 100, t0: {down: 4, up: 4}, t1: {down: 4}}]}
transport: {name: mrc, settings: {evs: 8, timeout_us: 20, linear_count: 2, exponential_count: 2}}
workloads:
  - {kind: training_step, steps: 2, compute: 10us, collectives: [{kind: ring_all_reduce, size: 200KB}]}
faults:
  - {at: 12us, down: h5}
until: 100ms
"""


def test_a_host_cut_off_ends_the_job_with_errors_in_summary_terminal_and_report(tmp_path: Path) -> None:
    scenario = load(written(tmp_path, "cut.yaml", CUT_OFF))
    run = simulate(scenario)
    reported = summary(run)
    assert reported["step_us"]["finished"] == 0
    assert reported["failed"] > 0
    assert reported["errors"]["queue_pairs"] == sum(reported["errors"]["by_cause"].values()) > 0
    assert set(reported["errors"]["by_cause"]) == {"user timeout"}
    for one in reported["errors"]["first"]:
        assert "h5" in (one["nic"], one["peer"])
        assert one["flow"] is not None
        assert one["at_us"] > 12
        assert one["plane"] in (0, 1)
        assert one["ev"].startswith("0x")
    first = reported["errors"]["first"][0]
    assert reported["job"] == {
        "stopped": True, "finished": False, "at_us": first["at_us"], "cause": "user timeout", "restart": None,
    }  # fmt: skip
    lines = list(errors(reported))
    assert lines[0].startswith(f"{reported['errors']['queue_pairs']} connections in error")
    assert "user timeout at" in lines[1]
    page = report(run, reported, {})
    assert "<h2>Connections in error</h2>" in page
    assert page.count("user timeout") > 1
    json.dumps(reported)


RESTART = "restart: {checkpoint_every: 1200s, takes: 300s}\n"


def test_a_job_that_stops_pays_what_its_scenario_says_a_restart_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = CUT_OFF.replace("{count: 16}", "{count: 16, gpus: 2}") + RESTART
    run = simulate(load(written(tmp_path, "cut.yaml", cut)))
    reported = summary(run)
    # 16 NICs with 2 GPUs each lose the restart and half of what lies between two checkpoints.
    assert reported["job"]["restart"] == {"takes_s": 300, "work_lost_s": 600, "gpu_hours": 32 * 900 / 3600}
    assert "a restart costs 8 GPU hours" in report(run, reported, {})
    show(reported, None)
    assert "a restart costs 8 GPU hours" in " ".join(capsys.readouterr().out.split())


def test_a_comparison_says_whose_job_stops_and_what_a_restart_costs(tmp_path: Path) -> None:
    healthy = written(tmp_path, "healthy.yaml", CUT_OFF.replace("down: h5", "for: 5us, down: p1-t0-00<>p1-t1-00"))
    stops = written(tmp_path, "stops.yaml", CUT_OFF + RESTART)
    arguments = (str(healthy), str(stops), "--out", str(tmp_path / "out"), "--processes", "1")
    code, out, _ = invoke(*arguments, "--json")
    assert code == 1
    reported = json.loads(out)
    assert [row["job"]["stopped"] for row in reported["scenarios"]] == [False, True]
    assert "cost of a restart" in reported["differences"]
    _, text, _ = invoke(*arguments)
    (job,) = (line.split() for line in text.splitlines() if line.startswith("job"))
    assert job == ["job", "finished", "stopped"]
    (costs,) = (line.split() for line in text.splitlines() if line.startswith("cost of a restart"))
    assert costs == ["cost", "of", "a", "restart", "-", "4", "GPU", "hours"]


def test_a_connection_of_other_traffic_does_not_stop_the_job(tmp_path: Path) -> None:
    beside = CUT_OFF.replace("at: 12us", "at: 5ms").replace("faults:", "  - {kind: permutation, size: 200MB}\nfaults:")
    reported = summary(simulate(load(written(tmp_path, "beside.yaml", beside))))
    assert reported["step_us"]["finished"] == 2
    assert reported["failed"] > 0
    assert not reported["job"]["stopped"]


def test_a_healthy_run_speaks_of_no_errors(tmp_path: Path) -> None:
    run = simulate(load(written(tmp_path, "one.yaml", STEPS)))
    reported = summary(run)
    assert reported["job"] == {"stopped": False, "finished": True, "at_us": None, "cause": None, "restart": None}
    assert reported["errors"] == {"queue_pairs": 0, "by_cause": {}, "first": []}
    assert list(errors(reported)) == []
    assert "Connections in error" not in report(run, reported, {})
